package pmd

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Cause names a stream of random numbers. Each cause draws from a stream of its own, so that
// adding a word to a profile does not change what the other words do.
type Cause uint64

// What a network does by chance.
const (
	CauseLoss Cause = iota
	CauseBurst
	CauseBurstLoss
	CauseDup
	CauseCorrupt
	CauseBits
	CauseCE
	CauseJitter
	CauseReorder
	causes
)

// Draws is the randomness of one direction of a network with a Profile: of Impair, and of simulations of
// the same. They are the same on every machine: everything
// but the tail of Pareto is integer arithmetic, and that has no sum that could be fused.
type Draws [causes]rand.PCG

// NewDraws returns the draws of a seed, for one direction of many.
func NewDraws(seed, direction uint64) *Draws {
	var s Draws
	for c := range s {
		s[c].Seed(seed, direction<<8|uint64(c))
	}
	return &s
}

// Chance is a probability as a bound for 64 random bits; the zero value is never.
type Chance struct {
	below uint64
	full  bool // a certainty
}

// NewChance returns p as a Chance.
func NewChance(p Percent) Chance {
	if p >= 100 {
		return Chance{full: true}
	}
	return Chance{below: uint64(float64(p) / 100 * (1 << 64))}
}

// Of reports whether 64 random bits make it happen.
func (p Chance) Of(bits uint64) bool { return bits < p.below || p.full }

// Hit draws once, whatever the probability, except where it is zero.
func (s *Draws) Hit(c Cause, p Chance) bool {
	return p != (Chance{}) && p.Of(s[c].Uint64())
}

// Below returns a number from 0 to n-1.
func (s *Draws) Below(c Cause, n uint64) uint64 {
	hi, _ := bits.Mul64(s[c].Uint64(), n)
	return hi
}

// Jitter draws from a distribution of mean zero.
func (s *Draws) Jitter(j time.Duration, shape Shape) time.Duration {
	if j == 0 {
		return 0
	}
	switch shape {
	case Normal:
		return time.Duration(s.normal() * float64(j))
	case Pareto:
		return time.Duration(s.pareto() * float64(j))
	}
	return time.Duration(s.Below(CauseJitter, 2*uint64(j)+1)) - j
}

// normal is the sum of twelve uniform numbers less its mean: variance 1, no value beyond 6.
func (s *Draws) normal() float64 {
	sum := int64(-6 << 32)
	for range 6 {
		v := s[CauseJitter].Uint64()
		sum += int64(v>>32) + int64(v&math.MaxUint32)
	}
	return float64(sum) / (1 << 32)
}

// pareto has exponent 3, whose mean is 3/2 and whose variance is 3/4, shifted and scaled to mean 0
// and variance 1. No value is below -0.58.
func (s *Draws) pareto() float64 {
	u := float64(s[CauseJitter].Uint64()>>11+1) / (1 << 53) // never 0
	x := 1 / math.Cbrt(u)
	return (x - 1.5) * (2 / math.Sqrt(3))
}
