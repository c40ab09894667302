package harness

import "slices"

// Summary describes the figures of several rounds.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Spread float64 `json:"spread"` // (Max-Min)/Median
}

// Summarize borrows the figures; none give the zero Summary.
func Summarize(figures []float64) Summary {
	if len(figures) == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(figures))
	n := len(s)
	sum := Summary{N: n, Min: s[0], Max: s[n-1], Median: (s[(n-1)/2] + s[n/2]) / 2}
	sum.Spread = over(sum.Max-sum.Min, sum.Median)
	return sum
}

// pairwise divides a by b round by round, so that load that comes and goes during the run meets
// both alike. Rounds in which either has no figure (absent or zero) are left out.
func pairwise(a, b map[int]float64) []float64 {
	var ratios []float64
	rounds := make([]int, 0, len(a))
	for r := range a {
		rounds = append(rounds, r)
	}
	slices.Sort(rounds)
	for _, r := range rounds {
		if b[r] > 0 {
			ratios = append(ratios, a[r]/b[r])
		}
	}
	return ratios
}

// rotated returns the order of n contestants in a round: each goes first once in n rounds.
func rotated(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}
