package cuda

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// goesOn has batches pass on the CPU and checks what the engine tells of its loss.
func (b *engineBed) goesOn(redone uint64) {
	b.t.Helper()
	b.drain()
	for range 20 {
		b.submit(b.batch(b.size(), b.rng.IntN(2) == 0))
		b.drain()
	}
	b.load(someTables(b.t, 5))
	b.submit(b.batch(200, true))
	b.drain()
	i := b.e.Info()
	if i.Fault == "" || i.Redone != redone {
		b.t.Errorf("fault %q, %d packets done again, want %d", i.Fault, i.Redone, redone)
	}
	cpu, gpu := i.Backends[0], i.Backends[1]
	if cpu.Name != "cpu" || cpu.Share != 1 || cpu.Packets < redone+200 || gpu.Name != "cuda" || gpu.Share != 0 {
		b.t.Errorf("%+v", i.Backends)
	}
	if cpu.Packets+gpu.Packets != b.packets || cpu.Batches+gpu.Batches != b.batches {
		b.t.Errorf("%+v of %d packets in %d batches", i.Backends, b.packets, b.batches)
	}
	select {
	case err := <-b.lost:
		if !strings.Contains(i.Fault, err.Error()) {
			b.t.Errorf("told %q, Info says %q", err, i.Fault)
		}
	case <-time.After(10 * time.Second):
		b.t.Error("nobody was told")
	}
	select {
	case err := <-b.lost:
		b.t.Errorf("told again: %v", err)
	default:
	}
}

const illegalAddress = 700

// noticed waits until the engine knows of a loss.
func (b *engineBed) noticed() {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); b.e.Info().Fault == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("the loss is not noticed")
		}
	}
}

// TestLossInFlight loses the device with batches of all kinds inside: some done, some begun, some not.
func TestLossInFlight(t *testing.T) {
	total := uint64(0)
	for round := range 8 {
		b := newEngineBed(t, nil)
		packets := uint64(0)
		for _, n := range []int{64, 10, 700, 300, 0, 33} {
			batch := b.batch(n, round%2 == 0)
			if round%3 == 0 {
				b.load(someTables(t, 2+n%2))
			}
			b.submit(batch)
			packets += uint64(n)
		}
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)
		b.drv.Lose(illegalAddress)
		b.drain()
		b.noticed()
		redone := b.e.Info().Redone
		if redone > packets {
			t.Errorf("round %d: %d of %d packets done again", round, redone, packets)
		}
		total += redone
		b.goesOn(redone)
		if err := b.e.Info().Fault; !strings.Contains(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("fault %q", err)
		}
	}
	if total == 0 {
		t.Error("the device had always done all")
	}
}

// TestLossOfAnIdleDevice is noticed without a batch.
func TestLossOfAnIdleDevice(t *testing.T) {
	b := newEngineBed(t, nil)
	b.drv.Lose(illegalAddress)
	b.noticed()
	b.goesOn(0)
}

// TestLossOfAKernelThatStandsStill has calls succeed while nothing is served.
func TestLossOfAKernelThatStandsStill(t *testing.T) {
	b := newEngineBed(t, func(c *Config) { c.Patience = time.Second })
	b.submit(b.batch(50, true))
	b.drain()
	b.drv.Lose(0) // kernels stop where they are, and calls go on to work
	b.submit(b.batch(40, true))
	b.submit(b.batch(30, false))
	b.goesOn(70)
	if f := b.e.Info().Fault; !strings.Contains(f, "makes no progress") || !errors.Is(b.dev.Lost(), ErrLost) {
		t.Errorf("fault %q, device %v", f, b.dev.Lost())
	}
	if err := b.e.Close(); err != nil {
		t.Error(err)
	}
	if err := b.dev.Close(); err != nil {
		t.Error(err)
	}
	b.drv.Faults() // the driver does not know that the device is lost, and misses what was not given back
}

