package cuda

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// engineBed is an engine on a driver without a GPU, packets for it, and the CPU engine to compare with.
type engineBed struct {
	t      testing.TB
	drv    *hostkern.Driver // nil on a GPU
	dev    *Device
	e      *Engine
	arena  *packet.Arena
	rng    *rand.Rand
	oracle *gpukern.CPU
	lost   chan error
	flows  map[uint32]uint32 // slots by those of the oracle; nil where flows are not asked for

	inside []expected
	done   [16]*packet.Batch
	count  int // batches that came back

	matches int // in them

	packets, batches uint64 // that went in
}

// expected is a batch inside and what it must come back as.
type expected struct {
	b *packet.Batch
	d []packet.Desc
	m []packet.Match

	searched uint64 // Batch.Searched
}

const bedFrames = 512

// opener opens a device; the driver is nil where that is a GPU.
type opener func(t testing.TB) (*Device, *hostkern.Driver)

func openFakeOnly(t testing.TB) (*Device, *hostkern.Driver) { return openFake(t) }
func openGPUOnly(t testing.TB) (*Device, *hostkern.Driver)  { return openGPU(t), nil }

// onBoth runs a test on the driver without a GPU, and on the GPU where there is one.
func onBoth(t *testing.T, f func(t *testing.T, on opener)) {
	t.Run("fake", func(t *testing.T) { f(t, openFakeOnly) })
	t.Run("gpu", func(t *testing.T) { f(t, openGPUOnly) })
}

func newEngineBed(t *testing.T, change func(*Config)) *engineBed {
	t.Helper()
	return newEngineBedOn(t, openFakeOnly, change)
}

func newEngineBedOn(t testing.TB, on opener, change func(*Config)) *engineBed {
	t.Helper()
	b := &engineBed{t: t, rng: rand.New(rand.NewPCG(1, 2)), lost: make(chan error, 4)}
	b.dev, b.drv = on(t)
	b.arena = &packet.Arena{Mem: offHeap(t, bedFrames<<11), Shift: 11}
	for i := range bedFrames {
		fillFrame(b.rng, b.arena.Mem[i<<11:][:2048])
	}
	cfg := Config{
		Config: gpukern.Config{Depth: 6, Tables: someTables(t, 1)}, Arena: b.arena, Slots: 2, Copy: 1024, Bulk: 700,
		Lifetime: 50 * time.Millisecond, Patience: 20 * time.Second, threads: 32, Lost: func(err error) { b.lost <- err },
	}
	if change != nil {
		change(&cfg)
	}
	if b.drv == nil {
		cfg.threads, cfg.searchThreads = 0, 0
		if cfg.Lifetime == time.Hour { // no GPU waits that long for a test that dies
			cfg.Lifetime, cfg.Patience, cfg.every = 0, 0, 0
		}
	}
	b.oracle = gpukern.NewCPU(cfg.Config)
	var err error
	if b.e, err = NewEngine(b.dev, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// fillFrame writes a packet: UDP or TCP over IPv4 or IPv6, sometimes damaged, with ports from a few.
func fillFrame(rng *rand.Rand, p []byte) {
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	proto := []byte{wire.ProtoTCP, wire.ProtoUDP}[rng.IntN(2)]
	l4 := 14 + 20
	if rng.IntN(2) == 0 {
		binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv4)
		copy(p[14:], []byte{0x45, 0, 0, 80, 0, 0, 0, 0, 64, proto, 0, 0, 10, byte(rng.IntN(4)), 0, 1, 10, 9, byte(rng.IntN(4)), 1})
		binary.BigEndian.PutUint16(p[24:], wire.Fold(wire.Sum(p[14:34], 0)))
	} else {
		binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv6)
		copy(p[14:], []byte{0x60, 0, 0, 0, 0, 60, proto, 64, 0x20, 1, 0xd, 0xb8, byte(rng.IntN(4))})
		l4 = 14 + 40
	}
	p[l4+12] = 0x50
	binary.BigEndian.PutUint16(p[l4+2:], uint16(80+rng.IntN(4)))
	if proto == wire.ProtoUDP {
		binary.BigEndian.PutUint16(p[l4+4:], 60)
	}
	if rng.IntN(4) == 0 {
		p[rng.IntN(60)] ^= byte(1 << rng.IntN(8))
	}
}

// someTables compiles tables that differ by seed in every answer.
func someTables(t testing.TB, seed int) gpukern.Tables {
	t.Helper()
	var rules []acl.Rule
	for range seed { // rules that nothing matches move the others' numbers
		rules = append(rules, acl.Rule{Proto: 253})
	}
	for port := uint16(80); port < 84; port++ {
		rules = append(rules, acl.Rule{DstPorts: acl.PortRange(port, port)})
	}
	acl, err := acl.Compile(append(rules, acl.Rule{}))
	if err != nil {
		t.Fatal(err)
	}
	routes := []lpm.Route{
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), NextHop: uint16(100 * seed)},
		{Prefix: netip.MustParsePrefix("::/0"), NextHop: uint16(100*seed + 1)},
		{Prefix: netip.MustParsePrefix("10.9.2.0/24"), NextHop: uint16(100*seed + 2)},
	}
	lpm, err := lpm.Compile(routes)
	if err != nil {
		t.Fatal(err)
	}
	return gpukern.Tables{ACL: acl, Routes: lpm}
}

