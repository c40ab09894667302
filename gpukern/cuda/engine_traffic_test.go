package cuda

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// traffic sends n batches of random sizes in all the ways that there are, with tables that change.
func (b *engineBed) traffic(n int) {
	b.t.Helper()
	tables := []gpukern.Tables{someTables(b.t, 1), someTables(b.t, 2), someTables(b.t, 3)}
	var free []*packet.Batch
	for range b.e.cfg.Depth + 1 {
		free = append(free, b.e.NewBatch(b.arena, 128))
	}
	end := time.Now().Add(2 * time.Minute)
	for sent := 0; sent < n || len(b.inside) > 0; {
		if time.Now().After(end) {
			b.t.Fatalf("%d of %d batches after two minutes", sent, n)
		}
		for _, got := range b.poll() {
			if cap(got.D) == 128 && len(free) < cap(free) {
				free = append(free, got)
			}
		}
		if sent == n {
			continue
		}
		if b.rng.IntN(40) == 0 {
			b.load(tables[b.rng.IntN(len(tables))])
		}
		var batch *packet.Batch
		if size := b.size(); size <= 128 && len(free) > 0 {
			batch, free = free[len(free)-1], free[:len(free)-1]
			b.fill(batch, size)
		} else {
			batch = b.batch(size, false)
		}
		for !b.submit(batch) {
			for _, got := range b.poll() {
				if cap(got.D) == 128 && len(free) < cap(free) {
					free = append(free, got)
				}
			}
		}
		sent++
	}
}

// size is mostly that of a burst, sometimes that of many.
func (b *engineBed) size() int {
	switch b.rng.IntN(50) {
	case 0:
		return b.rng.IntN(1000)
	case 1:
		return 0
	}
	return 1 + b.rng.IntN(64)
}

func TestEngineUnderTraffic(t *testing.T) { onBoth(t, testTraffic) }

func testTraffic(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	n := 3000
	switch {
	case b.drv == nil:
		n = 100000
	case testing.Short():
		n = 500
	}
	b.traffic(n)
	b.healthy()
	if b.count != n {
		t.Errorf("%d batches came back, want %d", b.count, n)
	}
}

// TestEngineAcrossLaunches has a kernel live for a millisecond, about as long as a batch takes here: many
// batches are posted to one and served by the next.
func TestEngineAcrossLaunches(t *testing.T) { onBoth(t, testAcrossLaunches) }

func testAcrossLaunches(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, func(c *Config) { c.Lifetime = time.Millisecond })
	if b.drv == nil {
		b.traffic(50000)
		b.healthy()
		return
	}
	b.traffic(400)
	b.healthy()
	if n := b.drv.Calls("cuLaunchKernel"); n < 50 {
		t.Errorf("%d launches: the kernel was not relaunched", n)
	}
}

// unkept has neither the keeper nor the kernel's end come in between.
func unkept(c *Config) {
	c.Lifetime, c.Patience, c.every, c.Bulk = time.Hour, time.Hour, time.Hour, 1<<20
}

// TestEngineCallsNoDriver counts calls while small batches pass: there is none.
func TestEngineCallsNoDriver(t *testing.T) {
	b := newEngineBed(t, unkept)
	calls := func() (n int) {
		for _, name := range exports {
			n += b.drv.Calls(name)
		}
		return n
	}
	before := calls()
	for range 300 {
		b.submit(b.batch(8, true))
		b.submit(b.batch(300, false))
		b.drain()
	}
	if n := calls() - before; n != 0 || before == 0 {
		t.Errorf("%d calls of the driver for 600 batches, %d before", n, before)
	}
}

func TestEngineIsFullAtItsDepth(t *testing.T) {
	b := newEngineBed(t, func(c *Config) { c.Depth, c.Slots = 3, 2 })
	for i := range 3 {
		if !b.submit(b.batch(300, i%2 == 0)) {
			t.Fatalf("full after %d batches", i)
		}
	}
	// Polls of nothing take nothing out.
	if n := b.e.Poll(nil); n != 0 {
		t.Errorf("Poll of no batches returned %d", n)
	}
	if b.submit(b.batch(1, false)) {
		t.Error("a fourth batch went in at a depth of 3")
	}
	b.drain()
	if !b.submit(b.batch(1, false)) {
		t.Error("still full")
	}
	b.drain()
}

