package expr

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/packet"
)

// oracle is libpcap without its optimizer, in a process of its own (testdata/oracle.c).
type oracle struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// verdict is what libpcap says of one expression.
type verdict struct {
	err     string
	matches string // of the packets of the captures that have the link type, four to a digit
	prog    []Instruction
}

// question is an expression with its circumstances.
type question struct {
	text    string
	link    LinkType
	snapLen uint32
	netmask netip.Addr
	source  Source
	kernel  bool
}

func (q question) options() Options {
	return Options{SnapLen: q.snapLen, Netmask: q.netmask, Source: q.source, Kernel: q.kernel, Names: testNames}
}

// startOracle runs the program that "make pcap-oracle" builds.
func startOracle(t *testing.T, captures []string) *oracle {
	t.Helper()
	program := os.Getenv("MILLRACE_PCAP_ORACLE")
	if program == "" {
		t.Skip("set MILLRACE_PCAP_ORACLE to the program that \"make pcap-oracle\" builds")
	}
	cmd := exec.Command(program, captures...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &oracle{in, bufio.NewReaderSize(out, 1<<20)}
}

func (o *oracle) ask(t *testing.T, q question) verdict {
	t.Helper()
	mask := uint32(0xffffffff)
	if q.netmask.IsValid() {
		mask = words(q.netmask)[3]
	}
	flags := 0
	if q.kernel {
		flags |= 1
	}
	if q.source != FromHost {
		flags |= 2
	}
	if q.source == FromSwappedFile {
		flags |= 4
	}
	snap := q.snapLen
	if snap == 0 {
		snap = DefaultSnapLen
	}
	fmt.Fprintf(o.in, "%d %d %d %d %s\n", q.link, snap, mask, flags, hex.EncodeToString([]byte(q.text)))
	line, err := o.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the oracle died of %q: %v", q.text, err)
	}
	line = strings.TrimSuffix(line, "\n")
	if s, ok := strings.CutPrefix(line, "E "); ok {
		return verdict{err: s}
	}
	fields := strings.SplitN(line, " ", 3)
	v := verdict{matches: fields[1]}
	for _, s := range strings.Split(strings.TrimSuffix(fields[2], ";"), ";") {
		var in Instruction
		p := strings.Split(s, ",")
		n := make([]uint64, 4)
		for i := range p {
			n[i], _ = strconv.ParseUint(p[i], 10, 32)
		}
		in = Instruction{uint16(n[0]), uint8(n[1]), uint8(n[2]), uint32(n[3])}
		v.prog = append(v.prog, in)
	}
	return v
}

// pkt is a packet of a capture.
type pkt struct {
	data []byte
	len  uint32
}

// readCaptures reads the packets of files, by link type, in the order of the names.
func readCaptures(t *testing.T, files []string) map[LinkType][]pkt {
	t.Helper()
	all := map[LinkType][]pkt{}
	for _, f := range files {
		r, err := capture.Open(f)
		if err != nil {
			continue // the oracle reports it too
		}
		for {
			rec, err := r.Next()
			if err != nil {
				break // the end, or an error that the oracle meets too
			}
			lt := FromCapture(uint32(rec.LinkType))
			all[lt] = append(all[lt], pkt{append([]byte(nil), rec.Data...), uint32(rec.Len)})
		}
		r.Close()
	}
	return all
}

func captureFiles(t *testing.T, dir string) (files []string) {
	for _, p := range []string{"*.pcap", "*.pcapng"} {
		m, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m {
			// libpcap cuts the packets of these two, which are longer than their file's snapshot length.
			if !strings.HasSuffix(f, "_print-oobr.pcap") {
				files = append(files, f)
			}
		}
	}
	return files
}

// agree compares f with libpcap's program on packets, in all forms, and returns how many matched.
func agree(t *testing.T, q question, f *Filter, v verdict, pkts []pkt, aux *auxData) (matched int, ok bool) {
	t.Helper()
	own, err := f.CBPF()
	if err != nil && !(errors.Is(err, ErrTooLong) && strings.Contains(q.text, "protochain")) {
		t.Errorf("%q on %v: %v", q.text, q.link, err)
		return 0, false
	}
	snap := uint32(DefaultSnapLen)
	if q.snapLen != 0 {
		snap = q.snapLen
	}
	for i, p := range pkts {
		want := interpret(v.prog, p.data, p.len, aux)
		if want != 0 {
			matched++
			if want != snap {
				t.Fatalf("%q returns %d of %d", q.text, want, snap)
			}
		}
		if err != nil {
			// Three walks along headers are longer than a program may be.
		} else if got := interpret(own, p.data, p.len, aux); got != want {
			t.Errorf("%q on %v, packet %d: CBPF returns %d, libpcap %d\n%s\n%s\n%s\n%x", q.text, q.link, i, got, want,
				f.Tree(), Disassemble(own), Disassemble(v.prog), p.data)
			return matched, false
		}
		if aux != nil {
			continue
		}
		if got := f.Match(p.data, int(p.len)); got != (want != 0) {
			t.Errorf("%q on %v, packet %d: Match says %v, libpcap %v\n%s\n%s\n%x", q.text, q.link, i, got, want != 0,
				f.Tree(), Disassemble(v.prog), p.data)
			return matched, false
		}
	}
	return matched, aux != nil || newBatchCase(t, q.link, pkts).check(t, f)
}

