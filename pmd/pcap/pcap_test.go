package pcap_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
)

var (
	_ pmd.Driver  = (*pcap.Driver)(nil)
	_ ring.Holder = (*pcap.Driver)(nil)
)

// held makes a batch a holder.
type held struct{ *packet.Batch }

func (h held) Holds(visit func(off uint32)) {
	for i := range h.D {
		visit(h.D[i].Off)
	}
}

// seen is a packet as a test compares it.
type seen struct {
	Time int64
	Data string
}

// writeCapture makes a capture of Ethernet packets.
func writeCapture(t testing.TB, packets ...seen) string {
	t.Helper()
	return writeLink(t, capture.LinkTypeEthernet, packets...)
}

func writeLink(t testing.TB, lt capture.LinkType, packets ...seen) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.pcap")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: lt}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.Write(&capture.Record{Data: []byte(p.Data), Time: p.Time}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// readCapture returns the packets of a capture as pcapgo sees them.
func readCapture(t testing.TB, path string) []seen {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []seen
	for {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seen{ci.Timestamp.UnixNano(), string(data)})
	}
}

// rig is a pcap driver with its memory.
type rig struct {
	t     testing.TB
	arena *ring.Arena
	pool  *ring.Pool
	d     *pcap.Driver
	b     *packet.Batch
}

func newRig(t testing.TB, frames int, cfg pcap.Config) *rig {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: frames, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	pool, err := arena.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := pcap.Open(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &rig{t, arena, pool, d, packet.NewBatch(arena.View(), packet.BatchSize)}
}

// audit checks that every frame is in the pool, the driver or the batch.
func (r *rig) audit(holders ...ring.Holder) {
	r.t.Helper()
	if err := ring.Audit(r.arena, append(holders, r.pool, r.d)...); err != nil {
		r.t.Fatal(err)
	}
}

// packets takes the packets out of the batch and releases it.
func (r *rig) packets() []seen {
	var all []seen
	for at := 0; at < len(r.b.D); {
		p := seen{Time: r.b.Time(at)}
		for n := packet.Chain(r.b.D[at:]); n > 0; n-- {
			p.Data += string(r.b.Bytes(at))
			at++
		}
		all = append(all, p)
	}
	r.d.Release(r.b)
	return all
}

// drain receives until the driver says that it is over.
func (r *rig) drain() ([]seen, error) {
	var all []seen
	for {
		n, err := r.d.Rx(0, r.b)
		if err != nil {
			return all, err
		}
		if n == 0 {
			r.t.Fatal("nothing received and no error")
		}
		all = append(all, r.packets()...)
	}
}

// expected are the packets of a capture as Ethernet frames, by the reader alone.
func expected(t testing.TB, path string) (all []seen, bad pcap.RecordStats) {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, bad
		}
		if err != nil {
			t.Fatal(err)
		}
		bad.Records++
		if len(rec.Data) < rec.Len {
			bad.Truncated++
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
		switch {
		case len(rec.Data) == 0:
			bad.Empty++
		case errors.Is(err, capture.ErrLinkType):
			bad.Unsupported++
		case err != nil:
			bad.NotIP++
		default:
			all = append(all, seen{rec.Time, string(frame)})
		}
	}
}

func TestDriverReplaysEveryCaptureInEveryMode(t *testing.T) {
	for _, path := range testpcaps.Files(t) {
		want, bad := expected(t, path)
		for _, mode := range []pcap.Mode{pcap.Stream, pcap.Preload, pcap.Resident} {
			r := newRig(t, 4096, pcap.Config{Files: []string{path}, Mode: mode})
			got, err := r.drain()
			if err != io.EOF {
				t.Fatalf("%s %v: %v", path, mode, err)
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%s %v (-reader +driver):\n%.1000s", path, mode, d)
			}
			if d := cmp.Diff(bad, r.d.Records()); d != "" {
				t.Errorf("%s %v records (-reader +driver):\n%s", path, mode, d)
			}
			s := r.d.Info().Stats
			if s.RxPackets+s.RxInvalid != bad.Records || s.RxPackets != uint64(len(want)) {
				t.Errorf("%s %v: %d received, %d invalid, %d records", path, mode, s.RxPackets, s.RxInvalid, bad.Records)
			}
			r.audit()
			r.d.Close()
			if r.pool.Free() != r.pool.Size() {
				t.Errorf("%s %v: %d of %d frames came back", path, mode, r.pool.Free(), r.pool.Size())
			}
			r.arena.Close()
		}
	}
}

