package kernbench

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

// opNamed returns an operation of the catalogue.
func opNamed(t *testing.T, name string) *Op {
	t.Helper()
	for i := range catalogue {
		if catalogue[i].Name == name {
			o := catalogue[i]
			return &o
		}
	}
	t.Fatalf("no operation %s", name)
	return nil
}

// newTrial prepares a small trial, with few routes.
func newTrial(t *testing.T, op, size string, packets int) *trial {
	t.Helper()
	o := opNamed(t, op)
	o.routes4, o.routes6, o.patterns = min(o.routes4, 500), min(o.routes6, 100), min(o.patterns, 50)
	tables, err := makeTables(o, 1, func() [][]byte { return nil })
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLoad(packets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	c, err := prepare(o, size, tables, l, &Config{Packets: packets})
	if err != nil {
		t.Fatal(err)
	}
	if o.text() { // whole literals, two to each packet
		for i, d := range l.desc {
			p, list := l.arena.View().Bytes(&d), tables.lists.Literals
			copy(p[len(p)-128:], list[i%len(list)].Bytes)
			copy(p[len(p)-64:], list[(i+1)%len(list)].Bytes)
		}
		if c.want, err = expect(l, o, tables); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestEveryOperationIsMeasuredOnTheCPUAndVerified(t *testing.T) {
	rep, err := Run(t.Context(), Config{
		Ops:   []string{"null", "parse", "checksum", "hash", "acl-100", "flow-1k", "header", "literals-100"},
		Sizes: []string{Size64, SizeIMIX, SizeHostile, SizeCapture}, Packets: 300, Time: time.Millisecond, Batches: []int{32, 256, 1000},
		Engine: "cpu", Cores: 2, Version: "v",
	})
	if err != nil || len(rep.Failed()) > 0 || rep.Stopped {
		t.Fatalf("%v, %v", err, rep.Failed())
	}
	if len(rep.Rows) != 8*2-1+1 || rep.Machine.Cores < 1 || rep.Version != "v" {
		t.Errorf("%d rows of %+v", len(rep.Rows), rep.Machine)
	}
	if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "--captures") {
		t.Errorf("notes %q", rep.Notes)
	}
	for _, r := range rep.Rows {
		if r.Packets != 300 || r.Sampled == 0 || r.MeanBytes < 60 {
			t.Errorf("%+v", r)
		}
		f := r.Figure(PathOne)
		if f == nil || f.Runs < 4 || f.Verified != uint64(300*f.Runs) || f.Packets != f.Verified-300 || f.BytesPerSecond <= f.PacketsPerSecond || f.Best < f.PacketsPerSecond || f.Seconds <= 0 {
			t.Errorf("%s, %s: %+v", r.Op, r.Size, f)
		}
		if r.Op == "literals-100" && r.Size == SizeHostile && r.Matches == 0 {
			t.Error("nothing is found in adversarial text")
		}
	}
	if len(rep.Latency) != 2*2+0 { // null and header, 32 and 256 packets; the load has no 1000
		t.Errorf("%d latencies", len(rep.Latency))
	}
	for _, l := range rep.Latency {
		if l.N < 100 || l.P50 <= 0 || l.P99 < l.P50 || l.Least > l.P50 || l.Verified == 0 {
			t.Errorf("%+v", l)
		}
	}
}

// Each kind of wrong result must be seen: a field that is not written, and one that is written wrong.
func TestEveryWrongResultIsSeen(t *testing.T) {
	for _, tc := range []struct {
		op, what string
		bend     func(b *packet.Batch)
	}{
		{"header", "", func(*packet.Batch) {}},
		{"header", "l3", func(b *packet.Batch) { b.D[3].L3++ }},
		{"header", "l4", func(b *packet.Batch) { b.D[3].L4 = poisoned.L4 }},
		{"header", "payload", func(b *packet.Batch) { b.D[3].Payload = 0 }},
		{"header", "hash", func(b *packet.Batch) { b.D[3].Hash ^= 1 << 31 }},
		{"header", "rule", func(b *packet.Batch) { b.D[3].Rule++ }},
		{"header", "next hop", func(b *packet.Batch) { b.D[3].NextHop++ }},
		{"header", "flags", func(b *packet.Batch) { b.D[3].Flags ^= packet.FlagL4ChecksumOK }},
		{"header", "protocol", func(b *packet.Batch) { b.D[3].Proto++ }},
		{"header", "flow", func(b *packet.Batch) { b.D[3].Flow = 0 }},
		{"header", "port", func(b *packet.Batch) { b.D[3].Port = 0 }},
		{"header", "stamp", func(b *packet.Batch) { b.D[3].Stamp = 0 }},
		{"header", "verdict", func(b *packet.Batch) { b.D[3].Verdict = packet.Forward }},
		{"header", "off", func(b *packet.Batch) { b.D[3].Off++ }},
		{"header", "len", func(b *packet.Batch) { b.D[3].Len-- }},
		{"header", "hash", func(b *packet.Batch) { b.D[len(b.D)-1].Hash = poisoned.Hash }},
		{"flow-1k", "", func(*packet.Batch) {}},
		{"flow-1k", "direction", func(b *packet.Batch) { b.D[3].Flow ^= 1 }},
		{"flow-1k", "slot", func(b *packet.Batch) { b.D[3].Flow = b.D[4].Flow&^1 | b.D[3].Flow&1 }},
		{"literals-100", "", func(*packet.Batch) {}},
		{"literals-100", "number of matches", func(b *packet.Batch) { b.Matches = b.Matches[:len(b.Matches)-1] }},
		{"literals-100", "match", func(b *packet.Batch) { b.Matches[1].End++ }},
		{"literals-100", "match", func(b *packet.Batch) { b.Matches[1].D++ }},
		{"literals-100", "match", func(b *packet.Batch) { b.Matches[1].Rule++ }},
	} {
		size := Size64
		if tc.op == "literals-100" {
			size = SizeHostile
		}
		c := newTrial(t, tc.op, size, 64)
		p := path{name: "bent", batch: 64, open: func(c *trial) (runner, error) {
			e, err := openCPU(c.op, c.tables)
			if err != nil {
				return nil, err
			}
			e.Engine = &bent{Engine: e.Engine, bend: tc.bend}
			return &single{engine: e, batch: 64, laps: 1}, nil
		}}
		f := c.measure(t.Context(), &p, time.Millisecond)
		if tc.what == "" {
			if f.Error != "" || f.Verified == 0 {
				t.Errorf("%s: %+v", tc.op, f)
			}
			continue
		}
		if !strings.Contains(f.Error, ErrWrong.Error()) || !strings.Contains(f.Error, tc.what) || f.PacketsPerSecond != 0 || f.Verified != 0 {
			t.Errorf("%s, %s: %+v", tc.op, tc.what, f)
		}
		l := c.latency(t.Context(), &p, 64, time.Millisecond)
		if !strings.Contains(l.Error, tc.what) || l.N != 0 {
			t.Errorf("%s, %s: latency %+v", tc.op, tc.what, l)
		}
	}
}

// bent spoils every batch that its engine gives back.
type bent struct {
	gpukern.Engine
	bend func(b *packet.Batch)
}

func (e *bent) Poll(done []*packet.Batch) int {
	n := e.Engine.Poll(done)
	for _, b := range done[:n] {
		e.bend(b)
	}
	return n
}

func TestAStuckEngineIsAnErrorAndDoesNotHang(t *testing.T) {
	was := stuck
	stuck = 20 * time.Millisecond
	defer func() { stuck = was }()
	c := newTrial(t, "parse", Size64, 64)
	p := path{name: "stuck", batch: 32, open: func(c *trial) (runner, error) {
		e, err := openCPU(c.op, c.tables)
		e.Engine = silent{e.Engine}
		return &single{engine: e, batch: 32, laps: 1}, err
	}}
	if f := c.measure(t.Context(), &p, time.Millisecond); !strings.Contains(f.Error, ErrStuck.Error()) {
		t.Errorf("%+v", f)
	}
}

type silent struct{ gpukern.Engine }

func (silent) Poll([]*packet.Batch) int { return 0 }

func TestPacketsThatAreMadeAreWhole(t *testing.T) {
	for _, tc := range []struct{ op, size string }{{"checksum", Size64}, {"checksum", SizeIMIX}, {"checksum", Size1408}, {"lpm", Size64}} {
		c := newTrial(t, tc.op, tc.size, 600)
		b := &packet.Batch{Arena: c.load.arena.View(), D: slices.Clone(c.load.desc)}
		kernref.Reference(b, gpukern.OpParse|gpukern.OpChecksum, kernref.Lists{})
		six := 0
		for i, d := range b.D {
			if d.Flags.Has(packet.FlagIPv6) {
				six++
			}
			if d.Flags&(packet.FlagMalformed|packet.FlagTruncated) != 0 || !d.Flags.Has(packet.FlagL4ChecksumOK) || d.Payload == 0 {
				t.Fatalf("%s, %s: packet %d: %+v", tc.op, tc.size, i, d)
			}
		}
		if (six > 0) != (tc.op == "lpm") {
			t.Errorf("%s: %d packets of IPv6", tc.op, six)
		}
	}
}

func TestTheSameSeedMakesTheSame(t *testing.T) {
	a, b := newTrial(t, "header", SizeIMIX, 200), newTrial(t, "header", SizeIMIX, 200)
	if !bytes.Equal(a.load.arena.Mem, b.load.arena.Mem) || !slices.Equal(a.load.desc, b.load.desc) || !slices.Equal(Rules(3, 50), Rules(3, 50)) ||
		!slices.Equal(Routes(3, 50, 20), Routes(3, 50, 20)) {
		t.Error("two runs differ")
	}
	if slices.Equal(Rules(3, 50), Rules(4, 50)) {
		t.Error("two seeds do not")
	}
}

func TestFlowTablesAreFilledBeforeTheyAreTimed(t *testing.T) {
	c := newTrial(t, "flow-1k", Size64, 200)
	r, err := onePath().open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	w, err := r.work(c.load, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(c.load.arena.Mem)
	if err := c.fill(r, w); err != nil {
		t.Fatal(err)
	}
	if n := r.(*single).flows.Len(); n < 990 || n > 1000 {
		t.Errorf("%d flows in the table", n)
	}
	if !bytes.Equal(before, c.load.arena.Mem) {
		t.Error("the load is not what it was")
	}
}

// capturesOf returns a folder with a capture of packets.
func capturesOf(t *testing.T, packets ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	w, err := capture.Create(filepath.Join(dir, "a.pcap"), capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.Write(&capture.Record{Data: p, Len: len(p), LinkType: capture.LinkTypeEthernet}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// oddPackets returns what captures have and made loads have not: packets that are cut, fragments, damaged ones, and some longer than a slot.
func oddPackets() (all [][]byte) {
	f := &traffic{seed: 9}
	for i := range 12 {
		p := make([]byte, []int{64, 199, 3001}[i%3])
		t := f.flow(i)
		if i%4 == 3 {
			t.src, t.dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		}
		t.write(p)
		all = append(all, p)
		for n := range 60 {
			all = append(all, bytes.Clone(p[:1+n]))
		}
		for _, at := range []int{14, 17, 20, 21, 26, 38} { // version, length, fragment, address, UDP length
			all = append(all, bytes.Clone(p))
			all[len(all)-1][at] ^= 0x21
		}
		all = append(all, append(bytes.Clone(p), 1, 2, 3), bytes.Clone(p[:len(p)-1]))
	}
	return all
}

// Every path finds in real packets, of all kinds, what the CPU form found.
func TestPacketsOfCapturesAreMeasuredAndVerified(t *testing.T) {
	odd := oddPackets()
	rep, err := Run(t.Context(), Config{
		Ops: []string{"checksum", "header", "literals-100"}, Sizes: []string{SizeCapture}, Packets: 2 * len(odd),
		Time: time.Millisecond, Batches: []int{32}, Engine: "cpu", Cores: 2, Captures: capturesOf(t, odd...),
	})
	if err != nil || len(rep.Failed()) > 0 || len(rep.Rows) != 3 {
		t.Fatalf("%v, %v", err, rep.Failed())
	}
}

func TestCapturesAreRepeatedUntilTheLoadIsFull(t *testing.T) {
	dir := capturesOf(t, make([]byte, 60), make([]byte, 3000), make([]byte, 5000))
	if err := os.WriteFile(filepath.Join(dir, "b.pcap"), []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := newLoad(120)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.captured(dir, 40); err != nil {
		t.Fatal(err)
	}
	var lens []uint16
	for i, d := range l.desc {
		lens = append(lens, d.Len)
		if d.Off%slot != 0 || i > 0 && int(d.Off) < int(l.desc[i-1].Off)+int(l.desc[i-1].Len) || int(d.Off)/frameSize != (int(d.Off)+int(d.Len)-1)/frameSize {
			t.Errorf("packet %d at %d", i, d.Off)
		}
	}
	if len(lens) != 40 || !slices.Equal(lens[:7], []uint16{60, 3000, 5000, 60, 3000, 5000, 60}) || l.desc[39].Off < frameSize {
		t.Errorf("lengths %v", lens)
	}
	if err := l.captured(t.TempDir(), 10); !errors.Is(err, ErrNoCaptures) {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestCapturesThatAreAskedForMustBeThere: an empty table would look like a result.
func TestCapturesThatAreAskedForMustBeThere(t *testing.T) {
	empty, some := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(some, "a.pcapng"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		cfg  Config
		want error
	}{
		{Config{}, nil},
		{Config{Quick: true}, nil}, // which takes captures where there are some
		{Config{Captures: some}, nil},
		{Config{Sizes: []string{SizeCapture}, Captures: some}, nil},
		{Config{Captures: empty}, ErrNoCaptures},
		{Config{Sizes: []string{Size64, SizeCapture}}, ErrNoCaptures},
		{Config{Captures: filepath.Join(empty, "none")}, fs.ErrNotExist},
		{Config{Captures: filepath.Join(some, "a.pcapng")}, unix.ENOTDIR},
	} {
		if err := tc.cfg.Check(); !errors.Is(err, tc.want) {
			t.Errorf("%v %q: %v, want %v", tc.cfg.Sizes, tc.cfg.Captures, err, tc.want)
		}
	}
}

func TestCtrlCEndsWithWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	rep, err := Run(ctx, Config{Ops: []string{"parse", "hash"}, Sizes: []string{Size64}, Packets: 64, Time: time.Millisecond, Engine: "cpu", Cores: 2, Progress: func(at, of int, what string) {
		if n++; n == 3 { // tables, one core, all cores
			cancel()
		}
		if of != 4 || at >= of {
			t.Errorf("%d of %d: %s", at, of, what)
		}
	}})
	if err != nil || !rep.Stopped || len(rep.Rows) != 1 || rep.Rows[0].Figure(PathOne) == nil {
		t.Errorf("%v, %+v", err, rep)
	}
}

func TestTheMeterAddsUpWhatRAPLTells(t *testing.T) {
	was := raplRoot
	raplRoot = t.TempDir()
	defer func() { raplRoot = was }()
	set := func(zone, name, text string) {
		dir := filepath.Join(raplRoot, zone)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	set("intel-rapl:0", "energy_uj", "900000\n")
	set("intel-rapl:0", "max_energy_range_uj", "1000000\n")
	set("intel-rapl:0:0", "energy_uj", "5\n") // a part of the package
	m := openMeter(func() (float64, bool) { return 300, true })
	m.begin()
	set("intel-rapl:0", "energy_uj", "100000\n") // it wrapped
	m.end()
	m.spent = 100 * time.Millisecond
	if cpu, gpu := m.watts(); cpu < 1.99 || cpu > 2.01 || gpu != 300 {
		t.Errorf("%v W, %v W; want 0.2 J in 0.1 s, 300 W", cpu, gpu)
	}
	m.reset()
	if cpu, gpu := m.watts(); cpu != 0 || gpu != 0 {
		t.Errorf("%v W, %v W of nothing", cpu, gpu)
	}
}
