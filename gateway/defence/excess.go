package defence

import (
	"hash/maphash"
	"net/netip"
	"time"
)

// Excess finds the sources that exceed a limit by far: it counts what is refused of each, in windows of time. It belongs to
// one goroutine. Sources share a fixed number of places: one that is refused more often takes the place of another.
type Excess struct {
	most   uint32
	window time.Duration
	begun  time.Duration
	seed   maphash.Seed
	places []excess
}

type excess struct {
	source netip.Addr
	count  uint32
}

// excessPlaces bounds the sources of a window.
const excessPlaces = 4096

// NewExcess returns an Excess that reports sources refused most times in a window.
func NewExcess(most int, window time.Duration) *Excess {
	return &Excess{most: uint32(most), window: window, seed: maphash.MakeSeed(), places: make([]excess, excessPlaces)}
}

// Add counts n refusals of a source at a time, and reports whether it exceeds the limit with them. It does so once in each
// multiple of the limit.
func (e *Excess) Add(source netip.Addr, n int, now time.Duration) bool {
	if now-e.begun >= e.window || now < e.begun {
		e.begun = now
		clear(e.places)
	}
	p := &e.places[maphash.Comparable(e.seed, source)%excessPlaces]
	switch {
	case p.source == source:
	case p.count > uint32(n): // the majority vote of Boyer and Moore: the most frequent source remains
		p.count -= uint32(n)
		return false
	default:
		*p = excess{source: source}
	}
	before := p.count / e.most
	p.count += uint32(n)
	return p.count/e.most > before
}
