package ratelimit

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// bucketOf is the slow reference: a bucket of tokens, counted in nanoseconds of refill so that no rounding enters.
type bucketOf struct {
	spent clock.Time // that is not given back at the time of last
	last  clock.Time
}

// reference keeps every key for ever.
type reference struct {
	period, window clock.Time
	keys           map[uint64]bucketOf
}

func (r *reference) take(now clock.Time, key uint64) Result {
	b := r.keys[key]
	b.spent = max(0, b.spent-(now-b.last))
	b.last = now
	left := r.window - b.spent
	res := Result{Allowed: left >= r.period, Reset: time.Duration(b.spent)}
	if res.Allowed {
		b.spent += r.period
		res.Remaining, res.Reset = int((left-r.period)/r.period), time.Duration(b.spent)
	} else {
		res.RetryAfter = time.Duration(r.period - left)
	}
	r.keys[key] = b
	return res
}

// TestAMillionKeysAreExactInVirtualTime compares every decision, what remains and all times with the reference.
func TestAMillionKeysAreExactInVirtualTime(t *testing.T) {
	const keys = 1_000_000
	for _, opt := range []Options{
		{Requests: 10, Interval: time.Second, Burst: 3, Keys: keys},
		{Requests: 7, Interval: time.Minute, Keys: keys}, // a period that is no whole number of nanoseconds
		{Requests: 1, Interval: time.Hour, Burst: 1, Keys: keys},
	} {
		l := New(opt)
		ref := &reference{period: l.period, window: l.window, keys: map[uint64]bucketOf{}}
		r := rand.New(rand.NewPCG(1, uint64(opt.Requests)))
		names := make([]uint64, keys)
		for i := range names {
			names[i] = r.Uint64() | 1
		}
		refused, now := 0, clock.Time(1)
		for i := range 4 * keys {
			key := names[i%keys] // all of them are in use at a time
			if i >= keys {
				key = names[r.IntN(keys)]
				if r.IntN(2) == 0 {
					key = names[r.IntN(1000)] // of which some are refused
				}
			}
			now += clock.Time(r.IntN(int(opt.Interval) / keys))
			got, want := l.Take(now, key), ref.take(now, key)
			if got != want {
				t.Fatalf("%+v, request %d: %+v, want %+v", opt, i, got, want)
			}
			if !got.Allowed {
				refused++
			}
		}
		if n := l.Evicted(); n != 0 || refused < keys/100 {
			t.Errorf("%+v: %d keys were evicted, %d requests refused", opt, n, refused)
		}
	}
}

// TestMoreKeysThanThereIsRoomFor make way by what they have to lose: one that has spent most of its burst stays.
func TestMoreKeysThanThereIsRoomFor(t *testing.T) {
	l := New(Options{Requests: 10, Interval: time.Second, Keys: 1000})
	const heavy = 12345
	for range 10 {
		l.Take(1, heavy)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		l.Take(1, r.Uint64()|1)
	}
	if l.Evicted() == 0 {
		t.Error("no key was evicted")
	}
	if l.Take(1, heavy).Allowed {
		t.Error("a flood of keys gave back what another has spent")
	}
	before := l.Evicted()
	for range 4000 { // a second later all keys are free again
		l.Take(clock.Time(10*time.Second), r.Uint64()|1)
	}
	if n := l.Evicted() - before; n < 1000 || n > 3500 { // 4000 keys where 2000 have places
		t.Errorf("%d keys were evicted", n)
	}
}

// TestTheKeyZero is one like others.
func TestTheKeyZero(t *testing.T) {
	l := New(Options{Requests: 1, Interval: time.Second, Keys: 1})
	if !l.Take(5, 0).Allowed || l.Take(5, 0).Allowed {
		t.Error("the limit is not 1")
	}
}

// TestLoopsTogetherGetWhatOneMayHave where all of them ask for the same keys at once.
func TestLoopsTogetherGetWhatOneMayHave(t *testing.T) {
	const loops, keys, rounds = 4, 500, 40
	l := New(Options{Requests: 20, Interval: time.Second, Keys: keys})
	var allowed [keys]atomic.Int64
	for round := range rounds {
		now := clock.Time(round+1) * clock.Time(2*time.Second) // all is given back: places change their keys, too
		var wg sync.WaitGroup
		for loop := range loops {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(loop), uint64(round)))
				for i := range 12 * keys {
					k := (i + r.IntN(3)) % keys
					if l.Take(now, uint64(k+round%7*keys)*0x9e3779b97f4a7c15|1).Allowed {
						allowed[k].Add(1)
					}
					if i%64 == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Wait()
		for k := range allowed {
			if n := allowed[k].Swap(0); n > 20 || n < 15 {
				t.Fatalf("round %d: key %d got %d of 20", round, k, n)
			}
		}
	}
	if n := l.Evicted(); n != 0 {
		t.Errorf("%d keys were evicted", n)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	l := New(Options{Requests: 1, Interval: time.Second, Keys: 1000})
	key := uint64(1)
	if n := testing.AllocsPerRun(1000, func() { l.Take(1, key); key += 0x9e3779b97f4a7c15 }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTake has the cost of a key among a million, and the bytes of each.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int
	}{{"1 key", 1}, {"1 thousand keys", 1000}, {"1 million keys", 1_000_000}} {
		b.Run(c.name, func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			l := New(Options{Requests: 1000, Interval: time.Second, Keys: max(1000, c.keys)})
			runtime.ReadMemStats(&after)
			names := make([]uint64, c.keys)
			for i := range names {
				names[i] = rand.Uint64() | 1
				l.Take(1, names[i])
			}
			b.ReportAllocs()
			now, i := clock.Time(1), 0
			for b.Loop() {
				if i++; i == c.keys {
					i = 0
				}
				now++
				l.Take(now, names[i])
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(l.opt.Keys), "bytes/key")
		})
	}
}

// BenchmarkTakeOfNewKeys has the cost of keys that come for the first time, into a table for two million that has up to a tenth of them.
func BenchmarkTakeOfNewKeys(b *testing.B) {
	const keys = 2_000_000
	var l *Limit
	for i := range b.N {
		if i%(keys/10) == 0 {
			b.StopTimer()
			l = New(Options{Requests: 1000, Interval: time.Second, Keys: keys})
			for j := range l.table.buckets {
				l.table.buckets[j][0].tat.Store(0) // its pages are there
			}
			b.StartTimer()
		}
		l.Take(1, rand.Uint64()|1)
	}
}
