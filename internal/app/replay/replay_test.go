package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// oracle counts a capture the slow way: gopacket decodes, maps count.
type oracle struct {
	packets, ipv4, ipv6 uint64
	flows               map[string]bool
}

func count(t *testing.T, path string) oracle {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := oracle{flows: map[string]bool{}}
	for {
		rec, err := r.Next()
		if err != nil {
			return o
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
		if err != nil || len(frame) == 0 {
			continue
		}
		o.packets++
		d := capture.Decode(frame)
		if d.L3 == 0 {
			continue
		}
		if d.Src.Is4() {
			o.ipv4++
		} else {
			o.ipv6++
		}
		if d.L4 == 0 {
			continue
		}
		a, b := netip.AddrPortFrom(d.Src, d.SrcPort), netip.AddrPortFrom(d.Dst, d.DstPort)
		if a.Compare(b) > 0 {
			a, b = b, a
		}
		o.flows[fmt.Sprint(a, b, d.Proto)] = true
	}
}

// plain are captures in which every IP packet has a transport header that gopacket looks into, so
// that both sides count the same flows.
var plain = []string{"http-offload.pcap", "http.pcap", "tls.pcap", "udp.pcap", "jumbo.pcap", "vlan.pcap"}

func TestCountsEqualThoseOfAnotherDecoder(t *testing.T) {
	for _, name := range plain {
		path := testpcaps.File(t, name)
		want := count(t, path)
		rep, err := Run(context.Background(), Config{Files: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		got := rep.Total
		if got.Packets != want.packets || got.IPv4 != want.ipv4 || got.IPv6 != want.ipv6 || got.Flows != uint64(len(want.flows)) {
			t.Errorf("%s: %d packets, IPv4 %d, IPv6 %d, %d flows; want %d, %d, %d, %d", name,
				got.Packets, got.IPv4, got.IPv6, got.Flows, want.packets, want.ipv4, want.ipv6, len(want.flows))
		}
	}
}

func TestEveryCaptureIsReplayedAndBalances(t *testing.T) {
	files := testpcaps.Files(t)
	rules, err := filter.Parse("rules", "drop udp to any port 53\ndrop icmp")
	if err != nil {
		t.Fatal(err)
	}
	once, err := Run(context.Background(), Config{Files: files, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := Run(context.Background(), Config{Files: files, Rules: rules, Laps: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range once.Files {
		g := twice.Files[i]
		if f.Err != nil || g.Err != nil {
			t.Errorf("%s: %v, %v", f.Path, f.Err, g.Err)
		}
		if balance(f.Part) || balance(g.Part) {
			t.Errorf("%s: passed and dropped are not all packets", f.Path)
		}
		if g.Packets != 2*f.Packets || g.L4ChecksumErrors != 2*f.L4ChecksumErrors || g.Flows != f.Flows || g.Passed != 2*f.Passed {
			t.Errorf("%s: two laps are not twice one lap: %+v, %+v", f.Path, g.Part, f.Part)
		}
	}
	least := uint64(2500)
	if os.Getenv(testpcaps.Corpus) != "" {
		least = 50_000
	}
	if once.Total.Packets < least || once.Rules[0].Packets == 0 || once.Rules[1].Packets == 0 {
		t.Errorf("%d packets, rules %+v", once.Total.Packets, once.Rules)
	}
}

// balance reports whether packets are missing.
func balance(p Part) (missing bool) {
	sum := p.Passed
	for _, n := range p.Dropped {
		sum += n
	}
	return sum != p.Packets
}

// slow is an output device that takes few packets at a time, and fails when it is told to.
type slow struct {
	pool  *ring.Pool
	takes []int // packets of the next calls; then one each
	sent  [][]byte
	fail  bool
	count *pmd.Counters
}

func (s *slow) Rx(clock.Time, *packet.Batch) (int, error) {
	panic("a replay receives nothing from its output")
}

func (s *slow) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if s.fail {
		return 0, pmd.ErrDown
	}
	n := min(1, len(b.D))
	if len(s.takes) > 0 {
		n, s.takes = min(s.takes[0], len(b.D)), s.takes[1:]
	}
	for i := range n {
		s.sent = append(s.sent, append([]byte(nil), b.Bytes(i)...))
		s.pool.Put(b.D[i].Off)
	}
	s.count.Tx(b.D[:n])
	return n, nil
}

func (s *slow) Info() pmd.Info { return pmd.Info{Driver: "slow", FD: -1, Stats: s.count.Stats()} }
func (s *slow) Close() error   { return nil }

// numbered writes a capture of n packets that are not IP, each with its number.
func numbered(t *testing.T, n int) string {
	t.Helper()
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = append(make([]byte, 12), 0x88, 0xb5, byte(i>>8), byte(i)) // local experimental EtherType
	}
	return record(t, frames)
}

func record(t *testing.T, frames [][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n.pcapng")
	write(t, path, time.Nanosecond, frames...)
	return path
}

// write makes a capture of Ethernet frames that come gap apart.
func write(t *testing.T, path string, gap time.Duration, frames ...[]byte) {
	t.Helper()
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Error(err)
		return
	}
	for i, b := range frames {
		if err := w.Write(&capture.Record{Data: b, Len: len(b), Time: int64(i) * int64(gap)}); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestSlowDeviceGetsEveryPacketInOrder(t *testing.T) {
	arena, pool, err := newPool(1024)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	r := rand.New(rand.NewPCG(1, 1))
	out := &slow{pool: pool, count: &pmd.Counters{}}
	for range 500 {
		out.takes = append(out.takes, r.IntN(40))
	}
	rep, err := Run(context.Background(), Config{Files: []string{numbered(t, 3000)}, Limit: 1000, Laps: 2, Out: out, Pool: pool})
	if err != nil || rep.Total.Packets != 1000 {
		t.Fatal(rep.Total.Packets, err)
	}
	out.sent, out.count = nil, &pmd.Counters{}
	rep, err = Run(context.Background(), Config{Files: []string{numbered(t, 3000)}, Laps: 2, Out: out, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Total.Passed != 6000 || rep.Output.Packets != 6000 || len(out.sent) != 6000 || len(rep.Total.Dropped) != 0 {
		t.Fatalf("passed %d, sent %d (%d), dropped %v; want 6000", rep.Total.Passed, rep.Output.Packets, len(out.sent), rep.Total.Dropped)
	}
	for i, b := range out.sent {
		if n := int(b[14])<<8 | int(b[15]); n != i%3000 {
			t.Fatalf("packet %d is number %d", i, n)
		}
	}
	if err := ring.Audit(arena, pool); err != nil {
		t.Error(err)
	}
}

func TestLimitEndsWithinABatchAndAtItsEnd(t *testing.T) {
	path := numbered(t, 3000)
	for _, limit := range []uint64{1, 63, 64, 65, 128, 1000, 2999} {
		rep, err := Run(context.Background(), Config{Files: []string{path, path}, Limit: limit})
		if err != nil || rep.Files[0].Err != nil || rep.Total.Packets != limit || len(rep.Files) != 1 {
			t.Errorf("limit %d: %d packets of %d files, %v", limit, rep.Total.Packets, len(rep.Files), err)
		}
	}
}

func TestPacketsThatAreDroppedDoNotCloseTheWindow(t *testing.T) {
	arena, pool, err := newPool(1024)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	frames := make([][]byte, 3000)
	for i := range frames {
		frames[i] = append(make([]byte, 12), 8, 0, 0x15) // IPv4, version 1
		if i%3 == 0 {
			frames[i][12] = 0x88
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rep, err := Run(ctx, Config{Files: []string{record(t, frames)}, Out: &slow{pool: pool, count: &pmd.Counters{}}, Pool: pool})
	if err != nil || rep.Stopped || rep.Total.Passed != 1000 || rep.Total.Dropped["malformed"] != 2000 {
		t.Errorf("stopped %v, passed %d, dropped %v: %v", rep.Stopped, rep.Total.Passed, rep.Total.Dropped, err)
	}
	if err := ring.Audit(arena, pool); err != nil {
		t.Error(err)
	}
}

func TestChecksumsThatCannotBeVerifiedAreNoErrors(t *testing.T) {
	v4 := append(make([]byte, 12), 8, 0,
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, wire.ProtoUDP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0, 1, 0, 2, 0, 8, 0, 0) // RFC 768: a checksum of zero is none
	sum := wire.Fold(wire.Sum(v4[14:34], 0))
	v4[24], v4[25] = byte(sum>>8), byte(sum)
	v6 := append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, wire.ProtoRouting, 64)
	v6 = append(v6, make([]byte, 32)...)
	routing := []byte{wire.ProtoUDP, 2, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	v6 = append(append(v6, routing...), 0, 1, 0, 2, 0, 8, 0x12, 0x34)
	last := append([]byte(nil), v6...)
	last[14+40+3] = 0                         // no segment left: the checksum is judged, and wrong
	behind := append([]byte(nil), v6[:54]...) // the routing header behind an AH and a fragment header of 16 and 8 bytes
	behind[20], behind[19] = wire.ProtoAH, behind[19]+24
	behind = append(behind, wire.ProtoFragment, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0)
	behind = append(append(behind, wire.ProtoRouting, 9, 0, 0, 0, 0, 0, 1), v6[54:]...)
	rep, err := Run(context.Background(), Config{Files: []string{record(t, [][]byte{v4, v6, last, behind})}})
	if err != nil {
		t.Fatal(err)
	}
	if got := rep.Total; got.IPChecksumErrors != 0 || got.L4Unverified != 3 || got.L4ChecksumErrors != 1 || got.Malformed != 0 {
		t.Errorf("%d unverified, %d wrong, %d wrong IPv4, %d malformed; want 3, 1, 0, 0",
			got.L4Unverified, got.L4ChecksumErrors, got.IPChecksumErrors, got.Malformed)
	}
}

func TestDeviceThatIsDownDropsAndDoesNotHang(t *testing.T) {
	arena, pool, err := newPool(1024)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	rep, err := Run(context.Background(), Config{Files: []string{numbered(t, 3000)}, Out: &slow{pool: pool, fail: true, count: &pmd.Counters{}}, Pool: pool})
	if !errors.Is(err, pmd.ErrDown) {
		t.Errorf("error %v, want that the device is down", err)
	}
	if rep.Total.Packets != 3000 || rep.Total.Dropped["link_down"] != 3000 || balance(rep.Total) {
		t.Errorf("%d packets, dropped %v", rep.Total.Packets, rep.Total.Dropped)
	}
	if err := ring.Audit(arena, pool); err != nil {
		t.Error(err)
	}
}

func TestFlowsBeyondTheBoundAreCountedAsUnknown(t *testing.T) {
	path := testpcaps.File(t, "errors.pcap")
	all, err := Run(context.Background(), Config{Files: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	few, err := Run(context.Background(), Config{Files: []string{path}, Flows: 5})
	if err != nil {
		t.Fatal(err)
	}
	if all.FlowsUnknown != 0 || few.Total.Flows != 5 || few.FlowsUnknown == 0 || few.Total.Packets != all.Total.Packets {
		t.Errorf("%d flows and %d unknown, with a bound of 5; %d unknown without", few.Total.Flows, few.FlowsUnknown, all.FlowsUnknown)
	}
}

func TestVerifyReportsWhereTheEngineDiffers(t *testing.T) {
	v, err := newVerifier(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	v.path = "x.pcap"
	frame := append(make([]byte, 12), 0x88, 0xb5, 1, 2)
	v.add(frame, 7)
	v.fields(0, "reference", []field{{"hash", uint32(1)}, {"proto", uint8(6)}}, []field{{"hash", uint32(2)}, {"proto", uint8(6)}})
	want := Mismatch{"x.pcap", 7, "hash", "1", "2", "reference"}
	if v.Count != 1 || v.Mismatches[0] != want {
		t.Errorf("%d: %+v", v.Count, v.Mismatches)
	}
	for range 2 * MaxMismatches {
		v.fields(0, "gopacket", []field{{"l4", 1}}, []field{{"l4", 2}})
	}
	if v.Count != 1+2*MaxMismatches || len(v.Mismatches) != MaxMismatches {
		t.Errorf("%d mismatches of which %d are kept", v.Count, len(v.Mismatches))
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	arena, pool, err := newPool(1024)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	p, err := pcap.Open(pool, pcap.Config{Files: []string{testpcaps.File(t, "http.pcap")}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	h := &handler{src: &source{Driver: p}, filter: filter.NewFilter(checks, &filter.List{}), flows: newFlows(0), found: newMatches(&Config{}), sum: newSum()}
	h.flows.begin()
	b := packet.NewBatch(arena.View(), packet.BatchSize)
	if _, err := h.src.Rx(0, b); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	h.forward = true // leaves the frames where they are
	d := append([]packet.Desc(nil), b.D...)
	if n := testing.AllocsPerRun(100, func() { copy(b.D, d); h.Handle(0, b) }); n != 0 {
		t.Errorf("%v allocations for %d packets", n, len(d))
	}
	h.src.Release(b)
}

func TestGapsInTimeDoNotCutBatchesShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse.pcap")
	write(t, path, time.Minute, slices.Repeat([][]byte{make([]byte, 60)}, 300)...)
	for _, laps := range []int{1, 2} {
		r := &runner{cfg: Config{Laps: laps}}
		src, pool, closeAll, err := r.open(path)
		if err != nil {
			t.Fatal(err)
		}
		b := packet.NewBatch(pool.Arena().View(), packet.BatchSize)
		if n, err := src.Rx(0, b); n != packet.BatchSize || err != nil {
			t.Errorf("%d laps: the first batch has %d packets, %v; want %d", laps, n, err, packet.BatchSize)
		}
		src.Release(b)
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	}
}

func TestTinyPacketsLargerThanTheFileAreReplayedRepeatedly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.pcap") // a byte of packet is 17 of the file and a cache line of the arena
	write(t, path, 0, slices.Repeat([][]byte{{1}}, 100_000)...)
	rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: 2})
	if err != nil || rep.Files[0].Err != nil || rep.Total.Packets != 200_000 {
		t.Errorf("%d packets, %v, %v", rep.Total.Packets, err, rep.Files[0].Err)
	}
}

func TestPipeIsReadOnceForAllLaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes here:", err)
	}
	go write(t, path, 0, slices.Repeat([][]byte{make([]byte, 1400)}, 6000)...)
	rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: 3})
	if err != nil || rep.Files[0].Err != nil || rep.Total.Packets != 18_000 || rep.Files[0].Mode != "preload" {
		t.Errorf("%d packets by %s, %v, %v", rep.Total.Packets, rep.Files[0].Mode, err, rep.Files[0].Err)
	}
}

func TestStoppedVerificationIsNoSuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	v, err := Verify(ctx, Config{Files: []string{numbered(t, 10)}})
	if !errors.Is(err, context.Canceled) || v.Packets != 0 {
		t.Errorf("%d packets, error %v", v.Packets, err)
	}
}
