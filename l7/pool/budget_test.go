package pool

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// drain takes retries until the budget denies one.
func drain(p *Pool, now clock.Time) (n int) {
	for p.RetryAllowed(now) {
		requests(p, now, 1)
		n++
	}
	return n
}

func requests(p *Pool, now clock.Time, n int) {
	b := p.Backends()[0]
	for range n {
		b.Start(now)
		b.Done(now, Outcome{Status: 200})
	}
}

func TestRetriesAreAShareOfRequests(t *testing.T) {
	p := newPool(t, Options{RetryBudget: RetryBudget{MinPerSecond: -1}}, same(1))
	if n := drain(p, 5*second); n != 0 {
		t.Errorf("%d retries without a request", n)
	}
	requests(p, 5*second, 1000)
	if n := drain(p, 6*second); n != 200 {
		t.Errorf("%d retries for 1000 requests", n)
	}
	requests(p, 7*second, 50)
	if n := drain(p, 7*second); n != 10 {
		t.Errorf("%d retries for 50 more", n)
	}
	if n := drain(p, 14*second); n != 0 {
		t.Errorf("%d retries after the same window", n)
	}
	requests(p, 100*second, 100)
	if n := drain(p, 105*second); n != 20 {
		t.Errorf("%d retries for 100 requests after a pause", n)
	}
	requests(p, 200*second, 100)
	if n := drain(p, 211*second); n != 0 {
		t.Errorf("%d retries for requests that have left the window", n)
	}
}

func TestAFewRetriesAreAlwaysAllowed(t *testing.T) {
	p := newPool(t, Options{}, same(1)) // 10 a second over 10 s
	if n := drain(p, -3*second); n != 100 {
		t.Errorf("%d at the start", n)
	}
	if n := drain(p, 2*second); n != 0 {
		t.Errorf("%d more in the window", n)
	}
	if n := drain(p, 8*second); n != 100 {
		t.Errorf("%d after the window", n)
	}
	if s := p.Status(8 * second); s.Retries != 200 || s.RetriesDenied != 3 {
		t.Errorf("counted %d and %d", s.Retries, s.RetriesDenied)
	}
	if err := p.Update(8*second, Options{RetryBudget: RetryBudget{Percent: -1, MinPerSecond: -1}}, same(1)); err != nil {
		t.Fatal(err)
	}
	requests(p, 9*second, 1000)
	if n := drain(p, 9*second); n != 0 {
		t.Errorf("%d where none are allowed", n)
	}
	if err := p.Update(9*second, Options{RetryBudget: RetryBudget{Percent: -1, MinPerSecond: 5, Window: 2 * time.Second}}, same(1)); err != nil {
		t.Fatal(err)
	}
	if n := drain(p, 9*second); n != 10 {
		t.Errorf("%d with another window", n)
	}
}

// Against the obvious form: a list of all requests and retries. The window moves in tenths, so the budget lies between
// those of nine and ten tenths.
func TestTheBudgetAgainstAList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p := newPool(t, Options{RetryBudget: RetryBudget{MinPerSecond: 1}}, same(1))
		var made, retried []clock.Time
		within := func(list []clock.Time, now clock.Time, window time.Duration) (n int) {
			for _, at := range list {
				if now.Sub(at) < window {
					n++
				}
			}
			return n
		}
		now := clock.Time(rng.Int64N(1 << 40))
		for range 3000 {
			now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			if rng.IntN(500) == 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(8 * time.Second))))
			}
			if rng.IntN(3) > 0 {
				requests(p, now, 1)
				made = append(made, now)
				continue
			}
			lo, hi := 9*time.Second, 10*time.Second
			got := p.RetryAllowed(now)
			if got && within(retried, now, lo) >= within(made, now, hi)/5+10 {
				t.Fatalf("seed %d: allowed beyond the budget", seed)
			}
			if !got && within(retried, now, hi) < within(made, now, lo)/5+10 {
				t.Fatalf("seed %d: denied within the budget", seed)
			}
			if got {
				b := p.Backends()[0]
				b.Start(now)
				b.Done(now, Outcome{Status: 200, Retry: true})
				retried = append(retried, now)
			}
		}
		if s := p.Status(now); int(s.Retries) != len(retried) || int(s.Backends[0].Retries) != len(retried) {
			t.Errorf("counted %d and %d of %d", s.Retries, s.Backends[0].Retries, len(retried))
		}
	}
}
