package pmd

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Cause names one stream of a RandomSource. Each kind of impairment samples its own stream, so that
// adding a word to a profile does not change which packets the other words hit.
type Cause uint64

// What a network does at random.
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

// RandomSource is the randomness of one direction of a network with a Profile: of Impair, and of
// simulations of the same. One seed yields the same samples on every machine, because golden tables
// depend on them: all is integer arithmetic but the cube root in the tail of Pareto, and no sum there
// could be fused into a multiply-add.
type RandomSource [causes]rand.PCG

// NewRandomSource returns the source of a seed and a direction: directions of one seed are independent.
func NewRandomSource(seed, direction uint64) *RandomSource {
	var s RandomSource
	for c := range s {
		s[c].Seed(seed, direction<<8|uint64(c))
	}
	return &s
}

// Probability is a probability as a bound that 64 random bits have to be below, so that a sample costs
// one comparison. The zero value is never.
type Probability struct {
	below uint64
	full  bool // 1, which no bound of 64 bits expresses
}

// NewProbability converts p; from 100 % on it is always.
func NewProbability(p Percent) Probability {
	if p >= 100 {
		return Probability{full: true}
	}
	return Probability{below: uint64(float64(p) / 100 * (1 << 64))}
}

// Sample reports whether 64 uniform random bits fall below the probability.
func (p Probability) Sample(bits uint64) bool { return bits < p.below || p.full }

// Sample reports whether c happens to this packet. It takes one number from the stream, except where p is
// never: an impairment that is switched off costs nothing.
func (s *RandomSource) Sample(c Cause, p Probability) bool {
	return p != (Probability{}) && p.Sample(s[c].Uint64())
}

// Uint64N returns a uniform number from 0 to n-1, by the high half of a product: the bias is n / 2^64.
func (s *RandomSource) Uint64N(c Cause, n uint64) uint64 {
	hi, _ := bits.Mul64(s[c].Uint64(), n)
	return hi
}

// Jitter returns a delay of mean zero: uniform within j either side, or with standard deviation j where
// shape is Normal or Pareto.
func (s *RandomSource) Jitter(j time.Duration, shape Shape) time.Duration {
	if j == 0 {
		return 0
	}
	switch shape {
	case Normal:
		return time.Duration(s.normal() * float64(j))
	case Pareto:
		return time.Duration(s.pareto() * float64(j))
	}
	return time.Duration(s.Uint64N(CauseJitter, 2*uint64(j)+1)) - j
}

// normal is the sum of twelve uniform numbers less its mean: variance 1, no value beyond 6.
func (s *RandomSource) normal() float64 {
	sum := int64(-6 << 32)
	for range 6 {
		v := s[CauseJitter].Uint64()
		sum += int64(v>>32) + int64(v&math.MaxUint32)
	}
	return float64(sum) / (1 << 32)
}

// pareto has exponent 3, whose mean is 3/2 and whose variance is 3/4, shifted and scaled to mean 0
// and variance 1. No value is below -0.58.
func (s *RandomSource) pareto() float64 {
	u := float64(s[CauseJitter].Uint64()>>11+1) / (1 << 53) // never 0
	x := 1 / math.Cbrt(u)
	return (x - 1.5) * (2 / math.Sqrt(3))
}
