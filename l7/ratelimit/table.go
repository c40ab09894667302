package ratelimit

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

const (
	ways  = 8 // places of a bucket
	mean  = 4 // keys of a bucket, with as many keys as the table is for
	spill = 5 // keys that the first bucket of a key has before the second is looked at
	locks = 64
	// hugeLeast is from how many bytes on a table asks for huge pages: one of fewer stays in the caches.
	hugeLeast = 4 << 20
	// claimed is the time of a place that gets another key at the moment.
	claimed = math.MinInt64
)

// bucket has the keys in one cache line and their times in the next, which processors fetch with it: most look-ups read one of each.
//
//	0    8                64   72              128
//	+----+----+ ... +----+----+----+ ... +----+
//	|key0|key1|     |key7|tat0|tat1|     |tat7|    a place is keyN with tatN
//	+----+----+ ... +----+----+----+ ... +----+
type bucket struct {
	keys [ways]atomic.Uint64 // 0 is none
	tats [ways]atomic.Int64  // theoretical arrival times
}

// place is where a key is in the table; the zero value is nowhere.
type place struct {
	key *atomic.Uint64
	tat *atomic.Int64
}

// table has no pointers, so that the collector does not read it.
type table struct {
	buckets  []bucket
	entering *[locks]struct {
		sync.Mutex
		_ [56]byte // a cache line each
	}
}

func newTable(keys int) table {
	t := table{buckets: make([]bucket, max(2, (keys+mean-1)/mean))}
	t.adviseHuge()
	t.entering = new([locks]struct {
		sync.Mutex
		_ [56]byte
	})
	return t
}

// adviseHuge asks for huge pages, as each look-up is in another place: with small ones it costs a walk of page tables beside the cache
// line, on a virtual machine one of two levels. It is a hint: a kernel without them has the same table, slower.
func (t *table) adviseHuge() {
	if size := len(t.buckets) * int(unsafe.Sizeof(bucket{})); size >= hugeLeast { // an object of its own, which begins with a page
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&t.buckets[0])), size), unix.MADV_HUGEPAGE)
	}
}

// of returns the two buckets of a key, which are different ones: by the high bits of two products (Lemire, "Fast Random Integer
// Generation in an Interval", 2019).
func (t *table) of(key uint64) (a, b *bucket) {
	n := uint64(len(t.buckets))
	i, _ := bits.Mul64(key, n)
	j, _ := bits.Mul64(key*0x9e3779b97f4a7c15, n-1)
	if j >= i {
		j++
	}
	return &t.buckets[i], &t.buckets[j]
}

// find returns the place of a key. Nearly all are in their first bucket, see spill: the second is not read ahead.
func (t *table) find(key uint64) place {
	a, b := t.of(key)
	if p := a.find(key); p.tat != nil {
		return p
	}
	return b.find(key)
}

// find returns the place of a key in the bucket.
func (b *bucket) find(key uint64) place {
	b.tats[0].Load() // the line with the time begins to load with that of the keys: with many keys both miss the caches
	for i := range b.keys {
		if b.keys[i].Load() == key {
			return place{&b.keys[i], &b.tats[i]}
		}
	}
	return place{}
}

// enter gives a key a place, with its first time; false where it has one. The lock is one of the key's, so that no two goroutines
// enter it: places are taken from keys of other locks by a swap of their time.
func (t *table) enter(now clock.Time, key uint64, tat clock.Time, evicted *atomic.Uint64) bool {
	l := &t.entering[key%locks]
	l.Lock()
	defer l.Unlock()
	if t.find(key).tat != nil {
		return false
	}
	a, b := t.of(key)
	for {
		p, old := freer(now, a, b)
		if old == claimed || !p.tat.CompareAndSwap(old, claimed) {
			wait()
			continue
		}
		if clock.Time(old) > now {
			evicted.Add(1)
		}
		p.key.Store(key)
		p.tat.Store(int64(tat))
		return true
	}
}

// freer returns a free place of the first bucket while that has few keys, else of the bucket that has more of them, or, where there is
// none, that of the key which has the least to lose.
func freer(now clock.Time, a, b *bucket) (p place, tat int64) {
	p, tat, free := a.scan(now)
	if free > ways-spill {
		return p, tat
	}
	q, other, more := b.scan(now)
	if more > free || free == 0 && more == 0 && other < tat {
		return q, other
	}
	return p, tat
}

// scan returns the place whose time is the earliest, and how many are free.
func (b *bucket) scan(now clock.Time) (p place, tat int64, free int) {
	tat = math.MaxInt64
	for i := range b.tats {
		t := b.tats[i].Load()
		if t == claimed {
			continue
		}
		if clock.Time(t) <= now {
			free++
		}
		if t < tat {
			p, tat = place{&b.keys[i], &b.tats[i]}, t
		}
	}
	if p.tat == nil { // eight goroutines take them all at once
		return place{&b.keys[0], &b.tats[0]}, claimed, 0
	}
	return p, tat, free
}

// wait lets the goroutine go on that has claimed a place: it needs a few instructions, but its thread may not run.
func wait() { runtime.Gosched() }
