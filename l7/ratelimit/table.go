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

// place is where a key is in the table, with its theoretical arrival time. Key 0 is none.
type place struct {
	key atomic.Uint64
	tat atomic.Int64
}

// bucket is two cache lines of four places each. Keys take the first that is free, so that most look-ups read the first line alone.
//
//	0      8      16                  64                   128
//	+------+------+------+------+     +------+------+
//	| key0 | tat0 | key1 | tat1 | ... | key4 | tat4 | ...
//	+------+------+------+------+     +------+------+
type bucket [ways]place

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

// find returns the place of a key, nil where it has none. Nearly all are in their first bucket, see spill: the second is not read ahead,
// and not at all where the first has had too few keys for it. So a new key costs one cache line while a table fills.
func (t *table) find(key uint64) *place {
	a, b := t.of(key)
	for i := range a {
		p := &a[i]
		if p.key.Load() == key {
			return p
		}
		if p.tat.Load() == 0 && i < spill { // never taken, so that no later place was, as the first that is free is taken
			return nil
		}
	}
	return b.find(key)
}

// find returns the place of a key in the bucket.
func (b *bucket) find(key uint64) *place {
	for i := range b {
		if p := &b[i]; p.key.Load() == key {
			return p
		}
	}
	return nil
}

// enter gives a key a place, with its first time; false where it has one. The lock is one of the key's, so that no two goroutines
// enter it: places are taken from keys of other locks by a swap of their time.
func (t *table) enter(now clock.Time, key uint64, tat clock.Time, evicted *atomic.Uint64) bool {
	l := &t.entering[key%locks]
	l.Lock()
	defer l.Unlock()
	if t.find(key) != nil {
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
func freer(now clock.Time, a, b *bucket) (p *place, tat int64) {
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

// scan returns the first place that is free, or where there is none that whose time is the earliest, and how many are free.
func (b *bucket) scan(now clock.Time) (p *place, tat int64, free int) {
	tat = math.MaxInt64
	for i := range b {
		t := b[i].tat.Load()
		if t == claimed {
			continue
		}
		if clock.Time(t) <= now {
			if free++; free == 1 {
				p, tat = &b[i], t
			}
		} else if t < tat { // not where one is free, whose time is earlier
			p, tat = &b[i], t
		}
	}
	if p == nil { // eight goroutines take them all at once
		return &b[0], claimed, 0
	}
	return p, tat, free
}

// wait lets the goroutine go on that has claimed a place: it needs a few instructions, but its thread may not run.
func wait() { runtime.Gosched() }
