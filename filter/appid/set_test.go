package appid

import "testing"

// A set has room for each recogniser of the table, and no word more.
func TestSetsHoldEachRecogniser(t *testing.T) {
	if room := setWords * 64; room < len(recognisers) || room-64 >= len(recognisers) {
		t.Errorf("a set of %d words for %d recognisers", setWords, len(recognisers))
	}
	for i := range recognisers {
		var s, all set
		s.add(i)
		for j := range recognisers {
			all.add(j)
		}
		rest := all.without(&s)
		if s.next(0) != i || s.next(i) != i || s.next(i+1) != -1 || rest.next(i) == i || all.and(&s) != s {
			t.Fatalf("recogniser %d: %v, without it %v", i, s, rest)
		}
		if want := i + 1; want < len(recognisers) && rest.next(i) != want {
			t.Fatalf("behind recogniser %d comes %d", i, rest.next(i))
		}
	}
}
