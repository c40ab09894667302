package clock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = Time(time.Millisecond)

// firing is one call of Advance's callback.
type firing struct {
	id uint32
	at Time
}

// run advances w to `to` in steps of at most `step` and returns what fired, with the time of the
// Advance that fired it.
func run(w *Wheel, from, to, step Time) (got []firing) {
	for now := from; now < to; {
		now = min(now+step, to)
		w.Advance(now, func(id uint32) { got = append(got, firing{id, now}) })
	}
	return got
}

func TestTimersFireInOrderAndNeverEarly(t *testing.T) {
	w := NewWheel(8, time.Millisecond, 0)
	w.Arm(0, 5*ms)
	w.Arm(1, 5*ms+1) // rounds up to the next tick
	w.Arm(2, 64*ms)  // the first slot of level 1
	w.Arm(3, 63*ms)
	w.Arm(4, 4096*ms)
	w.Arm(5, 300_000*ms)
	w.Arm(6, 7*ms)
	w.Stop(6)
	w.Arm(7, 100*ms)
	w.Arm(7, 3*ms) // moved
	got := run(w, 0, 400_000*ms, ms)
	want := []firing{{7, 3 * ms}, {0, 5 * ms}, {1, 6 * ms}, {3, 63 * ms}, {2, 64 * ms}, {4, 4096 * ms}, {5, 300_000 * ms}}
	if !slices.Equal(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
	if w.Armed() != 0 || w.Next() != Never {
		t.Errorf("afterwards %d armed, next %d", w.Armed(), w.Next())
	}
}

func TestATimerInThePastFiresAtTheNextTick(t *testing.T) {
	w := NewWheel(1, time.Millisecond, 1000*ms)
	w.Arm(0, 3*ms)
	if got := run(w, 1000*ms, 1002*ms, ms); !slices.Equal(got, []firing{{0, 1001 * ms}}) {
		t.Errorf("fired %v", got)
	}
}

// TestZeroIsArbitrary runs the same timers on clocks that start anywhere: only differences mean
// anything.
func TestZeroIsArbitrary(t *testing.T) {
	want := []firing{{0, 1 * ms}, {1, 1 * ms}, {2, 5 * ms}, {3, 70 * ms}}
	for _, start := range []Time{0, 1000 * ms, -3 * ms, -1000 * ms, -1<<63 + 10*ms, -1 << 62} {
		w := NewWheel(5, time.Millisecond, start)
		zero := w.at(0)
		w.Arm(0, start) // has passed
		w.Arm(1, max(start-5*ms, -1<<63+ms))
		w.Arm(2, zero+5*ms)
		w.Arm(3, zero+70*ms)
		w.Arm(4, Never)
		if next := w.Next(); next != zero+ms {
			t.Errorf("from %d: Next is %d", start, next)
		}
		var got []firing
		for _, f := range run(w, zero, zero+100*ms, ms) {
			got = append(got, firing{f.id, f.at - zero})
		}
		slices.SortFunc(got, func(a, b firing) int { return int(a.id) - int(b.id) })
		if !slices.Equal(got, want) {
			t.Errorf("from %d: fired %v, want %v", start, got, want)
		}
		if w.Armed() != 1 {
			t.Errorf("from %d: the timer that never fires is gone", start)
		}
	}
}

func TestATimerBeyondTheHorizonStillFiresOnTime(t *testing.T) {
	w := NewWheel(1, time.Millisecond, 0)
	at := Time(3*horizon) * ms
	w.Arm(0, at)
	var fired []Time
	for now := Time(0); len(fired) == 0 && now <= at+ms; {
		now = w.Next()
		w.Advance(now, func(uint32) { fired = append(fired, now) })
	}
	if !slices.Equal(fired, []Time{at}) {
		t.Errorf("fired at %v, want %v", fired, at)
	}
}

func TestFireMayArmAndStopOthers(t *testing.T) {
	w := NewWheel(3, time.Millisecond, 0)
	for id := range uint32(3) {
		w.Arm(id, 2*ms)
	}
	var got []uint32
	w.Advance(2*ms, func(id uint32) {
		got = append(got, id)
		w.Stop(1)       // still in the slot that is firing
		w.Arm(id, 2*ms) // due now: must wait for the next tick
	})
	if !slices.Equal(got, []uint32{0, 2}) {
		t.Errorf("fired %v, want 0 and 2 once each", got)
	}
}

// TestAgainstASortedList compares the wheel with the obvious form over random operations and
// steps of very different lengths.
func TestAgainstASortedList(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		const n = 40
		start := Time(rnd.Int64N(1 << 45))
		w, now := NewWheel(n, time.Millisecond, start), start
		due := map[uint32]Time{}
		for range 500 {
			id := uint32(rnd.IntN(n))
			switch rnd.IntN(4) {
			case 0, 1:
				at := now + Time(rnd.Int64N(1<<(10+rnd.IntN(36))))
				w.Arm(id, at)
				due[id] = at
			case 2:
				w.Stop(id)
				delete(due, id)
			case 3:
				next := now + Time(rnd.Int64N(1<<(15+rnd.IntN(28))))
				check(t, w, due, now, next)
				now = next
			}
			if w.Armed() != len(due) {
				t.Fatalf("seed %d: %d armed, want %d", seed, w.Armed(), len(due))
			}
			for _, at := range due {
				if first := w.Next(); first >= at+ms {
					t.Fatalf("seed %d: Next says %d, a timer is due at %d", seed, first, at)
				}
			}
		}
	}
}