func TestEngineRefuses(t *testing.T) {
	b := newEngineBed(t, nil)
	other := packet.NewBatch(&packet.Arena{Mem: make([]byte, 4096), Shift: 11}, 1)
	other.Append(packet.Desc{Len: 60})
	if err := b.e.Submit(other); !errors.Is(err, ErrArena) {
		t.Errorf("a batch elsewhere: %v", err)
	}
	if err := b.e.Submit(b.batch(1025, false)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch too large to copy: %v", err)
	}
	b.submit(b.batch(1024, false)) // and one that is not
	b.drain()
	if err := b.e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.e.Submit(b.batch(1, false)); !errors.Is(err, gpukern.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := b.e.Load(gpukern.Tables{}); !errors.Is(err, gpukern.ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	if err := b.e.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func TestNewEngineRefuses(t *testing.T) {
	d, _ := openFake(t)
	arena := &packet.Arena{Mem: offHeap(t, 1<<16), Shift: 11}
	for name, cfg := range map[string]Config{
		"no arena":                {},
		"more slots than allowed": {Arena: arena, Slots: 65},
		"more slots than blocks":  {Arena: arena, Slots: 64}, // 4 multiprocessors run 8 of 256 threads each
	} {
		if e, err := NewEngine(d, cfg); err == nil {
			t.Errorf("%s: no error", name)
			e.Close()
		}
	}
}

// TestEngineKeepsChainsWhole has batches whose packets have many descriptors: no packet is cut in two.
func TestEngineKeepsChainsWhole(t *testing.T) { onBoth(t, testChains) }

func testChains(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, func(c *Config) { c.Bulk = 1 << 20 })
	for _, chain := range []int{2, 33, 100, 255, 256, 257, 600} {
		batch := b.e.NewBatch(b.arena, 700)
		b.fill(batch, 700)
		for i := range batch.D {
			batch.D[i].Flags &^= packet.FlagMore
			if i%chain != chain-1 {
				batch.D[i].Flags |= packet.FlagMore
			}
		}
		batch.D[699].Flags &^= packet.FlagMore
		b.submit(batch)
		b.drain()
	}
	b.healthy()
}

func TestCut(t *testing.T) {
	d := make([]packet.Desc, 600)
	more := func(from, to int) {
		clear(d)
		for i := from; i < to; i++ {
			d[i].Flags = packet.FlagMore
		}
	}
	for _, c := range []struct{ from, to, n, want int }{
		{0, 0, 256, 256},
		{0, 0, 257, 256},
		{255, 256, 600, 255},
		{200, 300, 600, 200},
		{0, 255, 600, 256},
		{0, 256, 600, 0},
		{0, 599, 600, 0},
		{0, 199, 200, 200},
		{256, 300, 600, 256},
	} {
		more(c.from, c.to)
		if got := cut(d[:c.n]); got != c.want {
			t.Errorf("%d descriptors, a packet from %d to %d: cut at %d, want %d", c.n, c.from, c.to, got, c.want)
		}
	}
}

func TestEngineWithoutOpsTouchesNothing(t *testing.T) { onBoth(t, testNull) }

func testNull(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, func(c *Config) { c.Null = true })
	for _, n := range []int{1, 32, 700} {
		b.submit(b.batch(n, true))
		b.submit(b.batch(n, false))
		b.drain()
	}
	b.healthy()
}

func TestEngineCloseReturnsWhatIsInside(t *testing.T) { onBoth(t, testCloseInside) }

func testCloseInside(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	for _, n := range []int{10, 500, 800, 0} {
		b.submit(b.batch(n, true))
		b.submit(b.batch(n%100, false))
		if len(b.inside) == b.e.cfg.Depth {
			break
		}
	}
	if err := b.e.Close(); err != nil {
		t.Fatal(err)
	}
	for range b.inside {
		if n := b.e.Poll(b.done[:1]); n != 1 {
			t.Fatal("a batch is missing")
		}
		b.compare(b.done[0].D, b.inside[0].d)
		if b.done[0] != b.inside[0].b {
			t.Fatal("out of order")
		}
		b.inside = b.inside[1:]
	}
}

// TestEngineLoadsWhileBatchesPass replaces tables from other goroutines; each batch has the findings of
// one of them, whole.
func TestEngineLoadsWhileBatchesPass(t *testing.T) { onBoth(t, testLoads) }

func testLoads(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	tables := []gpukern.Tables{someTables(t, 1), someTables(t, 2)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := b.e.Load(tables[i]); err != nil {
					t.Error(err)
					return
				}
				b.e.Info()
			}
		})
	}
	batch := b.e.NewBatch(b.arena, 64)
	seen := [2]int{}
	for range 300 {
		b.fill(batch, 64)
		want := packet.NewBatch(b.arena, 64)
		want.D = append(want.D, batch.D...)
		if err := b.e.Submit(batch); err != nil {
			t.Fatal(err)
		}
		for b.e.Poll(b.done[:]) == 0 {
		}
		i := 0
		if next := batch.D[routed(batch.D)].NextHop; next >= 200 {
			i = 1
		}
		seen[i]++
		_ = b.oracle.Load(tables[i])
		_ = b.oracle.Submit(want)
		b.oracle.Poll(b.done[:])
		b.compare(batch.D, want.D)
	}
	close(stop)
	wg.Wait()
	b.healthy()
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("batches by tables: %v", seen)
	}
}

