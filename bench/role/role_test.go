package role

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

func decodeMarks(t *testing.T, b []byte) (marks []harness.Mark) {
	t.Helper()
	for dec := json.NewDecoder(bytes.NewReader(b)); dec.More(); {
		var m harness.Mark
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		marks = append(marks, m)
	}
	return marks
}

func TestARoleAnswersEveryLineAndTellsItsEnd(t *testing.T) {
	var steps atomic.Uint64
	closed := false
	w := roleWork{
		version: "v",
		step:    func() error { steps.Add(1); return nil },
		counts:  func() (map[string]uint64, error) { return map[string]uint64{"packets": steps.Load()}, nil },
		close:   func() error { closed = true; return nil },
	}
	var out bytes.Buffer
	if err := w.play(strings.NewReader("mark\nmark\n"), &out); err != nil {
		t.Fatal(err)
	}
	marks := decodeMarks(t, out.Bytes())
	if len(marks) != 4 || !marks[0].Ready || marks[0].Version != "v" || !marks[3].Final || marks[1].Final || !closed {
		t.Errorf("marks %+v, closed %v", marks, closed)
	}
}

func TestARoleThatFailsSaysSoAndNotThatItEnded(t *testing.T) {
	broken := errors.New("link is down")
	w := roleWork{step: func() error { return broken }, counts: func() (map[string]uint64, error) { return nil, nil }}
	var out bytes.Buffer
	if err := w.play(strings.NewReader(""), &out); !errors.Is(err, broken) {
		t.Errorf("play = %v, want %v", err, broken)
	}
	for _, m := range decodeMarks(t, out.Bytes()) {
		if m.Final {
			t.Error("a failed role told its end")
		}
	}
}

func TestTheProbeIsAValidPacket(t *testing.T) {
	for _, size := range []int{probeMin, 64, 1500, 1514} {
		p, err := probe(size)
		if err != nil {
			t.Fatal(err)
		}
		Stamp(p, 1<<60)
		d := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := d.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, _ := d.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if d.ErrorLayer() != nil || ip == nil || udp == nil {
			t.Fatalf("%d bytes: %v", size, d)
		}
		if int(ip.Length) != size-14 || int(udp.Length) != size-34 || udp.Checksum != 0 {
			t.Errorf("%d bytes: lengths %d and %d, checksum %d", size, ip.Length, udp.Length, udp.Checksum)
		}
		if _, res := ip.VerifyChecksum(); !res.Valid {
			t.Errorf("%d bytes: header checksum %#x is wrong", size, ip.Checksum)
		}
	}
	for _, size := range []int{0, probeMin - 1, 1515} {
		if _, err := probe(size); err == nil {
			t.Errorf("a probe of %d bytes was made", size)
		}
	}
}

func TestATallyTellsLossFromReordering(t *testing.T) {
	var c tally
	for _, seq := range []uint64{0, 1, 4, 3, 5, 5, 6} {
		p, _ := probe(64)
		Stamp(p, seq)
		c.saw(p)
	}
	c.saw(make([]byte, probeMin-1)) // not a probe
	c.publish()
	want := map[string]uint64{"packets": 7, "bytes": 7 * 64, "gaps": 2, "reordered": 2}
	if diff := cmp.Diff(want, c.counts()); diff != "" {
		t.Error(diff)
	}
}

// The sink's programs count what tally counts, for any sequence.
func TestTheSinksCountAsATallyDoes(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    ebpf.ProgramType
		program func(counter int) asm.Instructions
		verdict uint32
	}{{"XDP", ebpf.XDP, sinkProgram, 1}, {"tc", ebpf.SchedCLS, func(counter int) asm.Instructions { return tcSinkProgram(counter, 1, 0) }, 2}} {
		t.Run(c.name, func(t *testing.T) {
			count, err := newCounter("test")
			if err != nil {
				t.Skip("BPF maps need root: ", err)
			}
			defer count.Close()
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: c.kind, License: "Apache-2.0", Instructions: c.program(count.FD())})
			if err != nil {
				t.Fatal(err)
			}
			defer prog.Close()
			sinkCounts(t, count, func(p []byte) {
				if ret, err := prog.Run(&ebpf.RunOptions{Data: p}); err != nil || ret != c.verdict {
					t.Fatalf("the sink returned %d, %v, want %d", ret, err, c.verdict)
				}
			})
		})
	}
}

