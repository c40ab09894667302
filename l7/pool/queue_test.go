package pool

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// queue is a backend that serves one request after the other, in virtual time.
type queue struct {
	free clock.Time // when it has served all that it has
	mean float64    // service time in seconds, exponentially distributed
}

// end is a request that ends.
type end struct {
	at clock.Time
	b  *Backend
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any          { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

// serve sends n requests at the given rate per second, with exponential gaps, and returns the times that the later two
// thirds of them took, in seconds and rising order.
func serve(p *Pool, queues map[*Backend]*queue, rate float64, n int) (times []float64) {
	rng := rand.New(rand.NewPCG(7, 11))
	var open ends
	now := 0.0
	for i := range n {
		now += rng.ExpFloat64() / rate
		at := clock.Time(now * float64(second))
		for len(open) > 0 && open[0].at <= at {
			e := heap.Pop(&open).(end)
			e.b.Done(e.at, Outcome{Status: 200})
		}
		b, _ := p.Pick(at, rng.Uint64(), nil)
		b.Start(at)
		q := queues[b]
		q.free = max(q.free, at).Add(time.Duration(rng.ExpFloat64() * q.mean * float64(time.Second)))
		heap.Push(&open, end{q.free, b})
		if i > n/3 {
			times = append(times, q.free.Sub(at).Seconds())
		}
	}
	slices.Sort(times)
	return times
}

// queuesOf gives each backend a queue with the mean service time that f returns.
func queuesOf(p *Pool, f func(i int) float64) map[*Backend]*queue {
	m := map[*Backend]*queue{}
	for i, b := range p.Backends() {
		m[b] = &queue{mean: f(i)}
	}
	return m
}

func mean(times []float64) (sum float64) {
	for _, x := range times {
		sum += x
	}
	return sum / float64(len(times))
}

// The mean time in a system of many queues is known (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing",
// 2001, theorem 1 and corollary 1): 1/(1-l) of random choice, and with two choices the sum of l^(2^i - 2) over i from 1.
func TestTwoChoicesHaveTheTimesOfTheory(t *testing.T) {
	const load, backends, n = 0.8, 200, 200_000
	two := 0.0
	for i := 1.0; i < 10; i++ {
		two += math.Pow(load, math.Pow(2, i)-2)
	}
	for _, x := range []struct {
		balance   Balance
		want, off float64
	}{{Random, 1 / (1 - load), 0.05}, {LeastRequest, two, 0.02}} {
		p := newPool(t, Options{Balance: x.balance}, same(backends))
		got := mean(serve(p, queuesOf(p, func(int) float64 { return 1 }), load*backends, n))
		t.Logf("%v: %.3f service times, theory %.3f", x.balance, got, x.want)
		if math.Abs(got/x.want-1) > x.off {
			t.Errorf("%v: %.3f service times, theory %.3f", x.balance, got, x.want)
		}
	}
}

// Where some backends are slower than their weights say, least request avoids them, and the others load them the more.
func TestLeastRequestBearsUnevenBackends(t *testing.T) {
	got := map[Balance][2]float64{}
	for _, balance := range []Balance{Random, RoundRobin, LeastRequest} {
		p := newPool(t, Options{Balance: balance}, same(20))
		// Two of twenty serve at half the speed: an even share of 9 requests per second keeps them busy 90 % of the time.
		times := serve(p, queuesOf(p, func(i int) float64 { return []float64{2, 1}[min(i/2, 1)] }), 9, 60_000)
		got[balance] = [2]float64{mean(times), times[len(times)*99/100]}
		t.Logf("%v: mean %.2f, 99th percentile %.2f service times", balance, got[balance][0], got[balance][1])
	}
	for _, other := range []Balance{Random, RoundRobin} {
		for i := range 2 {
			if got[LeastRequest][i] > got[other][i]/1.5 {
				t.Errorf("least request: %v, %v: %v", got[LeastRequest], other, got[other])
			}
		}
	}
}

// Where weights are those of the speeds, shares are near them: a light backend has a bit less, since one request weighs more
// there than with a heavy one.
func TestLeastRequestFollowsWeightsUnderLoad(t *testing.T) {
	p := newPool(t, Options{Balance: LeastRequest}, backends(1, 2, 4, 8))
	serve(p, queuesOf(p, func(i int) float64 { return 1 / float64(int(1)<<i) }), 0.8*15, 100_000)
	total := 0.0
	s := p.Status(0)
	for _, b := range s.Backends {
		total += float64(b.Statuses[2])
	}
	for _, b := range s.Backends {
		share, want := float64(b.Statuses[2])/total, float64(b.Weight)/15
		t.Logf("weight %d: %.4f of the requests, %.4f by weight", b.Weight, share, want)
		if math.Abs(share/want-1) > 0.2 {
			t.Errorf("weight %d: %.4f of the requests, want %.4f", b.Weight, share, want)
		}
	}
}
