package choose

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

// world is virtual time that engines under test share.
type world struct{ now int64 }

// fake is a back end in virtual time: it takes the loop's time for a batch or, where it is a device,
// works beside it.
type fake struct {
	w      *world
	info   gpukern.Info
	loop   func(n int) int64 // time of the loop that Submit takes
	device func(n int) int64 // time of the device; nil is none
	delay  int64             // from Submit to Poll at least
	refuse error
	busy   int64 // until when the device works
	inside []job
	loads  int
	work   gpukern.BackendStats
	closed bool
}

type job struct {
	b  *packet.Batch
	at int64
}

func (f *fake) Submit(b *packet.Batch) error {
	if f.closed {
		return gpukern.ErrClosed
	}
	if f.refuse != nil {
		return f.refuse
	}
	if len(f.inside) == f.info.Depth {
		return gpukern.ErrFull
	}
	f.w.now += f.loop(len(b.D))
	at := f.w.now
	if f.device != nil {
		f.busy = max(f.busy, f.w.now) + f.device(len(b.D))
		at = f.busy + f.delay
	}
	f.inside = append(f.inside, job{b, at})
	f.work.Packets += uint64(len(b.D))
	f.work.Batches++
	return nil
}

func (f *fake) Poll(done []*packet.Batch) int {
	n := 0
	for n < len(done) && len(f.inside) > 0 && f.inside[0].at <= f.w.now {
		done[n] = f.inside[0].b
		f.inside = f.inside[1:]
		n++
	}
	return n
}

func (f *fake) Load(gpukern.Tables) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.loads++
	return nil
}

func (f *fake) Info() gpukern.Info {
	i := f.info
	f.work.Name = i.Name
	i.Backends = append([]gpukern.BackendStats{f.work}, i.Backends...)
	return i
}

// Close waits for the batches inside.
func (f *fake) Close() error {
	for _, j := range f.inside {
		f.w.now = max(f.w.now, j.at)
	}
	f.closed = true
	return nil
}

// fakes returns a CPU of so many nanoseconds a packet and a GPU that takes 300 ns of the loop a batch and
// so many nanoseconds a packet beside it.
func fakes(w *world, cpu, gpu float64) (*fake, *fake) {
	c := &fake{w: w, info: gpukern.Info{Name: "cpu", Depth: 4}}
	c.loop = func(n int) int64 { return int64(cpu * float64(n)) }
	g := &fake{w: w, info: gpukern.Info{Name: "cuda", Depth: 16}, delay: 5000}
	g.loop = func(int) int64 { return 300 }
	g.device = func(n int) int64 { return int64(gpu * float64(n)) }
	return c, g
}

// always is a verdict that gives the GPU every batch.
var always = []gpukern.Calibration{{Bytes: 64, BreakEven: 1, GPU: gpukern.CostModel{FixedNs: 5000}}}

func engineOf(w *world, c, g *fake, choices []gpukern.Calibration) *Engine {
	return New(Config{CPU: c, GPU: g, Calibrations: choices, Now: func() int64 { w.now++; return w.now }})
}

func batchOf(n int) *packet.Batch {
	b := packet.NewBatch(nil, n)
	for range n {
		b.Append(packet.Desc{Len: 64})
	}
	return b
}