// TestLossOfALaunchThatStandsStill has a large batch inside alone: no slot waits, and calls succeed.
func TestLossOfALaunchThatStandsStill(t *testing.T) {
	b := newEngineBed(t, func(c *Config) { c.Bulk, c.Patience = 500, 200*time.Millisecond })
	b.submit(b.batch(600, true))
	b.drain()
	for i := range b.e.asked {
		if asked, done := b.e.asked[i].Load(), b.e.shared.marks[i].done; asked != done {
			t.Errorf("mark %d is to say %d, and says %d", i, asked, done)
		}
	}
	b.drv.Lose(0)
	b.submit(b.batch(650, true))
	b.goesOn(650)
	if f := b.e.Info().Fault; !strings.Contains(f, "large batches make no progress") {
		t.Errorf("fault %q", f)
	}
	if err := errors.Join(b.e.Close(), b.dev.Close()); err != nil {
		t.Error(err)
	}
	b.drv.Faults() // the driver does not know that the device is lost, and misses what was not given back
}

// TestWatchSeesThatLaunchesEnd: any end of a launch is a sign, and none is awaited where none is under way.
func TestWatchSeesThatLaunchesEnd(t *testing.T) {
	marks, asked := make([]mark, 2), make([]atomic.Uint32, 2)
	w := launchWatch{limit: 3}
	look := func(want bool) {
		t.Helper()
		if got := w.stuck(marks, asked); got != want {
			t.Fatalf("stuck: %v, want %v", got, want)
		}
	}
	for range 10 {
		look(false) // nothing is under way
	}
	asked[1].Store(1)
	asked[0].Store(7)
	look(false)
	look(false)
	marks[0].done = 7 // a sign
	look(false)
	look(false)
	look(false)
	look(true)
	marks[1].done = 1
	for range 10 {
		look(false)
	}
}

// TestLossOfADeviceIsTheLossOfAllItsEngines: one notices, the others follow.
func TestLossOfADeviceIsTheLossOfAllItsEngines(t *testing.T) {
	b := newEngineBed(t, nil)
	cfg := b.e.cfg
	cfg.Lost = nil // nobody has to be told
	second, err := NewEngine(b.dev, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	b.drv.Lose(illegalAddress)
	b.noticed()
	for end := time.Now().Add(10 * time.Second); second.Info().Fault == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the second engine does not notice")
		}
	}
	b.goesOn(0)
}

// TestKeeperKeepsTheKernel has a kernel that ends after 800 ms without a beat live for two seconds.
func TestKeeperKeepsTheKernel(t *testing.T) {
	b := newEngineBed(t, func(c *Config) {
		c.Lifetime, c.Patience, c.every = time.Hour, 800*time.Millisecond, 5*time.Millisecond
	})
	before := b.drv.Calls("cuLaunchKernel")
	for range 40 {
		time.Sleep(50 * time.Millisecond)
		b.submit(b.batch(8, true))
		b.drain()
	}
	b.healthy()
	if n := b.drv.Calls("cuLaunchKernel") - before; n != 0 {
		t.Errorf("%d more launches: kernels ended", n)
	}
}

// TestLossByASlotInError has the device refuse a batch.
func TestLossByASlotInError(t *testing.T) {
	b := newEngineBed(t, unkept)
	b.submit(b.batch(50, true))
	b.drain()
	b.e.tables.Load().ptr = 0 // no tables: the kernel says so
	b.submit(b.batch(40, true))
	b.submit(b.batch(300, false))
	b.goesOn(340)
	if f := b.e.Info().Fault; !strings.Contains(f, "no valid address") {
		t.Errorf("fault %q", f)
	}
}

// TestLossByAFailedCall has calls fail that the engine makes while it runs.
func TestLossByAFailedCall(t *testing.T) {
	for _, name := range []string{"cuLaunchKernel", "cuStreamQuery"} {
		t.Run(name, func(t *testing.T) {
			b := newEngineBed(t, nil)
			b.submit(b.batch(50, true))
			b.drv.Fail(name, 1, 1)
			b.noticed()
			b.drain()
			b.goesOn(b.e.Info().Redone)
		})
	}
}

