package maglev

import (
	"fmt"
	"slices"
	"testing"
)

// The tables are part of what gateways of different versions agree on: these slots are pinned.
func TestTheTableIsTheSameEverywhere(t *testing.T) {
	shares := []Share{{"a", 1}, {"b", 2}, {"off", 0}, {"c", 3}}
	want := Fill(shares, 13)
	if got := fmt.Sprint(want); got != pinned {
		t.Errorf("slots %s, want %s", got, pinned)
	}
	slices.Reverse(shares)
	for i, n := range Fill(shares, 13) {
		if shares[n].Name != []string{"a", "b", "off", "c"}[want[i]] {
			t.Errorf("slot %d is %s in a list in another order", i, shares[n].Name)
		}
	}
}

func TestWithoutAWeightThereIsNoTable(t *testing.T) {
	if Fill(nil, 13) != nil || Fill([]Share{{"a", 0}}, 13) != nil {
		t.Error("a table of nothing")
	}
}

func BenchmarkFill(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var shares []Share
			for i := range n {
				shares = append(shares, Share{fmt.Sprint(i), 1})
			}
			for b.Loop() {
				Fill(shares, 65537)
			}
		})
	}
}

const pinned = "[3 3 0 1 3 1 3 3 0 3 3 1 1]"