// load gives new tables to the engine and to the oracle.
func (b *engineBed) load(tables gpukern.Tables) {
	b.t.Helper()
	if err := b.e.Load(tables); err != nil {
		b.t.Fatal(err)
	}
	if err := b.oracle.Load(tables); err != nil {
		b.t.Fatal(err)
	}
}

// batch makes a batch of n descriptors, in memory of the engine's or on the heap.
func (b *engineBed) batch(n int, own bool) *packet.Batch {
	batch := packet.NewBatch(b.arena, max(n, 1))
	if own {
		batch = b.e.NewBatch(b.arena, max(n, 1))
	}
	b.fill(batch, n)
	return batch
}

// fill puts n descriptors into a batch; some packets have several.
func (b *engineBed) fill(batch *packet.Batch, n int) {
	batch.Reset()
	for i := range n {
		d := packet.Desc{
			Off: uint32(b.rng.IntN(bedFrames)) << 11, Len: uint16(60 + b.rng.IntN(60)), Port: 3, Stamp: b.rng.Uint32(),
			Hash: b.rng.Uint32(), Rule: 77, L4: 5, // what an earlier pass left
		}
		if b.rng.IntN(16) == 0 && i+1 < n {
			d.Flags |= packet.FlagMore
		}
		batch.Append(d)
	}
}

// submit gives the engine a batch; false says that it is full.
func (b *engineBed) submit(batch *packet.Batch) bool {
	b.t.Helper()
	before := slices.Clone(batch.D)
	err := b.e.Submit(batch)
	if errors.Is(err, gpukern.ErrFull) {
		return false
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.packets += uint64(len(before))
	b.batches++
	want := &packet.Batch{Arena: b.arena, D: before}
	if !b.e.cfg.Null {
		if err := b.oracle.Submit(want); err != nil {
			b.t.Fatal(err)
		}
		var back [1]*packet.Batch
		b.oracle.Poll(back[:])
	}
	b.inside = append(b.inside, expected{batch, want.D, want.Matches, want.Searched})
	return true
}

// poll takes what is finished and compares it; it returns what came.
func (b *engineBed) poll() []*packet.Batch {
	b.t.Helper()
	n := b.e.Poll(b.done[:])
	for _, got := range b.done[:n] {
		if len(b.inside) == 0 || b.inside[0].b != got {
			b.t.Fatal("a batch came back out of order")
		}
		b.compare(got.D, b.inside[0].d)
		if got.Searched != b.inside[0].searched {
			b.t.Fatalf("batch %d: searched for set %d, want %d", b.count, got.Searched, b.inside[0].searched)
		}
		if !slices.Equal(got.Matches, b.inside[0].m) {
			b.t.Fatalf("batch %d: %d matches, want %d:\n%v\n%v", b.count, len(got.Matches), len(b.inside[0].m), got.Matches, b.inside[0].m)
		}
		b.matches += len(got.Matches)
		b.inside = b.inside[1:]
		b.count++
	}
	return b.done[:n]
}

func (b *engineBed) compare(got, want []packet.Desc) {
	b.t.Helper()
	if len(got) != len(want) {
		b.t.Fatalf("batch %d: %d descriptors, want %d", b.count, len(got), len(want))
	}
	if b.flows != nil {
		b.sameFlows(got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			b.t.Fatalf("batch %d of %d, packet %d:\n got %+v\nwant %+v", b.count, len(got), i, got[i], want[i])
		}
	}
}

// drain polls until nothing is inside.
func (b *engineBed) drain() {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); len(b.inside) > 0; time.Sleep(50 * time.Microsecond) {
		b.poll()
		if time.Now().After(end) {
			b.t.Fatalf("%d batches do not come back", len(b.inside))
		}
	}
}

func (b *engineBed) healthy() {
	b.t.Helper()
	if f := b.e.Info().Fault; f != "" {
		b.t.Fatalf("the device was given up: %s", f)
	}
}

func TestEngineFindsWhatTheCPUFinds(t *testing.T) { onBoth(t, testFinds) }

func testFinds(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	for _, n := range []int{0, 1, 31, 32, 33, 255, 256, 257, 600, 699, 700, 1000} {
		for _, own := range []bool{false, true} {
			b.submit(b.batch(n, own))
			b.drain()
		}
	}
	b.healthy()
	if got := b.e.Info(); got.Name != "cuda" || got.Device != b.dev.Info().Name || got.Ops != gpukern.OpsHeader || got.Depth != 6 || got.Redone != 0 {
		t.Errorf("%+v", got)
	}
}
