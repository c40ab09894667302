package pool

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// Turns are shared by all loops: of n times the cycle each backend has exactly its weight, in whatever order loops come.
func TestLoopsShareOneCycle(t *testing.T) {
	p := newPool(t, Options{}, backends(5, 1, 1))
	const loops, picks = 8, 7 * 500
	var n [3]atomic.Int64
	parallel(loops, func(int) {
		for range picks {
			b, _ := p.Pick(0, 0, nil)
			n[b.Name()[0]-'a'].Add(1)
		}
	})
	for i, w := range []int64{5, 1, 1} {
		if got := n[i].Load(); got != w*loops*picks/7 {
			t.Errorf("backend %d has %d picks", i, got)
		}
	}
}

// parallel runs f n times at once.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// Eight loops pick, start, fail and end while an operator, probes and reloads change everything. What was counted balances in the
// end, limits of connections hold throughout, and those of requests within one for each loop.
func TestManyLoopsAndChanges(t *testing.T) {
	for _, balance := range all {
		t.Run(balance.String(), func(t *testing.T) {
			t.Parallel()
			const loops, rounds, limit = 8, 3000, 3
			o := Options{
				Balance: balance, HashSize: 1021, SlowStart: time.Second, PanicThreshold: 30, Notify: func(Event) {},
				PerBackend: Limits{Requests: limit, Connections: limit, Pending: limit},
				Outlier:    &Outlier{Errors: 3, Down: time.Second, SuccessRate: &SuccessRate{MinRequests: 5, MinBackends: 2}},
			}
			p := newPool(t, o, same(6))
			var ended atomic.Bool
			var now atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				change(p, o, &now, &ended)
			}()
			var answered, refused atomic.Int64
			parallel(loops, func(i int) {
				rng := rand.New(rand.NewPCG(uint64(i), 5))
				for range rounds {
					if request(t, p, rng, clock.Time(now.Add(int64(time.Millisecond))), limit+loops) {
						answered.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
			ended.Store(true)
			<-done
			t.Logf("%d answered, %d refused", answered.Load(), refused.Load())
			if p.Requests() != 0 || p.conns.Load() != 0 || p.pending.Load() != 0 || answered.Load() < loops*rounds/50 {
				t.Errorf("in the end %d requests, %d connections, %d pending; %d were answered", p.Requests(), p.conns.Load(), p.pending.Load(), answered.Load())
			}
			for _, b := range p.Backends() {
				if !b.Idle() {
					t.Errorf("%s is not idle", b.Name())
				}
			}
		})
	}
}

// request is one of a loop, with a retry.
func request(t *testing.T, p *Pool, rng *rand.Rand, now clock.Time, limit int) bool {
	var tried Tried
	for {
		b, _ := p.Pick(now, rng.Uint64(), &tried)
		if b == nil || tried.Len() > 0 && !p.RetryAllowed(now) {
			return false
		}
		b.Start(now)
		if n := b.Requests(); n > limit {
			t.Errorf("%d requests", n)
		}
		if got, _ := p.FromToken(now, p.Token(b)); got != nil && got.Name() != b.Name() {
			t.Errorf("the token of %s is that of %s", b.Name(), got.Name())
		}
		connected := b.ConnOpened()
		if connected {
			b.ConnClosed()
		}
		if b.PendingAdded() {
			b.PendingRemoved()
		}
		o := Outcome{Status: 200, Latency: time.Millisecond, Retry: tried.Len() > 0}
		if rng.IntN(3) == 0 {
			o.Failure = Failure(1 + rng.IntN(int(Failures)-1))
		}
		tried.Add(b)
		b.Done(now, o)
		if o.Failure == NoFailure {
			return true
		}
	}
}

// change changes a pool until it has ended. The first backend stays, so that some requests are answered however rarely it runs.
func change(p *Pool, o Options, now *atomic.Int64, ended *atomic.Bool) {
	rng := rand.New(rand.NewPCG(9, 9))
	for !ended.Load() {
		at := clock.Time(now.Load())
		list := p.Backends()
		b := list[1+rng.IntN(len(list)-1)]
		switch rng.IntN(8) {
		case 0:
			_ = p.Update(at, o, same(4+rng.IntN(3)))
		case 1:
			b.SetState(at, Draining)
		case 2:
			b.SetWeight(at, rng.IntN(4))
		case 3:
			b.SetHealthy(at, false, nil)
		case 4:
			b.SetHealthy(at, true, nil)
		case 5:
			b.ResetWeight(at)
		case 6:
			b.ResetState(at)
		case 7:
			p.Status(at)
		}
	}
}

func TestNothingIsAllocatedForARequest(t *testing.T) {
	for _, balance := range all {
		p := newPool(t, Options{
			Balance: balance, SlowStart: time.Second, Outlier: &Outlier{SuccessRate: &SuccessRate{}}, Limits: Limits{Requests: 100},
		}, same(100))
		for i := range 95 {
			if i > 0 {
				p.Backends()[i].SetHealthy(0, false, nil) // so that search is reached
			}
		}
		token := p.Token(p.Backends()[0])
		key := uint64(0)
		var text []byte
		if n := testing.AllocsPerRun(2000, func() {
			key++
			var tried Tried
			now := clock.Time(key) * second / 100
			b, _ := p.Pick(now, key, &tried)
			b.Start(now)
			tried.Add(b)
			b.Done(now, Outcome{Status: 200, Latency: time.Millisecond})
			p.RetryAllowed(now)
			if b, _ := p.FromToken(now, token); b == nil {
				t.Fatal("no session")
			}
			text = b.AppendToken(text[:0])
		}); n != 0 {
			t.Errorf("%v: %v allocations", balance, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, balance := range all {
		for _, n := range []string{"10", "1000"} {
			b.Run(balance.String()+"/"+n, func(b *testing.B) {
				backends := 10
				if n == "1000" {
					backends = 1000
				}
				p := newPool(b, Options{Balance: balance, Outlier: &Outlier{}}, same(backends))
				var key uint64
				for b.Loop() {
					key++
					if b, _ := p.Pick(1, key, nil); b == nil {
						panic("none")
					}
				}
			})
		}
	}
	b.Run("half_unhealthy/1000", func(b *testing.B) {
		p := newPool(b, Options{}, same(1000))
		for i := range 500 {
			p.Backends()[i].SetHealthy(0, false, nil)
		}
		for b.Loop() {
			p.Pick(1, 0, nil)
		}
	})
	b.Run("one_healthy/1000", func(b *testing.B) {
		p := newPool(b, Options{}, same(1000))
		for i := range 999 {
			p.Backends()[i].SetHealthy(0, false, nil)
		}
		for b.Loop() {
			p.Pick(1, 0, nil)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	p := newPool(b, Options{Outlier: &Outlier{}}, same(10))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			b, _ := p.Pick(1, 0, nil)
			b.Start(1)
			b.Done(2, Outcome{Status: 200, Latency: time.Millisecond})
		}
	})
}

func BenchmarkFromToken(b *testing.B) {
	p := newPool(b, Options{}, same(1000))
	token := p.Token(p.Backends()[7])
	for b.Loop() {
		p.FromToken(1, token)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, balance := range all {
		b.Run(balance.String(), func(b *testing.B) {
			list := same(1000)
			for i := range list {
				list[i].Weight = 1 + i%10
			}
			p := newPool(b, Options{Balance: balance}, list)
			for b.Loop() {
				_ = p.Update(1, Options{Balance: balance}, list)
			}
		})
	}
}