// check advances the wheel and compares what fires with the list: every timer whose tick has come,
// none other.
func check(t *testing.T, w *Wheel, due map[uint32]Time, from, to Time) {
	t.Helper()
	w.Advance(to, func(id uint32) {
		at, ok := due[id]
		if !ok || at > to {
			t.Fatalf("timer %d fired at %d, due %d (armed %v)", id, to, at, ok)
		}
		delete(due, id)
	})
	for id, at := range due {
		if tick := (at + ms - 1) / ms; tick <= to/ms && at > from {
			t.Fatalf("timer %d due at %d did not fire by %d", id, at, to)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	w, now := NewWheel(100, time.Millisecond, 0), Time(0)
	fire := func(uint32) {}
	if n := testing.AllocsPerRun(1000, func() {
		w.Arm(uint32(now)%100, now+50*ms)
		now += ms
		w.Advance(now, fire)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArmAndFire(b *testing.B) {
	const n = 1 << 20
	w, now := NewWheel(n, time.Millisecond, 0), Time(0)
	rnd := rand.New(rand.NewPCG(1, 1))
	for id := range uint32(n) {
		w.Arm(id, Time(rnd.Int64N(int64(60*time.Second))))
	}
	fire := func(id uint32) { w.Arm(id, now+Time(id%60000)*ms) }
	for b.Loop() {
		now += ms
		w.Advance(now, fire)
	}
}

// TestAGrownWheelKeepsItsTimers grows a wheel while timers run on every level.
func TestAGrownWheelKeepsItsTimers(t *testing.T) {
	w := NewWheel(1, time.Millisecond, 0)
	w.Arm(0, 5*ms)
	for n := uint32(1); n < 200; n++ {
		w.Grow(int(n) + 1)
		w.Grow(1) // never shrinks
		w.Arm(n, Time(n)*37*ms)
	}
	got := run(w, 0, 10_000*ms, ms)
	if len(got) != 200 || got[0] != (firing{0, 5 * ms}) {
		t.Fatalf("fired %d, the first %v", len(got), got[0])
	}
	for n := uint32(1); n < 200; n++ {
		if got[n] != (firing{n, Time(n) * 37 * ms}) {
			t.Fatalf("fired %v as number %d", got[n], n)
		}
	}
}