// batchCase is packets as a batch, as the header pass leaves them if they are frames of Ethernet.
type batchCase struct {
	pkts  []pkt
	batch *packet.Batch
}

// newBatchCase takes those packets that were captured whole, since a batch has no others.
func newBatchCase(t *testing.T, link LinkType, pkts []pkt) (c batchCase) {
	for _, p := range pkts {
		if int(p.len) == len(p.data) && p.len > 0 {
			c.pkts = append(c.pkts, p)
		}
	}
	if len(c.pkts) == 0 {
		return c
	}
	c.batch = batchOf(c.pkts)
	if link == LinkEthernet {
		headerPass(t, c.batch, 0)
	}
	return c
}

// check compares all forms of a Matcher with Match.
func (c batchCase) check(t *testing.T, f *Filter) bool {
	t.Helper()
	if c.batch == nil {
		return true
	}
	for _, form := range forms {
		m := form.of(f)
		if m == nil || strings.HasPrefix(form.name, "descriptors") && f.link != LinkEthernet {
			continue
		}
		got, at := m.Match(c.batch), 0
		for i, p := range c.pkts {
			if want := f.Match(p.data, int(p.len)); want != (got[at] == verdictAccept) {
				t.Errorf("%q on %v, packet %d of a batch: %d by %s, Match says %v\n%s\n%x", f, f.link, i, got[at], form.name, want, f.Tree(), p.data)
				return false
			}
			at += (len(p.data) + 2047) / 2048
		}
	}
	return true
}

// directed makes packets that get far into a program: it writes constants that the program compares
// with where it loads them from.
func directed(rng *rand.Rand, prog []Instruction, n int) []pkt {
	pkts := make([]pkt, n)
	for i := range pkts {
		size := 20 + rng.IntN(140)
		if rng.IntN(8) == 0 {
			size = rng.IntN(60)
		}
		b := make([]byte, size)
		if rng.IntN(2) == 0 {
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
		}
		write := func(at uint32, size uint8, v uint32) {
			if uint64(at)+uint64(size) > uint64(len(b)) {
				return
			}
			for j := range int(size) {
				b[int(at)+j] = byte(v >> (8 * (int(size) - 1 - j)))
			}
		}
		x := uint32(0)
		for j := 0; j < len(prog); j++ {
			in := prog[j]
			if in.Op&7 == bpfLDX && in.Op&0xe0 == bpfMSH {
				ihl := uint32(5)
				if rng.IntN(4) == 0 {
					ihl = rng.Uint32() & 0xf
				}
				if uint64(in.K) < uint64(len(b)) {
					b[in.K] = b[in.K]&0xf0 | byte(ihl)
					x = ihl * 4
				}
			}
			if in.Op&7 != bpfLD || in.Op&0xe0 != bpfABS && in.Op&0xe0 != bpfIND {
				continue
			}
			at := in.K
			if in.Op&0xe0 == bpfIND {
				at += x
			}
			for l := j + 1; l < len(prog) && l < j+3; l++ {
				if prog[l].Op&7 == bpfJMP && prog[l].Op&bpfX == 0 && rng.IntN(5) > 0 {
					k := prog[l].K
					if rng.IntN(6) == 0 {
						k += rng.Uint32N(3) - 1
					}
					write(at, map[uint16]uint8{bpfW: 4, bpfH: 2, bpfB: 1}[in.Op&0x18], k)
					break
				}
			}
			if rng.IntN(3) == 0 { // skip a part of the program, which undoes the part before it
				j += rng.IntN(8)
			}
		}
		length := uint32(len(b))
		if rng.IntN(4) == 0 {
			length += rng.Uint32N(1500)
		}
		pkts[i] = pkt{b, length}
	}
	return pkts
}
