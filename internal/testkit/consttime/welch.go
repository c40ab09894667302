package consttime

import (
	"math"
	"slices"
)

// limitT is Welch's t from which on two distributions differ: by chance it is above 5 once in a million tests, and a machine
// with other load needs some room.
const limitT = 10

// sample is the CPU time of runs, in ns.
type sample []float64

// worstT returns the largest absolute t, with all measurements and with those below quantiles of both classes: interrupts
// make a long tail that hides what differs.
func worstT(s [2]sample) (worst float64) {
	all := slices.Concat(s[0], s[1])
	for _, q := range []float64{0.5, 0.75, 0.9, 0.99, 1} {
		limit := all.quantile(q)
		worst = max(worst, math.Abs(welch(s[0].upTo(limit), s[1].upTo(limit))))
	}
	return worst
}

func (s sample) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1))]
}

func (s sample) upTo(limit float64) sample {
	return slices.DeleteFunc(slices.Clone(s), func(v float64) bool { return v > limit })
}

// welch returns t of two samples (B. L. Welch, 1947).
func welch(a, b sample) float64 {
	meanA, varianceA := a.moments()
	meanB, varianceB := b.moments()
	deviation := math.Sqrt(varianceA/float64(len(a)) + varianceB/float64(len(b)))
	if deviation == 0 {
		return 0
	}
	return (meanA - meanB) / deviation
}

func (s sample) moments() (mean, variance float64) {
	for _, v := range s {
		mean += v
	}
	mean /= float64(len(s))
	for _, v := range s {
		variance += (v - mean) * (v - mean)
	}
	return mean, variance / float64(len(s)-1)
}