var everyMode = []pcap.Mode{pcap.Stream, pcap.Preload, pcap.Resident}

// inEveryMode runs f as a subtest for each mode.
func inEveryMode(t *testing.T, f func(t *testing.T, mode pcap.Mode)) {
	t.Helper()
	for _, mode := range everyMode {
		t.Run(mode.String(), func(t *testing.T) { f(t, mode) })
	}
}

func TestDriverMakesLapsOverSeveralFiles(t *testing.T) {
	a := writeCapture(t, seen{10, "alpha"}, seen{20, "beta"})
	b := writeCapture(t, seen{5, "gamma"})
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{a, b}, Mode: mode, Laps: 3})
		got, err := r.drain()
		if err != io.EOF {
			t.Fatal(err)
		}
		lap := []seen{{10, "alpha"}, {20, "beta"}, {5, "gamma"}}
		if d := cmp.Diff(append(append(append([]seen(nil), lap...), lap...), lap...), got); d != "" {
			t.Error(d)
		}
		if _, err := r.d.Rx(0, r.b); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		r.audit()
	})
}

func TestEndlessLapsStopOverFilesWithoutPackets(t *testing.T) {
	empty := writeCapture(t)
	useless := writeLink(t, capture.LinkTypeUSBLinux, seen{1, "usb"})
	long := writeCapture(t, seen{1, string(make([]byte, 40_000))})
	for _, path := range []string{empty, useless, long} {
		inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
			r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode, Laps: -1, DropLong: true})
			if n, err := r.d.Rx(0, r.b); n != 0 || err != io.EOF {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}

func TestEndlessLapsStopWhenTheFileIsEmptied(t *testing.T) {
	path := writeCapture(t, seen{1, "once"})
	r := newRig(t, 16, pcap.Config{Files: []string{path}, Laps: -1})
	if n, err := r.d.Rx(0, packet.NewBatch(r.arena.View(), 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := os.Truncate(path, 24); err != nil {
		t.Fatal(err)
	}
	// What the driver has read ahead may still come, for one lap.
	for range 2 {
		if n, err := r.d.Rx(0, r.b); n == 0 && err == io.EOF {
			return
		}
		r.d.Release(r.b)
	}
	t.Error("no end")
}

func TestDriverEndsABatchTwoSecondsFromItsBase(t *testing.T) {
	const s = 1_000_000_000
	path := writeCapture(t, seen{10 * s, "a"}, seen{12 * s, "b"}, seen{12*s + 1, "c"}, seen{11 * s, "d"}, seen{10 * s, "e"})
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode})
		var lens []int
		var got []seen
		for {
			n, err := r.d.Rx(77, r.b)
			if err == io.EOF {
				break
			}
			lens = append(lens, n)
			got = append(got, r.packets()...)
		}
		if d := cmp.Diff([]int{2, 2, 1}, lens); d != "" {
			t.Error(d)
		}
		if got[2].Time != 12*s+1 || got[3].Time != 11*s || got[4].Time != 10*s {
			t.Errorf("times %v", got)
		}
	})
}

func TestDriverStampsNowWhereAsked(t *testing.T) {
	path := writeCapture(t, seen{10, "a"}, seen{1 << 60, "b"})
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode, StampNow: true})
		if n, err := r.d.Rx(1<<40+5, r.b); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		for _, p := range r.packets() {
			if p.Time != 1<<40+5 {
				t.Errorf("time %d", p.Time)
			}
		}
	})
}

// arrivals polls every microsecond and returns when packets came, in microseconds.
func (r *rig) arrivals(from clock.Time) []int {
	var at []int
	for now := from; ; now += 1000 {
		n, err := r.d.Rx(now, r.b)
		if err == io.EOF {
			return at
		}
		for range n {
			at = append(at, int(now-from)/1000)
		}
		r.d.Release(r.b)
	}
}

