package netsim

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/pmd"
)

// cause names a stream of random numbers. Each cause has a stream of its own, so that one word more
// in a profile does not change what the others do.
type cause uint64

const (
	causeLoss cause = iota
	causeBurst
	causeBurstLoss
	causeDup
	causeCorrupt
	causeBits
	causeCE
	causeJitter
	causeReorder
	causes
)

// source is the randomness of one pipe: the same draws as pmd.Impair makes, which the tests compare.
type source [causes]rand.PCG

func newSource(seed, number uint64) *source {
	var s source
	for c := range s {
		s[c].Seed(seed, number<<8|uint64(c))
	}
	return &s
}

// mix makes one seed out of two.
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// chance is a probability as a bound for 64 random bits; full is a certainty.
type chance struct {
	below uint64
	full  bool
}

func newChance(p pmd.Percent) chance {
	if p >= 100 {
		return chance{full: true}
	}
	return chance{below: uint64(float64(p) / 100 * (1 << 64))}
}

// hit draws once, whatever the probability, except where it is zero.
func (s *source) hit(c cause, p chance) bool {
	if p == (chance{}) {
		return false
	}
	return s[c].Uint64() < p.below || p.full
}

// below returns a number from 0 to n-1.
func (s *source) below(c cause, n uint64) uint64 {
	hi, _ := bits.Mul64(s[c].Uint64(), n)
	return hi
}

// jitter draws from a distribution of mean zero.
func (s *source) jitter(j time.Duration, shape pmd.Shape) time.Duration {
	if j == 0 {
		return 0
	}
	switch shape {
	case pmd.Normal:
		return time.Duration(s.normal() * float64(j))
	case pmd.Pareto:
		return time.Duration(s.pareto() * float64(j))
	}
	return time.Duration(s.below(causeJitter, 2*uint64(j)+1)) - j
}

// normal is the sum of twelve uniform numbers less its mean: variance 1, no value beyond 6.
func (s *source) normal() float64 {
	sum := int64(-6 << 32)
	for range 6 {
		v := s[causeJitter].Uint64()
		sum += int64(v>>32) + int64(v&math.MaxUint32)
	}
	return float64(sum) / (1 << 32)
}

// pareto has exponent 3, shifted and scaled to mean 0 and variance 1.
func (s *source) pareto() float64 {
	u := float64(s[causeJitter].Uint64()>>11+1) / (1 << 53) // never 0
	x := 1 / math.Cbrt(u)
	return (x - 1.5) * (2 / math.Sqrt(3))
}