// A sink that answers returns some probes to where they came from, valid, and counts the others.
func TestASinkAnswersSomeProbes(t *testing.T) {
	count, err := newCounter("test")
	if err != nil {
		t.Skip("BPF maps need root: ", err)
	}
	defer count.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: tcSinkProgram(count.FD(), 1, 4)})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	for seq := range uint64(5) {
		p, _ := probe(64)
		Stamp(p, seq)
		out := make([]byte, 128)
		o := &ebpf.RunOptions{Data: p, DataOut: out}
		ret, err := prog.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		want := uint32(2)
		if seq%4 == 0 {
			want = 7 // TC_ACT_REDIRECT
			back := bytes.Clone(p)
			for _, f := range [][3]int{{0, 6, 6}, {26, 30, 4}, {34, 36, 2}} {
				copy(back[f[0]:f[0]+f[2]], p[f[1]:])
				copy(back[f[1]:f[1]+f[2]], p[f[0]:])
			}
			p = back
		}
		if ret != want || !bytes.Equal(o.DataOut, p) {
			t.Errorf("probe %d: %d and\n%x, want %d and\n%x", seq, ret, o.DataOut, want, p)
		}
	}
	if got, err := readCounter(count, "packets"); err != nil || got["packets"] != 3 {
		t.Errorf("%d packets are counted, %v, want 3", got["packets"], err)
	}
}

func sinkCounts(t *testing.T, count *ebpf.Map, send func([]byte)) {
	t.Helper()
	var c tally
	for i, seq := range []uint64{2, 3, 3, 9, 4, 10, 1 << 40} {
		p, _ := probe(60 + i)
		Stamp(p, seq)
		c.saw(p)
		send(p)
	}
	arp := make([]byte, 60)
	binary.BigEndian.PutUint16(arp[12:], 0x0806)
	send(arp)
	c.publish()
	got, err := readCounter(count, sinkFields[:4]...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.counts(), got); diff != "" {
		t.Error(diff)
	}
}

func TestSwapMACSwaps(t *testing.T) {
	p := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	swapMAC(p)
	if diff := cmp.Diff([]byte{7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 13}, p); diff != "" {
		t.Error(diff)
	}
}

// Every checksum of the synthesized traffic is right, by the engine and by gopacket, and what the
// contestants of the header measures count is what is in the capture.
func TestSynthesizedTrafficIsSound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "imix.pcap")
	const packets = 600
	if err := WriteTraffic(file, packets, IMIX); err != nil {
		t.Fatal(err)
	}
	h, err := newHeaders(roleOptions{ops: uint(gpukern.OpsHeader), args: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	for range h.batches {
		h.submit()
	}
	if h.err != nil || h.n != packets {
		t.Fatalf("one lap is %d packets, error %v, want %d", h.n, h.err, packets)
	}
	for _, b := range h.batches {
		for i := range b.D {
			if !b.D[i].Flags.Has(packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK) {
				t.Fatalf("checksums of %v are wrong", gopacket.NewPacket(b.Bytes(i), layers.LayerTypeEthernet, gopacket.Default))
			}
			d := gopacket.NewPacket(b.Bytes(i), layers.LayerTypeEthernet, gopacket.Default)
			if l4, ok := d.TransportLayer().(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); !ok || l4.SetNetworkLayerForChecksum(d.NetworkLayer()) != nil {
				t.Fatalf("no transport header in %v", d)
			}
			if err, bad := d.VerifyChecksums(); err != nil || len(bad) > 0 || d.ErrorLayer() != nil {
				t.Fatalf("gopacket says %v %v of %v", err, bad, d)
			}
		}
	}
}

func TestSampleCapturesNameTheirAbsence(t *testing.T) {
	t.Setenv("MILLRACE_PCAPS", t.TempDir())
	if files, why := SampleCaptures("."); files != nil || !strings.Contains(why, "MILLRACE_PCAPS") {
		t.Errorf("%v, %q", files, why)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("MILLRACE_PCAPS"), "broken.pcap"), []byte("no capture"), 0o644); err != nil {
		t.Fatal(err)
	}
	if files, why := SampleCaptures("."); files != nil || why == "" {
		t.Errorf("an unreadable capture was taken: %v, %q", files, why)
	}
}

func TestAProgramIsReadyWhenItSaysSo(t *testing.T) {
	f := &foreign{
		cmd: exec.Command("sh", "-c", "echo starting; sleep 0.2; echo it is up; sleep 60"), want: "is up", ready: make(chan struct{}),
	}
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	said := f.said.String()
	f.mu.Unlock()
	if want := "starting\nit is up\n"; said != want {
		t.Errorf("it had said %q, want %q", said, want)
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if cpu, err := f.cpu(); err != nil || cpu <= 0 {
		t.Errorf("CPU time of an ended program: %d ns, %v", cpu, err)
	}
}