func TestDriverKeepsTheRate(t *testing.T) {
	data := string(make([]byte, 125)) // 1000 bits
	const us = 1000
	path := writeCapture(t, seen{5000 * us, data}, seen{5004 * us, data}, seen{5010 * us, data})
	for _, c := range []struct {
		rate string
		laps int
		want []int
	}{
		{"max", 2, []int{0, 0, 0, 0, 0, 0}},
		{"100kpps", 2, []int{0, 10, 20, 30, 40, 50}},
		{"100Mbps", 1, []int{0, 10, 20}},
		{"1x", 1, []int{0, 4, 10}},
		{"2x", 2, []int{0, 2, 5, 5, 7, 10}},
		{"0.5x", 1, []int{0, 8, 20}},
	} {
		rate, err := pcap.ParseRate(c.rate)
		if err != nil {
			t.Fatal(err)
		}
		inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
			r := newRig(t, 64, pcap.Config{Files: []string{path}, Mode: mode, Rate: rate, Laps: c.laps})
			if d := cmp.Diff(c.want, r.arrivals(1<<50)); d != "" {
				t.Errorf("%s: %s", c.rate, d)
			}
			if timed := r.d.Info().Caps&pmd.CapTimed != 0; timed != (c.rate != "max") {
				t.Errorf("%s: timed %v", c.rate, timed)
			}
		})
	}
}

func TestDriverPacesPacketsAndNotTheirPieces(t *testing.T) {
	path := writeCapture(t, seen{1, string(make([]byte, 5000))}, seen{2, "a"}, seen{3, "b"})
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 64, pcap.Config{Files: []string{path}, Mode: mode, Rate: pcap.Rate{Packets: 1e5}, Laps: 2})
		want := []int{0, 0, 0, 10, 20, 30, 30, 30, 40, 50}
		if d := cmp.Diff(want, r.arrivals(0)); d != "" {
			t.Error(d)
		}
	})
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]pcap.Rate{
		"": {}, "max": {}, "1pps": {Packets: 1}, "1.5Mpps": {Packets: 1.5e6}, "10Gbps": {Bits: 1e10},
		"500kbps": {Bits: 5e5}, "2x": {Speed: 2}, "0.25x": {Speed: 0.25},
	} {
		got, err := pcap.ParseRate(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
		if again, err := pcap.ParseRate(got.String()); err != nil || again != want {
			t.Errorf("%q: %q reads as %+v, %v", s, got, again, err)
		}
	}
	for _, s := range []string{"fast", "x", "pps", "-1pps", "0x", "10", "1Tbps", "1kx", "NaNpps", "Infbps", "1kMpps"} {
		if r, err := pcap.ParseRate(s); err == nil {
			t.Errorf("%q: %+v", s, r)
		}
	}
}

func TestDriverSpansFramesWithALongPacket(t *testing.T) {
	long := make([]byte, 9000)
	for i := range long {
		long[i] = byte(i * 7)
	}
	want := []seen{{1, "before"}, {2, string(long)}, {3, "after"}}
	path := writeCapture(t, want...)
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode})
		got, err := r.drain()
		if err != io.EOF || !cmp.Equal(want, got) {
			t.Error(err, cmp.Diff(want, got))
		}
		if s := r.d.Info().Stats; s.RxPackets != 3 || s.RxBytes != 9011 || s.RxInvalid != 0 {
			t.Errorf("%+v", s)
		}
		r.audit()

		r = newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode, DropLong: true})
		if got, _ = r.drain(); len(got) != 2 || r.d.Info().Stats.RxInvalid != 1 || r.d.Records().TooLong != 1 {
			t.Errorf("with DropLong %d packets, %+v", len(got), r.d.Records())
		}

		r = newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode})
		r.b = packet.NewBatch(r.arena.View(), 4) // five frames never fit
		if got, _ = r.drain(); len(got) != 2 || r.d.Info().Stats.RxInvalid != 1 {
			t.Errorf("into a small batch %d packets, %+v", len(got), r.d.Records())
		}
		r.audit()
	})
}

