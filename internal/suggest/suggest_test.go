package suggest

import (
	"strings"
	"testing"
)

func TestDistanceCountsEdits(t *testing.T) {
	long := strings.Repeat("a", longest+1)
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"", "ab", 2},
		{"kitten", "sitting", 3},
		{"json", "json", 0},
		{"lopo", "loop", 1},
		{"ca", "abc", 3},
		{"zone", "zoen", 1},
		{long, long, longest},
		{"a", long, longest},
	} {
		if got := Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%q to %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := Distance(tc.b, tc.a); got != tc.want {
			t.Errorf("%q to %q: %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}

func TestNearestSuggestsOnlyWhatIsClose(t *testing.T) {
	for _, tc := range []struct {
		word  string
		limit int
		all   string
		want  string
	}{
		{"cpx", 1, "cpu cuda", "cpu"},
		{"gpu", 1, "gpx gpy", "gpx"}, // the first of two that are as close
		{"gpu", 0, "cpu cuda", ""},
		{"x", 2, "ab", ""}, // nothing in common
		{"lopo", 2, "pool loop", "loop"},
		{"LOOP", 1, "Loop", "Loop"},
		{"", 2, "ab", ""},
		{"anything", 2, "", ""},
	} {
		if got := Nearest(tc.word, tc.limit, strings.Fields(tc.all)...); got != tc.want {
			t.Errorf("%q among %q: %q, want %q", tc.word, tc.all, got, tc.want)
		}
	}
}