// drive keeps e full of batches for a time and returns the packets that came back. It fails the test where
// batches do not come back in order.
func drive(t *testing.T, w *world, e *Engine, until int64, size func() int) (packets int) {
	t.Helper()
	var sent []*packet.Batch
	next := batchOf(size())
	done := make([]*packet.Batch, 8)
	for w.now < until {
		progress := false
		if err := e.Submit(next); err == nil {
			sent = append(sent, next)
			next = batchOf(size())
			progress = true
		} else if !errors.Is(err, gpukern.ErrFull) {
			t.Fatal(err)
		}
		for _, b := range done[:e.Poll(done)] {
			if b != sent[0] {
				t.Fatal("batches came back out of order")
			}
			sent = sent[1:]
			packets += len(b.D)
			progress = true
		}
		if !progress {
			w.now += 50
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for end := w.now + 1e9; len(sent) > 0; w.now += 1000 {
		for _, b := range done[:e.Poll(done)] {
			if b != sent[0] {
				t.Fatal("batches came back out of order")
			}
			sent = sent[1:]
			packets += len(b.D)
		}
		if w.now > end {
			t.Fatalf("%d batches never came back", len(sent))
		}
	}
	return packets
}

func fixed(n int) func() int { return func() int { return n } }

const second = int64(1e9)

func TestBatchesComeBackInOrderWhoeverDidThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := new(world)
	c, g := fakes(w, 10, 12)
	g.device = func(n int) int64 { return int64(n) * int64(1+r.IntN(30)) }
	e := engineOf(w, c, g, always)
	drive(t, w, e, second/5, func() int { return 1 + r.IntN(256) })
	i := e.Info()
	if i.Backends[onCPU].Packets == 0 || i.Backends[onGPU].Packets == 0 {
		t.Errorf("only one back end worked: %+v", i.Backends)
	}
}

// TestTheSplitFindsTheBestShare compares what the engine reaches with the best of fixed shares.
func TestTheSplitFindsTheBestShare(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cpu, gpu float64
		lo, hi   float64 // share of the packets that the GPU does in the end
	}{
		{"GPU far ahead", 40, 2, 0.85, 1},
		{"GPU somewhat ahead", 20, 10, 0.5, 0.9},
		{"equal", 15, 15, 0.3, 0.75},
		{"GPU far behind", 5, 100, 0, 0.2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := new(world)
			c, g := fakes(w, tc.cpu, tc.gpu)
			e := engineOf(w, c, g, always)
			got := drive(t, w, e, second/4, fixed(256))
			// Both at once, the loop on its own packets, is the most there can be.
			ideal := float64(second/4) * (1/tc.cpu + 1/tc.gpu)
			best := max(float64(second/4)/tc.cpu, min(ideal, float64(second/4)/tc.gpu))
			if float64(got) < 0.8*best {
				t.Errorf("%.1f Mpps, want at least 0.8 of %.1f", float64(got)/1e6, best/1e6)
			}
			if s := e.climber.share; s < tc.lo || s > tc.hi {
				t.Errorf("share %.2f, want %.2f to %.2f", s, tc.lo, tc.hi)
			}
		})
	}
}

func TestNeverIsNever(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, []gpukern.Calibration{{Bytes: 64}})
	drive(t, w, e, second/100, fixed(256))
	if n := e.Info().Backends[onGPU].Packets; n != 0 {
		t.Errorf("the GPU got %d packets", n)
	}
}

func TestTheVerdictOfTheNearestSizeCounts(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, []gpukern.Calibration{{Bytes: 64}, {Bytes: 1408, BreakEven: 1}})
	small, large := batchOf(8), batchOf(8)
	for i := range large.D {
		large.D[i].Len = 1300
	}
	if e.worth(small) != 0 || e.worth(large) != 1 {
		t.Errorf("small %d, large %d", e.worth(small), e.worth(large))
	}
}

func TestSmallBatchesWaitForOneAnotherButNotLong(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, []gpukern.Calibration{{Bytes: 64, BreakEven: 100}})
	done := make([]*packet.Batch, 4)
	for range 3 {
		if err := e.Submit(batchOf(40)); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.inside) != 3 {
		t.Fatalf("120 packets of 100: the GPU has %d batches", len(g.inside))
	}
	if err := e.Submit(batchOf(40)); err != nil {
		t.Fatal(err)
	}
	at := w.now
	e.Poll(done)
	if len(g.inside) == 4 {
		t.Fatal("40 packets did not wait")
	}
	for len(e.group) > 0 && w.now < at+second {
		w.now += 100
		e.Poll(done)
	}
	if waited := time.Duration(w.now - at); waited > DefaultBudget/3 {
		t.Errorf("a lone batch waited %v", waited)
	}
}

func TestABatchThatWouldBeLateStaysOnTheCPU(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, []gpukern.Calibration{{Bytes: 64, BreakEven: 1, GPU: gpukern.CostModel{FixedNs: 99_000, PacketNs: 10}}})
	if e.worth(batchOf(64)) == 0 || e.worth(batchOf(256)) != 0 {
		t.Errorf("64: %d, 256: %d", e.worth(batchOf(64)), e.worth(batchOf(256)))
	}
}

func TestLateBatchesTakeTheGPUsShare(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	g.delay = 3 * int64(DefaultBudget)
	e := engineOf(w, c, g, always)
	drive(t, w, e, second/8, fixed(256))
	if e.climber.share > 0.2 {
		t.Errorf("share %.2f though every batch of the GPU is late", e.climber.share)
	}
}

func TestAFaultEndsTheGPUsShare(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, always)
	g.info.Fault = "lost"
	drive(t, w, e, second/10, fixed(256))
	if e.climber.share != 0 {
		t.Errorf("share %.2f after a fault", e.climber.share)
	}
	if f := e.Info().Fault; f != "lost" {
		t.Errorf("fault %q", f)
	}
}

