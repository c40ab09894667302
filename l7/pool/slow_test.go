package pool

import (
	"math"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// near reports whether got of n draws is within five standard deviations of the share q.
func near(got, n int, q float64) bool {
	return math.Abs(float64(got)-float64(n)*q) <= 5*math.Sqrt(float64(n)*q*(1-q))+2
}

// shares picks at each second of a ramp of ten and compares the share of backend j with that of a weight that grows
// linearly from a tenth.
func shares(t *testing.T, p *Pool, start clock.Time, others int) {
	t.Helper()
	const n = 20_000
	for s := 0.5; s <= 11; s++ {
		f := min(1, max(0.1, s/10))
		now := start + clock.Time(s*float64(second))
		if got := tally(p, now, n)["j"]; !near(got, n, f/(float64(others)+f)) {
			t.Errorf("after %.1f s the share is %.4f, want %.4f", s, float64(got)/n, f/(float64(others)+f))
		}
	}
}

// A backend's share grows over the time of slow start, however it came to take requests.
func TestASlowStartIsARamp(t *testing.T) {
	for _, balance := range all {
		t.Run(balance.String(), func(t *testing.T) {
			o := Options{Balance: balance, SlowStart: 10 * time.Second, Outlier: &Outlier{Errors: 3, Down: time.Minute}}
			p := newPool(t, o, same(9))
			if got := tally(p, 0, 900); got["a"] < 50 {
				t.Errorf("the backends of New start slowly: %v", got)
			}
			if err := p.Update(100*second, o, same(10)); err != nil {
				t.Fatal(err)
			}
			shares(t, p, 100*second, 9)
			j := p.ByName("j")
			j.SetHealthy(200*second, false, nil)
			j.SetHealthy(300*second, true, nil)
			shares(t, p, 300*second, 9)
			j.SetState(400*second, Draining)
			j.SetState(500*second, Active)
			shares(t, p, 500*second, 9)
			fail(j, 600*second, 3)
			if got := tally(p, 600*second, 100)["j"]; got > 0 {
				t.Fatal("not ejected")
			}
			shares(t, p, 660*second, 9)
		})
	}
}

// Keys go to a backend in slow start one after the other and stay.
func TestKeysThatCameInASlowStartStay(t *testing.T) {
	o := Options{Balance: ConsistentHash, SlowStart: 10 * time.Second}
	p := newPool(t, o, same(4))
	if err := p.Update(0, o, same(5)); err != nil {
		t.Fatal(err)
	}
	here := map[uint64]bool{}
	for s := clock.Time(0); s <= 10; s++ {
		for key := range uint64(2000) {
			b, _ := p.Pick(s*second, key, nil)
			if is := b.Name() == "e"; here[key] && !is {
				t.Fatalf("key %d left after %d s", key, s)
			} else if is {
				here[key] = true
			}
		}
	}
	if n := len(here); n < 300 || n > 500 {
		t.Errorf("%d of 2000 keys came", n)
	}
}

// Only what makes a backend take requests again begins a slow start.
func TestAnActiveBackendDoesNotStartAgain(t *testing.T) {
	p := newPool(t, Options{SlowStart: 10 * time.Second}, same(2))
	a := p.ByName("a")
	a.SetWeight(second, 2)
	a.SetState(second, Active)
	a.SetHealthy(second, true, nil)
	if s := p.Status(second).Backends[0]; s.Share != 1 {
		t.Errorf("its share is %.2f of its weight", s.Share)
	}
	if err := p.Update(second, Options{SlowStart: 10 * time.Second}, backends(3, 1)); err != nil {
		t.Fatal(err)
	}
	if s := p.Status(second).Backends[0]; s.Share != 1 {
		t.Errorf("after an update its share is %.2f of its weight", s.Share)
	}
	a.SetWeight(second, 0)
	a.ResetWeight(2 * second)
	if s := p.Status(7 * second).Backends[0]; s.Share != 0.5 {
		t.Errorf("after 5 of 10 s its share is %.2f of its weight", s.Share)
	}
	for i, state := range []State{Draining, Active} {
		list := same(2)
		list[0].State = state
		if err := p.Update(clock.Time(20+i)*second, Options{SlowStart: 10 * time.Second}, list); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Status(24 * second).Backends[0]; s.Share != 0.3 {
		t.Errorf("3 s after the configuration made it active again its share is %.2f of its weight", s.Share)
	}
}