func TestDriverSpansFramesWithASynthesizedHeader(t *testing.T) {
	ip := make([]byte, 5000)
	for i := range ip {
		ip[i] = byte(i*3) | 1
	}
	ip[0] = 0x45
	path := writeLink(t, capture.LinkTypeRaw, seen{1, string(ip)})
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode})
		got, _ := r.drain()
		if want := string(make([]byte, 12)) + "\x08\x00" + string(ip); len(got) != 1 || got[0].Data != want {
			t.Errorf("%d packets", len(got))
		}
	})
}

func TestDriverLeavesHeadroom(t *testing.T) {
	path := writeCapture(t, seen{1, "a"}, seen{2, string(make([]byte, 3000))})
	for _, mode := range []pcap.Mode{pcap.Stream, pcap.Preload} {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode, Headroom: 128})
		r.d.Rx(0, r.b)
		for i := range r.b.D {
			if h := r.b.Arena.Headroom(&r.b.D[i]); h != 128 {
				t.Errorf("packet %d: headroom %d", i, h)
			}
		}
		if len(r.b.D) != 3 {
			t.Errorf("%d descriptors", len(r.b.D))
		}
	}
}

func TestDriverReceivesUpToTheDamage(t *testing.T) {
	path := writeCapture(t, seen{1, "first"}, seen{2, "second"}, seen{3, "third"})
	b, _ := os.ReadFile(path)
	if err := os.WriteFile(path, b[:len(b)-2], 0o600); err != nil {
		t.Fatal(err)
	}
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{path}, Mode: mode, Laps: 2})
		got, err := r.drain()
		if len(got) != 2 || !errors.Is(err, capture.ErrTruncated) {
			t.Fatalf("%d packets, %v", len(got), err)
		}
		var at *capture.Error
		if !errors.As(err, &at) || at.Record != 3 || at.Path != path {
			t.Errorf("%v", err)
		}
		if _, again := r.d.Rx(0, r.b); again == nil || again.Error() != err.Error() {
			t.Errorf("again: %v", again)
		}
	})
}

func TestOpenRejectsInvalidConfigurations(t *testing.T) {
	good := writeCapture(t, seen{1, string(make([]byte, 2000))}, seen{1, string(make([]byte, 2000))})
	notes := filepath.Join(t.TempDir(), "notes.txt")
	os.WriteFile(notes, []byte("not a capture"), 0o600)
	for name, cfg := range map[string]pcap.Config{
		"a missing file":              {Files: []string{good + ".no"}},
		"a text file":                 {Files: []string{notes}},
		"a directory to write to":     {Out: t.TempDir()},
		"two rates":                   {Files: []string{good}, Rate: pcap.Rate{Packets: 1, Bits: 1}},
		"headroom of a whole frame":   {Files: []string{good}, Headroom: 2048},
		"standard input twice":        {Files: []string{"-"}, Laps: 2},
		"more resident than the pool": {Files: []string{good}, Mode: pcap.Resident},
		"an unknown mode":             {Mode: 9},
	} {
		arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2, Huge: ring.HugeOff})
		if err != nil {
			t.Fatal(err)
		}
		pool, _ := arena.Cut(1)
		d, err := pcap.Open(pool, cfg)
		var op *pmd.OpError
		if d != nil || !errors.As(err, &op) {
			t.Errorf("%s: %v", name, err)
		}
		if pool.Free() != 1 {
			t.Errorf("%s: a frame is lost", name)
		}
		arena.Close()
	}
}

func TestDriverWritesWhatIsSent(t *testing.T) {
	long := string(bytes.Repeat([]byte("0123456789"), 500))
	in := writeCapture(t, seen{100, "one"}, seen{200, long}, seen{300, "three"})
	out := filepath.Join(t.TempDir(), "out.pcap")
	inEveryMode(t, func(t *testing.T, mode pcap.Mode) {
		r := newRig(t, 16, pcap.Config{Files: []string{in}, Out: out, Mode: mode, Epoch: 1_000})
		if n, err := r.d.Rx(0, r.b); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := r.d.Tx(7, r.b); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		r.audit()
		r.b.Reset()
		if s := r.d.Info().Stats; s.TxPackets != 3 || s.TxBytes != uint64(len(long)+8) {
			t.Errorf("%+v", s)
		}
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		want := []seen{{1_007, "one"}, {1_007, long}, {1_007, "three"}}
		if d := cmp.Diff(want, readCapture(t, out)); d != "" {
			t.Error(d)
		}
	})
}