func TestWhatTheGPURefusesTheCPUDoes(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	g.refuse = errors.New("broken")
	e := engineOf(w, c, g, always)
	if got := drive(t, w, e, second/100, fixed(64)); got == 0 {
		t.Error("nothing came back")
	}
}

// TestRefusedBatchesAreTheCPUs: the time that they take is not the GPU's.
func TestRefusedBatchesAreTheCPUs(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	g.refuse = errors.New("broken")
	e := engineOf(w, c, g, always)
	if err := e.Submit(batchOf(64)); err != nil || e.held != 1 || e.at(0).to != onCPU {
		t.Errorf("%v, %d batches, %+v", err, e.held, e.at(0))
	}
}

func TestStateKeepsToOneBackEnd(t *testing.T) {
	for _, tc := range []struct {
		choices []gpukern.Calibration
		idle    int
	}{
		{always, onCPU},
		{[]gpukern.Calibration{{Bytes: 512}}, onGPU},
		{[]gpukern.Calibration{{Bytes: 512, BreakEven: 257}}, onGPU},
	} {
		w := new(world)
		c, g := fakes(w, 10, 30)
		c.info.Ops = gpukern.OpFlow
		e := engineOf(w, c, g, tc.choices)
		drive(t, w, e, second/20, fixed(256))
		if n := e.Info().Backends[tc.idle].Packets; n != 0 {
			t.Errorf("%+v: the other back end got %d packets", tc.choices, n)
		}
	}
}

func TestLoadReachesBothAndInfoTellsBoth(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, always)
	if err := e.Load(gpukern.Tables{}); err != nil || c.loads != 1 || g.loads != 1 {
		t.Errorf("loads %d and %d, %v", c.loads, g.loads, err)
	}
	if err := e.Submit(batchOf(10)); err != nil {
		t.Fatal(err)
	}
	i := e.Info()
	if i.Name != "auto" || len(i.Calibrations) != 1 || i.Backends[onGPU] != (gpukern.BackendStats{Name: "cuda", Packets: 10, Batches: 1, Share: 1}) {
		t.Errorf("%+v", i)
	}
	if i.Backends[onCPU].Share != 0 {
		t.Errorf("the CPU has a share of %v", i.Backends[onCPU].Share)
	}
	g.info.Fault, g.info.Backends = "lost", []gpukern.BackendStats{{Name: "cpu", Packets: 7, Batches: 2, Share: 1}}
	want := []gpukern.BackendStats{{Name: "cpu", Packets: 7, Batches: 2, Share: 1}, {Name: "cuda", Packets: 10, Batches: 1}}
	if got := e.Info().Backends; !slices.Equal(got, want) {
		t.Errorf("after a loss %+v, want %+v", got, want)
	}
	if !strings.Contains(i.Calibrations[0].String(), "on the GPU from 1 packets") {
		t.Errorf("%v", &i.Calibrations[0])
	}
}

func TestAFullEngineSaysSo(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1e6)
	e := engineOf(w, c, g, always)
	n := 0
	for ; n < 100; n++ {
		if err := e.Submit(batchOf(1)); err != nil {
			if !errors.Is(err, gpukern.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if n != c.info.Depth+g.info.Depth {
		t.Errorf("%d batches went in, want %d", n, c.info.Depth+g.info.Depth)
	}
}

func TestTheEngineAllocatesNothing(t *testing.T) {
	w := new(world)
	c := gpukern.NewCPU(gpukern.Config{})
	g := gpukern.NewCPU(gpukern.Config{})
	e := New(Config{CPU: c, GPU: g, Calibrations: always, Now: func() int64 { w.now += 1000; return w.now }})
	b := batchOf(0)
	done := make([]*packet.Batch, 4)
	if n := testing.AllocsPerRun(1000, func() {
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
		for e.Poll(done) == 0 {
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestTheGPUGetsItsShareOfTheBatches(t *testing.T) {
	w := new(world)
	c, g := fakes(w, 10, 1)
	e := engineOf(w, c, g, always)
	for _, share := range []float64{0.25, 0.5, 0.875, 1} {
		e.climber.share, e.credit = share, 0
		n := 0
		for range 1000 {
			if e.nextIsGPU() {
				n++
			}
		}
		if n != int(1000*share) {
			t.Errorf("share %v: %d batches of 1000", share, n)
		}
	}
}
