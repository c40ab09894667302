package datapath

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
)

// The share of a backend in a table that auto chose is its weight's, within two slots, and what hashes
// choose is within five standard deviations of that.
func TestFlowsFollowTheWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) (weights []int) {
		for range n {
			weights = append(weights, 1+rng.IntN(20))
		}
		return weights
	}
	cases := [][]int{{1, 1}, {1, 2}, {1, 1000}, {1000, 1, 1000}, {3, 0, 5}}
	for _, n := range []int{2, 3, 5, 10, 20, 50, 100} {
		cases = append(cases, draw(n))
	}
	for _, weights := range cases {
		var shares []Share
		sum, least := 0, 1000
		for i, w := range weights {
			shares = append(shares, Share{fmt.Sprintf("b%d", i), w, uint32(i)})
			sum += w
			if w > 0 {
				least = min(least, w)
			}
		}
		size := 0
		for _, size = range []int{1021, 8191, 65537, 524287} { // as `hash_size: auto` chooses
			if size >= max(100*len(weights), 8*sum/least) {
				break
			}
		}
		p := new(PoolCache).Get(shares, size)
		slots := counts(&p.maglev)
		const flows = 200_000
		got := make([]int, len(weights))
		for i := range flows {
			id, _ := p.Pick(selection.sum(addr4([]byte{198, 18, byte(i >> 16), byte(i >> 8)}), uint64(1024+i&0xff)<<16|80))
			got[id]++
		}
		for i, w := range weights {
			want := float64(size) * float64(w) / float64(sum)
			if d := math.Abs(float64(slots[uint32(i)]) - want); d > 2 {
				t.Errorf("weights %v: backend %d has %d slots, want %.1f", weights, i, slots[uint32(i)], want)
			}
			q := float64(slots[uint32(i)]) / float64(size)
			if d := math.Abs(float64(got[i]) - flows*q); d > 5*math.Sqrt(flows*q*(1-q)) {
				t.Errorf("weights %v: backend %d has %d flows, want %.0f", weights, i, got[i], flows*q)
			}
		}
	}
}

// What moves when a weight changes is little more than what has to.
func TestAStepOfAWeightMovesLittle(t *testing.T) {
	for _, n := range []int{2, 4, 10, 50} {
		for _, step := range []struct{ from, to int }{{20, 19}, {19, 20}, {10, 11}, {1, 2}, {20, 0}, {0, 1}} {
			shares := sharesOf(n)
			for i := range shares {
				shares[i].Weight = 20
			}
			table := func(weight int) *Pool {
				shares[0].Weight = weight
				list := append([]Share(nil), shares...)
				return new(PoolCache).Get(list, 8191)
			}
			a, b := table(step.from), table(step.to)
			moved := 0
			for i := range uint64(8191) {
				x, _ := a.Pick(i)
				y, _ := b.Pick(i)
				if x != y {
					moved++
				}
			}
			share := func(w int) float64 { return float64(w) / float64(w+20*(n-1)) }
			least := math.Abs(share(step.from)-share(step.to)) * 8191
			t.Logf("%d backends, weight %d of 20 to %d: %d of 8191 slots move, %.0f have to", n, step.from, step.to, moved, least)
			if float64(moved) > least+0.015*8191 {
				t.Errorf("%d backends, weight %d of 20 to %d: %d of 8191 slots move, %.0f have to", n, step.from, step.to, moved, least)
			}
		}
	}
}

func TestEqualTablesAreShared(t *testing.T) {
	x := new(PoolCache)
	shares := func(first uint32, factor int) []Share {
		return []Share{{"a", 1 * factor, first}, {"b", 2 * factor, first + 1}, {"off", 0, first + 2}}
	}
	one, other := x.Get(shares(0, 1), 1021), x.Get(shares(50, 3), 1021)
	if one.table != other.table {
		t.Error("equal names and proportions have two tables")
	}
	if a, _ := one.Pick(7); a >= 2 {
		t.Errorf("the first leads to %d", a)
	}
	if b, _ := other.Pick(7); b < 50 || b > 51 {
		t.Errorf("the second leads to %d", b)
	}
	if again := x.Get(shares(0, 1), 1021, other, one); again != one {
		t.Error("an equal pool is made anew")
	}
	if again := x.Get(shares(0, 1), 8191, one); again == one || again.table == one.table {
		t.Error("another size has the same table")
	}
	renamed := x.Get([]Share{{"a", 1, 0}, {"c", 2, 1}}, 1021, one)
	if renamed.table == one.table {
		t.Error("other names have the same table")
	}
	if x.Get([]Share{{"off", 0, 1}}, 1021, one) != EmptyPool {
		t.Error("nobody is in a pool")
	}
	runtime.KeepAlive(other)
}

// What no pool uses any more does not stay.
func TestShapesThatAreGoneAreForgotten(t *testing.T) {
	x := new(PoolCache)
	for i := range 2000 {
		x.Get([]Share{{fmt.Sprintf("b%d", i), 1, 0}}, 251)
		if i%50 == 0 {
			runtime.GC()
		}
	}
	if n := len(x.known); n > 500 {
		t.Errorf("%d tables are remembered, and none is in use", n)
	}
}
