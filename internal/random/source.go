// Package random has the two generators that the pure layers share: SplitMix64 for delays and choices, and SipHash for
// what an outsider must not predict.
//
// Neither reads the system's entropy. Seeds and keys come in from the caller, so that a run can be repeated.
package random

import "time"

// Source is SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014). Its value is the
// state: every value is a valid seed, and the period is 2^64. An observer of one output can compute all others, so it
// serves delays and tie-breaks, never identifiers or keys.
type Source uint64

// Uint64 returns the next number. Source thereby implements the Source of math/rand/v2.
func (s *Source) Uint64() uint64 {
	*s += 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd
	return Mix(uint64(*s))
}

// Between returns a time from lo to hi, both included; lo where hi is not after it. The bias of the modulus is below
// 2^-20 for ranges of less than an hour.
func (s *Source) Between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(s.Uint64()%uint64(hi-lo+1))
}

// Mix is the finalizer of SplitMix64, with the constants of Stafford's variant 13: a bijection in which each bit of the
// input changes each bit of the output with probability close to 1/2.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
