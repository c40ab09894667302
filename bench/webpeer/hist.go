package webpeer

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// subBits is the precision of a histogram: 32 buckets for each power of two, 3 % of a value.
const subBits = 5

// Histogram counts durations. One goroutine adds, any may read.
type Histogram struct {
	buckets [64 << subBits]atomic.Uint64
}

// bucketOf returns the bucket of a number of nanoseconds.
func bucketOf(ns uint64) int {
	shift := max(bits.Len64(ns)-subBits-1, 0)
	return shift<<subBits + int(ns>>shift)
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	b := &h.buckets[bucketOf(uint64(max(d, 0)))]
	b.Store(b.Load() + 1) // one writer
}

// Counts copies the buckets.
func (h *Histogram) Counts() []uint64 {
	c := make([]uint64, len(h.buckets))
	for i := range c {
		c[i] = h.buckets[i].Load()
	}
	return c
}

// Quantile returns the upper end of the bucket that holds the quantile q of what was added between two copies. It is 0 where
// that is nothing.
func Quantile(before, after []uint64, q float64) time.Duration {
	var all uint64
	for i := range after {
		all += after[i] - before[i]
	}
	if all == 0 {
		return 0
	}
	rank, sum := uint64(q*float64(all-1))+1, uint64(0)
	for i := range after {
		if sum += after[i] - before[i]; sum >= rank {
			return upperEnd(i)
		}
	}
	return 0
}

// Slices are quantiles of short times one after the other. Their median is what a proxy does where the machine stands still now and
// then: a pause of 20 ms decides p99 of a second, and not that of most slices. One goroutine calls Look, any may call Medians.
type Slices struct {
	Of     *Histogram
	Every  time.Duration
	last   time.Time // of the start of the slice
	before []uint64

	mu        sync.Mutex
	p99, p999 []time.Duration
}

// Look ends the slice if it is over.
func (s *Slices) Look(now time.Time) {
	if s.before != nil && now.Sub(s.last) < s.Every {
		return
	}
	after := s.Of.Counts()
	if s.before != nil {
		s.mu.Lock()
		s.p99, s.p999 = append(s.p99, Quantile(s.before, after, 0.99)), append(s.p999, Quantile(s.before, after, 0.999))
		s.mu.Unlock()
	}
	s.before, s.last = after, now
}

// Medians returns the medians of the slices that have ended since the last call.
func (s *Slices) Medians() (p99, p999 time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p99, p999 = median(s.p99), median(s.p999)
	s.p99, s.p999 = nil, nil
	return p99, p999
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

func upperEnd(bucket int) time.Duration {
	if bucket < 2<<subBits {
		return time.Duration(bucket)
	}
	shift := bucket>>subBits - 1
	return time.Duration(bucket-shift<<subBits+1)<<shift - 1
}