// TestLossOfABulkLaunch has the launch of a large batch fail.
func TestLossOfABulkLaunch(t *testing.T) {
	for n := 1; n <= 2; n++ { // the header pass, and the mark
		b := newEngineBed(t, unkept)
		b.e.cfg.Bulk = 500
		b.drv.Fail("cuLaunchKernel", n, 1)
		b.submit(b.batch(600, true))
		b.goesOn(600)
	}
}

// TestLossWhileTablesLoad loses the device in the middle of a load: the CPU has the tables then.
func TestLossWhileTablesLoad(t *testing.T) {
	b := newEngineBed(t, unkept)
	b.submit(b.batch(50, true))
	b.drain()
	b.drv.Lose(illegalAddress)
	b.load(someTables(t, 4))
	b.submit(b.batch(60, true))
	b.goesOn(0)
}

// TestLoadWithoutMemory is no loss: the old tables stay.
func TestLoadWithoutMemory(t *testing.T) {
	b := newEngineBed(t, unkept)
	b.e.loader.spare = nil // as for tables that have grown
	b.drv.Fail("cuMemAlloc_v2", 1, 2)
	if err := b.e.Load(someTables(t, 2)); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("Load: %v", err)
	}
	b.submit(b.batch(50, true)) // the oracle has the old tables too
	b.drain()
	b.healthy()
	b.load(someTables(t, 3))
	b.submit(b.batch(50, true))
	b.drain()
	b.healthy()
}

// TestLossAtClose loses the device with batches inside that nobody polls before Close.
func TestLossAtClose(t *testing.T) {
	b := newEngineBed(t, nil)
	for _, n := range []int{64, 700, 300} {
		b.submit(b.batch(n, true))
	}
	b.drv.Lose(illegalAddress)
	if err := b.e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	b.drain()
}

// TestLossBeforeTheFirstLaunch is an error of NewEngine, whichever call fails; nothing is left over.
func TestLossBeforeTheFirstLaunch(t *testing.T) {
	d, drv := openFake(t)
	arena := &packet.Arena{Mem: offHeap(t, 1<<16), Shift: 11}
	cfg := Config{Config: gpukern.Config{Depth: 2}, Arena: arena, threads: 32}
	failed := 0
	for n := 1; ; n++ {
		drv.Fail("", n, 1)
		e, err := NewEngine(d, cfg)
		drv.Fail("", 0, 0)
		if err == nil {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		failed++
	}
	if failed < 10 {
		t.Errorf("NewEngine failed for %d calls only", failed)
	}
}

// TestLostMemoryIsNotUsedAgain has the descriptors of batches leave the memory that a slow device may yet
// write.
func TestLostMemoryIsNotUsedAgain(t *testing.T) {
	b := newEngineBed(t, unkept)
	inside, later := b.batch(40, true), b.batch(40, true)
	b.submit(inside)
	b.e.lose(errors.New("for a test"))
	b.submit(later)
	b.drain()
	for _, batch := range []*packet.Batch{inside, later} {
		if b.e.shared.place(batch.D) != 0 || cap(batch.D) != 40 {
			t.Errorf("descriptors lie in the device's memory, or lost their room: %d", cap(batch.D))
		}
	}
	if atomic.LoadUint32(&b.e.shared.slots[0].stop) == 0 {
		t.Error("the kernel was not told to stop")
	}
}

// TestWatchCountsLooks: a slot that waits without a sign is stuck after the limit, one that moves is not.
func TestWatchCountsLooks(t *testing.T) {
	slots := make([]slot, 2)
	w := watch{last: make([]seen, 2), limit: 3}
	look := func(want int) {
		t.Helper()
		if got := w.stuck(slots); got != want {
			t.Fatalf("stuck: %d, want %d", got, want)
		}
	}
	for range 10 {
		look(-1) // nothing waits
	}
	slots[1].seq0 = 1
	look(-1)
	look(-1)
	slots[1].beat++ // a sign
	look(-1)
	look(-1)
	look(-1)
	look(1)
	slots[1].done = 1
	look(-1)
	slots[1].seq0 = 2
	look(-1)
	slots[1].done, slots[1].seq0 = 2, 3 // another batch
	look(-1)
	look(-1)
	look(-1)
	look(1)
}