func TestDriverReportsAFailedOutput(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	in := writeCapture(t, seen{100, string(make([]byte, 1000))})
	r := newRig(t, 16, pcap.Config{Files: []string{in}, Out: "/dev/full", Laps: -1})
	for range 1000 {
		r.d.Rx(0, r.b)
		n, err := r.d.Tx(0, r.b)
		r.b.Consume(n)
		r.d.Release(r.b)
		if err != nil {
			r.audit()
			if r.d.Close() == nil {
				t.Error("Close says nothing")
			}
			return
		}
	}
	t.Error("a full disk was not noticed")
}

func TestDriverAllocatesNothingPerPacket(t *testing.T) {
	var packets []seen
	for i := range 300 {
		packets = append(packets, seen{int64(i), string(make([]byte, 60+i))})
	}
	path := writeCapture(t, packets...)
	for _, mode := range []pcap.Mode{pcap.Preload, pcap.Resident} {
		for _, rate := range []pcap.Rate{{}, {Packets: 1e12}} {
			r := newRig(t, 1024, pcap.Config{Files: []string{path}, Mode: mode, Laps: -1, Rate: rate})
			now := clock.Time(0)
			allocs := testing.AllocsPerRun(100, func() {
				now += 1000
				r.d.Rx(now, r.b)
				r.d.Release(r.b)
			})
			if allocs != 0 {
				t.Errorf("%v at %v: %v allocations in a batch", mode, rate, allocs)
			}
		}
	}
	var many []seen
	for i := range 200 * 256 {
		many = append(many, seen{int64(i), "0123456789abcdef"})
	}
	r := newRig(t, 1024, pcap.Config{Files: []string{writeCapture(t, many...)}, Out: filepath.Join(t.TempDir(), "o.pcapng")})
	allocs := testing.AllocsPerRun(100, func() {
		r.d.Rx(0, r.b)
		n, _ := r.d.Tx(0, r.b)
		if n != 256 {
			t.Fatalf("sent %d", n)
		}
		r.b.Reset()
	})
	if allocs != 0 {
		t.Errorf("stream to file: %v allocations in a batch", allocs)
	}
}

// TestImpairLeavesLongPacketsWithTheWrappedDriver has packets of three frames wait in a driver that
// drops what the batch could never hold: that there is little room now must not look like that.
func TestImpairLeavesLongPacketsWithTheWrappedDriver(t *testing.T) {
	const total = 50
	all := make([]seen, total)
	for i := range all {
		all[i] = seen{int64(i), string(make([]byte, 2048*(1+i%3)))}
	}
	r := newRig(t, 64, pcap.Config{Files: []string{writeCapture(t, all...)}, StampNow: true})
	profile, err := pmd.ParseProfile("delay=1ms")
	if err != nil {
		t.Fatal(err)
	}
	im, err := pmd.NewImpair(r.d, pmd.ImpairConfig{Profile: profile, Pool: r.pool, Hold: 7})
	if err != nil {
		t.Fatal(err)
	}
	for now := clock.Time(0); ; now += 100_000 {
		_, err := im.Rx(now, r.b)
		if r.audit(im, held{r.b}); errors.Is(err, io.EOF) {
			break
		}
		r.pool.PutBatch(r.b)
	}
	if s := im.Info().Stats; s.RxPackets != total || s.RxInvalid != 0 {
		t.Errorf("%+v, want all %d", s, total)
	}
}

func BenchmarkDriverRx(b *testing.B) {
	path := testpcaps.File(b, "jumbo.pcap")
	for _, mode := range everyMode {
		b.Run(mode.String(), func(b *testing.B) {
			r := newRig(b, 4096, pcap.Config{Files: []string{path}, Mode: mode, Laps: -1, StampNow: true})
			b.ReportAllocs()
			n := 0
			for n < b.N {
				got, err := r.d.Rx(0, r.b)
				if err != nil {
					b.Fatal(err)
				}
				n += got
				r.d.Release(r.b)
			}
			s := r.d.Info().Stats
			b.SetBytes(int64(s.RxBytes / s.RxPackets))
			b.ReportMetric(float64(s.RxPackets)/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}
