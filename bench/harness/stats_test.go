package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestASummaryIsMedianAndSpread(t *testing.T) {
	for name, c := range map[string]struct {
		in   []float64
		want Summary
	}{
		"nothing":          {nil, Summary{}},
		"one":              {[]float64{4}, Summary{N: 1, Median: 4, Min: 4, Max: 4}},
		"odd, unsorted":    {[]float64{9, 1, 4}, Summary{N: 3, Median: 4, Min: 1, Max: 9, Spread: 2}},
		"even":             {[]float64{1, 2, 4, 10}, Summary{N: 4, Median: 3, Min: 1, Max: 10, Spread: 3}},
		"all zero":         {[]float64{0, 0}, Summary{N: 2}},
		"one wild outlier": {[]float64{2, 2, 2, 2, 1000}, Summary{N: 5, Median: 2, Min: 2, Max: 1000, Spread: 499}},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]float64(nil), c.in...)
			if diff := cmp.Diff(c.want, Summarize(c.in)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, c.in); diff != "" {
				t.Errorf("the figures were changed: %s", diff)
			}
		})
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	// The machine was twice as slow in round 1: the ratio does not see it.
	a := map[int]float64{0: 10, 1: 5, 3: 30}
	b := map[int]float64{0: 20, 1: 10, 2: 7, 3: 0}
	if diff := cmp.Diff([]float64{0.5, 0.5}, pairwise(a, b)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryContestantIsFirstOnceInARotation(t *testing.T) {
	first, seen := map[int]int{}, map[int]int{}
	for round := range 4 {
		order := rotated(4, round)
		first[order[0]]++
		for _, i := range order {
			seen[i]++
		}
	}
	want1, want4 := map[int]int{0: 1, 1: 1, 2: 1, 3: 1}, map[int]int{0: 4, 1: 4, 2: 4, 3: 4}
	if diff := cmp.Diff(want1, first) + cmp.Diff(want4, seen); diff != "" {
		t.Error(diff)
	}
}

func TestASampleDividesByWhatThereIs(t *testing.T) {
	s := Sample{Units: 2e6, Seconds: 0.5, CPU: 0.2, Own: 0.1, Busy: 0.3, CPUs: 2}
	got := []float64{s.Rate(), s.PerCPU(), s.Cost(), s.OwnCost(), s.Others()}
	if diff := cmp.Diff([]float64{4e6, 1e7, 100, 50, 0.1}, got, approx); diff != "" {
		t.Error(diff)
	}
	var none Sample
	if none.Rate() != 0 || none.PerCPU() != 0 || none.Cost() != 0 || none.Others() != 0 {
		t.Error("an empty sample has figures")
	}
}

var approx = cmp.Comparer(func(a, b float64) bool {
	d := a - b
	return -1e-9 < d && d < 1e-9 || a != 0 && -1e-9 < d/a && d/a < 1e-9
})
