package metrics

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// Buckets are log-linear: each power of two is cut into 32 equal parts, and the values below 32
// have a bucket each.
//
//	value    0 1 2 ... 31 | 32 33 ... 63 | 64,65 66,67 ... | 128-131 ...
//	bucket   0 1 2 ... 31 | 32 33 ... 63 | 64    65    ... | 96      ...
//
// A bucket is therefore at most 1/32 of its values wide, and its middle at most 1/64 away from any
// of them.
const (
	partBits = 5
	parts    = 1 << partBits
	buckets  = (64 - partBits + 1) * parts
)

// bucketOf returns the bucket of v.
func bucketOf(v uint64) int {
	if v < parts {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - partBits
	return shift<<partBits + int(v>>shift)
}

// bucketStart returns the smallest value of bucket i and how many values it has.
func bucketStart(i int) (low, width uint64) {
	if i < parts {
		return uint64(i), 1
	}
	shift := i>>partBits - 1
	return uint64(i-shift<<partBits) << shift, 1 << shift
}

// Histogram counts values by size: in 15 KiB whatever the values, with a relative error of at most
// 1/64. One goroutine records, any may read through a Distribution.
type Histogram struct {
	_     pad
	count [buckets]atomic.Uint64
	sum   atomic.Uint64
	max   atomic.Uint64
	_     pad
}

// Record counts one value. Only the histogram's owner may call it.
func (h *Histogram) Record(v uint64) { h.RecordN(v, 1) }

// RecordN counts n values of v: one call for a batch whose packets took equally long.
func (h *Histogram) RecordN(v, n uint64) {
	c := &h.count[bucketOf(v)]
	c.Store(c.Load() + n)
	h.sum.Store(h.sum.Load() + v*n)
	if v > h.max.Load() {
		h.max.Store(v)
	}
}

// AddTo adds what was recorded to d.
func (h *Histogram) AddTo(d *Distribution) {
	for i := range h.count {
		n := h.count[i].Load()
		d.count[i] += n
		d.n += n
	}
	d.sum += h.sum.Load()
	d.max = max(d.max, h.max.Load())
}

// Distribution is a snapshot of a histogram, or the sum of several. The zero value is
// empty.
type Distribution struct {
	count       [buckets]uint64
	n, sum, max uint64
}

// Merge adds o to d.
func (d *Distribution) Merge(o *Distribution) {
	for i, n := range &o.count {
		d.count[i] += n
	}
	d.n += o.n
	d.sum += o.sum
	d.max = max(d.max, o.max)
}

// Count returns the number of values.
func (d *Distribution) Count() uint64 { return d.n }

// Sum returns the exact sum of the values, modulo 2^64.
func (d *Distribution) Sum() uint64 { return d.sum }

// Max returns the exact largest value.
func (d *Distribution) Max() uint64 { return d.max }

// Mean returns the exact mean, 0 of nothing.
func (d *Distribution) Mean() float64 {
	if d.n == 0 {
		return 0
	}
	return float64(d.sum) / float64(d.n)
}

// Quantile returns the value that the share q (0 to 1) of the values does not exceed (the nearest
// rank), within 1/64; 0 of nothing. The quantile 1 is exact.
func (d *Distribution) Quantile(q float64) uint64 {
	if d.n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(d.n)))
	if rank >= d.n {
		return d.max
	}
	rank = max(rank, 1)
	var seen uint64
	for i, n := range &d.count {
		if seen += n; seen >= rank {
			low, width := bucketStart(i)
			return min(low+(width-1)/2, d.max)
		}
	}
	return d.max
}

// below returns how many values are smaller than 1<<exp.
func (d *Distribution) below(exp int) uint64 {
	var n uint64
	for i := range bucketOf(1 << exp) {
		n += d.count[i]
	}
	return n
}