// routed finds a packet that was routed.
func routed(d []packet.Desc) int {
	for i := range d {
		if d[i].NextHop != 0 {
			return i
		}
	}
	return 0
}

// TestEngineUsesTheMemoryOfOldTables loads many tables: no memory is taken after the first launch.
func TestEngineUsesTheMemoryOfOldTables(t *testing.T) { onBoth(t, testOldTables) }

func testOldTables(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	before := len(b.e.loader.all)
	for i := range 30 {
		b.load(someTables(t, 1+i%3))
		b.submit(b.batch(20, true))
		b.drain()
	}
	if n := len(b.e.loader.all); n != before {
		t.Errorf("%d pieces of device memory after 30 loads, %d before", n, before)
	}
	b.healthy()
}

func TestEngineAllocatesNothing(t *testing.T) {
	b := newEngineBed(t, unkept)
	own, heap := b.batch(64, true), b.batch(64, false)
	for _, batch := range []*packet.Batch{own, heap} {
		if n := testing.AllocsPerRun(50, func() {
			if err := b.e.Submit(batch); err != nil {
				t.Fatal(err)
			}
			for b.e.Poll(b.done[:]) == 0 {
			}
		}); n != 0 {
			t.Errorf("%v allocations for a batch", n)
		}
	}
}

// TestEnginesShareADevice runs two engines over one arena, each with a kernel and tables of its own.
func TestEnginesShareADevice(t *testing.T) { onBoth(t, testShare) }

func testShare(t *testing.T, on opener) {
	b := newEngineBedOn(t, on, nil)
	cfg := b.e.cfg
	cfg.Tables = someTables(t, 3)
	second, err := NewEngine(b.dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	oracle := gpukern.NewCPU(cfg.Config)
	for range 50 {
		b.submit(b.batch(40, true))
		other, want := second.NewBatch(b.arena, 40), packet.NewBatch(b.arena, 40)
		b.fill(other, 40)
		want.D = append(want.D, other.D...)
		if err := second.Submit(other); err != nil {
			t.Fatal(err)
		}
		for second.Poll(b.done[:]) == 0 {
		}
		_ = oracle.Submit(want)
		oracle.Poll(b.done[:])
		b.compare(other.D, want.D)
		b.drain()
	}
	b.healthy()
}
