package filter

import (
	"math/bits"

	"github.com/millrace/millrace/clock"
)

// Rate bounds packets or bytes by a token bucket: it fills at the rate up to the burst, and a packet that finds
// too few tokens is dropped and takes none. The zero value has no limit.
type Rate struct {
	PerSecond uint64 // packets, or bytes; at most MaxRate
	Burst     uint64 // of the same; at most MaxBurst
	Bytes     bool   // count the bytes of frames, not packets
	PerSource bool   // a bucket for each source address
}

// Bounds of a Rate: tokens are counted in 10^-9, in 64 bits.
const (
	MaxRate  = 1e12
	MaxBurst = 8e9
)

// bucket is a token bucket.
type bucket struct {
	tokens int64 // in 10^-9
	last   clock.Time
}

// unused is the tokens of a bucket that no packet came to.
const unused = -1

// full is the bucket of a rate that was not used for long.
func (r *Rate) full(now clock.Time) bucket { return bucket{int64(r.Burst) * 1e9, now} }

// take takes n tokens and reports whether they were there.
func (b *bucket) take(r *Rate, n int, now clock.Time) bool {
	b.fill(r, now)
	if cost := int64(n) * 1e9; b.tokens >= cost {
		b.tokens -= cost
		return true
	}
	return false
}

// fill adds the tokens of the time since the last call. Time that goes back, as from one capture to the next, adds
// none.
func (b *bucket) fill(r *Rate, now clock.Time) {
	elapsed := uint64(max(now.Sub(b.last), 0))
	b.last = now
	most := int64(r.Burst) * 1e9
	if hi, more := bits.Mul64(elapsed, r.PerSecond); hi != 0 || more > uint64(most-b.tokens) {
		b.tokens = most
	} else {
		b.tokens += int64(more)
	}
}

// source is a bucket of one source address and line.
type source struct {
	hi, lo uint64
	line   int32 // and one more; 0 is an empty place
	v4     bool
	bucket bucket
}

// sources are the buckets of rates per source: a table whose size does not grow. A bucket that is full again is as
// good as none, so that its place is free, and none that counts is lost.
type sources struct {
	table []source
	seed  uint64
}

const (
	sourcesMost = 1 << 16 // addresses that have less than a full bucket at one time
	sourceProbe = 8       // places that an address may have
)

// find returns the bucket of an address for a line of rates, nil where all its places are in use.
func (s *sources) find(rates []Rate, line int32, hi, lo uint64, v4 bool, now clock.Time) *bucket {
	if s.table == nil {
		s.table = make([]source, sourcesMost)
	}
	at := s.place(line+1, hi, lo)
	var free *source
	for i := range uint64(sourceProbe) {
		p := &s.table[(at+i)%sourcesMost]
		if p.line == line+1 && p.hi == hi && p.lo == lo && p.v4 == v4 {
			return &p.bucket
		}
		if free == nil && p.idle(rates, now) {
			free = p
		}
	}
	if free == nil {
		return nil
	}
	*free = source{hi, lo, line + 1, v4, rates[line].full(now)}
	return &free.bucket
}

// place returns where the places of an address begin.
func (s *sources) place(line int32, hi, lo uint64) uint64 {
	return mix(mix(hi^s.seed, lo^0x9e3779b97f4a7c15), s.seed+uint64(line))
}

// renumber moves the buckets of lines that have another number now, and one more, and leaves out those of 0.
func (s *sources) renumber(moved []int32) {
	old := s.table
	s.table = nil
	for i := range old {
		p := old[i] // the table before may still be in use
		if p.line == 0 || moved[p.line-1] == 0 {
			continue
		}
		if s.table == nil {
			s.table = make([]source, sourcesMost)
		}
		p.line = moved[p.line-1]
		at := s.place(p.line, p.hi, p.lo)
		for k := range uint64(sourceProbe) {
			if to := &s.table[(at+k)%sourcesMost]; to.line == 0 {
				*to = p
				break
			}
		}
	}
}

// idle reports whether a place is free: it is empty, or has a bucket that is full by now.
func (p *source) idle(rates []Rate, now clock.Time) bool {
	if p.line == 0 {
		return true
	}
	b, r := p.bucket, &rates[p.line-1]
	b.fill(r, now)
	return b.tokens == int64(r.Burst)*1e9
}

// mix folds a product of 128 bits into 64.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
