package pool

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// The sequence of nginx's documentation of its smooth weighted round robin, and others computed by hand from its
// description.
func TestRoundRobinHasTheOrderOfNginx(t *testing.T) {
	for _, x := range []struct {
		weights []int
		want    string
	}{
		{[]int{5, 1, 1}, "a a b a c a a"},
		{[]int{1, 1, 1}, "a b c"},
		{[]int{2, 2, 2}, "a b c"},
		{[]int{1, 2}, "b a b"},
		{[]int{4, 2, 1}, "a b a c a b a"},
		{[]int{0, 3, 0, 1}, "b b d b"},
	} {
		p := newPool(t, Options{}, backends(x.weights...))
		n := len(strings.Fields(x.want))
		for round := range 3 {
			if got := names(t, p, 0, n); got != x.want {
				t.Errorf("weights %v, round %d: %s, want %s", x.weights, round, got, x.want)
			}
		}
	}
}

// In a cycle that is too long for nginx's order each backend has its turns all the same, evenly spread.
func TestLongCyclesAreEven(t *testing.T) {
	weights := make([]int, 500)
	for i := range weights {
		weights[i] = 1 + i%97
	}
	sum := reduce(slices.Clone(weights))
	order := sequenceOf(weights)
	if len(order) != sum {
		t.Fatalf("%d turns, want %d", len(order), sum)
	}
	last := map[uint16]int{}
	turns := map[uint16]int{}
	for at, i := range order {
		turns[i]++
		if was, ok := last[i]; ok {
			if gap := float64(at-was) / (float64(sum) / float64(weights[i])); gap > 2 {
				t.Fatalf("backend %d waits %.1f times its distance", i, gap)
			}
		}
		last[i] = at
	}
	light, early := 0, 0 // turns of light backends, in all and in the first tenth
	for at, i := range order {
		if weights[i] <= 5 {
			if light++; at < sum/10 {
				early++
			}
		}
	}
	if early > light/5 {
		t.Errorf("%d of the %d turns of light backends are in the first tenth", early, light)
	}
	for i, w := range weights {
		if turns[uint16(i)] != w {
			t.Errorf("backend %d has %d turns, want %d", i, turns[uint16(i)], w)
		}
	}
}

func TestHugeWeightsAreScaled(t *testing.T) {
	weights := []int{1_000_000, 999_999, 1, 333_333}
	order := sequenceOf(weights)
	if len(order) < longest-2 || len(order) > longest+2 {
		t.Fatalf("%d turns", len(order))
	}
	turns := map[uint16]float64{}
	for _, i := range order {
		turns[i]++
	}
	for i, w := range weights {
		want := float64(w) * float64(len(order)) / 2_333_333
		if got := turns[uint16(i)]; math.Abs(got-want) > 1 {
			t.Errorf("weight %d has %.0f turns, want %.1f", w, got, want)
		}
	}
}

// Counts of n draws are within five standard deviations of what the weights say.
func TestWeightsAreHonoured(t *testing.T) {
	const n = 200_000
	for _, weights := range [][]int{{1}, {1, 1}, {1, 2, 3}, {5, 1, 1}, {0, 1, 0, 9}, {1000, 1, 10}, {7, 7, 7, 7, 3}} {
		sum := 0
		for _, w := range weights {
			sum += w
		}
		for _, balance := range all {
			p := newPool(t, Options{Balance: balance}, backends(weights...))
			got := tally(p, 0, n)
			for i, w := range weights {
				q := float64(w) / float64(sum)
				slack := 5*math.Sqrt(n*q*(1-q)) + 1
				if balance == ConsistentHash {
					slack += 2 * float64(n) / DefaultHashSize // a table has whole slots
				}
				if c := float64(got[string(rune('a'+i))]); math.Abs(c-n*q) > slack {
					t.Errorf("%v, weights %v: %c has %.0f, want %.0f ± %.0f", balance, weights, 'a'+i, c, n*q, slack)
				}
			}
		}
	}
}

// An operator's weight holds at once.
func TestWeightsChangeAtRunTime(t *testing.T) {
	const n = 100_000
	for _, balance := range all {
		p := newPool(t, Options{Balance: balance}, same(3))
		p.ByName("a").SetWeight(0, 6)
		if got := tally(p, 0, n); math.Abs(float64(got["a"])/n-0.75) > 0.01 || math.Abs(float64(got["b"])/n-0.125) > 0.01 {
			t.Errorf("%v: %v", balance, got)
		}
		p.ByName("a").SetWeight(0, 0)
		p.ByName("b").SetWeight(0, 3)
		if got := tally(p, 0, n); got["a"] > 0 || math.Abs(float64(got["b"])/n-0.75) > 0.01 {
			t.Errorf("%v, without a: %v", balance, got)
		}
		p.ByName("a").ResetWeight(0)
		p.ByName("b").ResetWeight(0)
		if got := tally(p, 0, n); math.Abs(float64(got["a"])/n-1.0/3) > 0.01 {
			t.Errorf("%v, as at first: %v", balance, got)
		}
	}
}

func TestACycleIsNoLongerThanWeightsNeed(t *testing.T) {
	if n := len(sequenceOf([]int{500_000, 100_000, 100_000})); n != 7 {
		t.Errorf("%d turns", n)
	}
}

// Of two backends the one with fewer requests for its weight is taken; of equals the one that was drawn first.
func TestLeastRequestComparesByWeight(t *testing.T) {
	p := newPool(t, Options{Balance: LeastRequest}, backends(1, 4))
	start := func(name string, n int) {
		for range n {
			p.ByName(name).Start(0)
		}
	}
	start("a", 1)
	start("b", 3)
	if got := tally(p, 0, 1000); got["a"] > 20 { // a alone was drawn, sixteen times
		t.Errorf("1 of 1 and 3 of 4: %v", got)
	}
	start("b", 2)
	if got := tally(p, 0, 1000); got["b"] > 60 {
		t.Errorf("1 of 1 and 5 of 4: %v", got)
	}
	start("a", 1)
	start("b", 3)
	if got := tally(p, 0, 10_000); !near(got["a"], 10_000, 0.2) {
		t.Errorf("2 of 1 and 8 of 4: %v", got)
	}
}

// search draws by weight of those that have not been tried.
func TestSearch(t *testing.T) {
	p := newPool(t, Options{}, backends(1, 2, 3, 10))
	var tried Tried
	tried.Add(p.ByName("d"))
	c := choice{snapshot: p.snap.Load(), tried: &tried}
	got := map[string]int{}
	const n = 60_000
	for key := range uint64(n) {
		b, _ := c.search(key)
		got[b.Name()]++
	}
	for i, name := range []string{"a", "b", "c"} {
		if !near(got[name], n, float64(i+1)/6) {
			t.Errorf("%s has %d of %d", name, got[name], n)
		}
	}
	if got["d"] > 0 {
		t.Errorf("the one that was tried has %d", got["d"])
	}
}
