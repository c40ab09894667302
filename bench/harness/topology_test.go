package harness

import (
	"slices"
	"testing"
)

func TestCPUsOfOneCoreAreFarApart(t *testing.T) {
	for _, c := range []struct {
		name string
		core func(int) int
		want []int
	}{
		{"each a core", func(cpu int) int { return cpu }, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"neighbours share", func(cpu int) int { return cpu &^ 1 }, []int{0, 2, 4, 6, 1, 3, 5, 7}},
		{"halves share", func(cpu int) int { return cpu % 4 }, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		if got := spreadOverCores([]int{0, 1, 2, 3, 4, 5, 6, 7}, c.core); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCPUsAreThoseOfTheMachine(t *testing.T) {
	cpus := CPUs()
	if len(cpus) == 0 || Cores(cpus) == 0 || Cores(cpus) > len(cpus) {
		t.Errorf("CPUs %v on %d cores", cpus, Cores(cpus))
	}
	sorted := slices.Sorted(slices.Values(cpus))
	if len(slices.Compact(sorted)) != len(cpus) {
		t.Errorf("CPUs %v, one of them twice", cpus)
	}
}
