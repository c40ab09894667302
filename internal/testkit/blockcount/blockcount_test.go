package blockcount

import (
	"slices"
	"strings"
	"testing"
)

// TestFindsWhatIsNotLinear: a search through all of the input for each of its items is found, one pass over it is not.
func TestFindsWhatIsNotLinear(t *testing.T) {
	if list := Nonlinear(t, "TestOnePass", 200, 5, "slices"); len(list) > 0 {
		t.Errorf("of one pass, %v grows faster than the input", list[0])
	}
	list := Nonlinear(t, "TestSearchForEach", 200, 5, "slices")
	if len(list) == 0 {
		t.Fatal("of a search for each item, nothing grows faster than the input")
	}
	if !strings.HasPrefix(list[0].Block, "slices/slices.go:") || list[0].Large < 20*list[0].Small {
		t.Errorf("of a search for each item, %v grows most, want the loop in package slices", list[0])
	}
}

// TestOnePass takes the largest of its items.
func TestOnePass(t *testing.T) {
	list := numbers(Size(10))
	if got := slices.Max(list); got != len(list)-1 {
		t.Errorf("the largest is %d", got)
	}
}

// TestSearchForEach looks each of its items up.
func TestSearchForEach(t *testing.T) {
	list := numbers(Size(10))
	for i := range list {
		if got := slices.Index(list, i); got != i {
			t.Errorf("%d is found at %d", i, got)
		}
	}
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
