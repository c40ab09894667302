package datapath

import (
	"math/rand/v2"
	"testing"
)

// slowCoverage is coverage byte by byte.
type slowCoverage struct {
	came   [256]bool
	size   int
	bounds map[[2]int]bool
	bits   uint64
}

func (c *slowCoverage) add(f *fragmentHeader) addition {
	last, had, all := 0, false, true
	for i, came := range c.came {
		if came {
			last = i + 1
		}
		if i >= f.at && i < f.end {
			had, all = had || came, all && came
		}
	}
	switch {
	case c.size == 0 && !f.more && last > f.end, c.size > 0 && f.more && f.end >= c.size, c.size > 0 && !f.more && f.end != c.size:
		return overlaps
	case all && (c.bounds[[2]int{f.at, f.end}] || c.bits&f.boundsBit() != 0):
		return copied
	case had:
		return overlaps
	}
	if c.pieces(f) > maxSpans {
		return scattered
	}
	for i := f.at; i < f.end; i++ {
		c.came[i] = true
	}
	if !f.more {
		c.size = f.end
	}
	c.bounds[[2]int{f.at, f.end}] = true
	c.bits |= f.boundsBit()
	return fresh
}

// pieces returns how many pieces there are with f.
func (c *slowCoverage) pieces(f *fragmentHeader) (n int) {
	before := false
	for i, came := range c.came {
		came = came || i >= f.at && i < f.end
		if came && !before {
			n++
		}
		before = came
	}
	return n
}

func (c *slowCoverage) whole() bool {
	for i := range c.size {
		if !c.came[i] {
			return false
		}
	}
	return c.size > 0
}

func (c *slowCoverage) begins(end int) bool {
	for _, came := range c.came[:end] {
		if came {
			return true
		}
	}
	return false
}

// The spans agree with a record of each byte, for honest fragments in any order, copies and forged ones.
func TestCoverageIsThatOfEachByte(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var seen [4]int
	wholes := 0
	for range 20000 {
		var c coverage
		slow := slowCoverage{bounds: map[[2]int]bool{}}
		step, size := 1+r.IntN(8), 1+r.IntN(100)
		for range 3 * size / step {
			at := r.IntN((size+step-1)/step) * step
			f := fragmentHeader{at: at, end: min(at+step, size), more: at+step < size}
			if r.IntN(50) == 0 {
				f = fragmentHeader{at: r.IntN(100), more: r.IntN(4) > 0}
				f.end = f.at + 1 + r.IntN(20)
			}
			got, want := c.add(&f), slow.add(&f)
			if got != want || c.whole() != slow.whole() || c.begins(9) != slow.begins(9) {
				t.Fatalf("%+v: %d, want %d; %+v", f, got, want, c)
			}
			seen[got]++
		}
		if c.whole() {
			wholes++
		}
	}
	if wholes < 1000 || seen[fresh] < 1000 || seen[copied] < 1000 || seen[overlaps] < 1000 || seen[scattered] < 1000 {
		t.Errorf("%d are whole; %v", wholes, seen)
	}
}
