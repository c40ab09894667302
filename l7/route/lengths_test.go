package route

import (
	"strings"
	"testing"
)

// TestPathsOfEqualLengths: paths are passed by for their length, modulo 64. Those of a rule are found, and others with the same are
// not taken for them.
func TestPathsOfEqualLengths(t *testing.T) {
	long := "/" + strings.Repeat("a", 70) // of the length of /bcdefg modulo 64
	table, err := New([]Rule{
		{Name: "exact", Match: Match{Path: Path{Type: PathExact, Value: "/bcdefg"}}},
		{Name: "long", Match: Match{Path: Path{Type: PathExact, Value: long}}},
		{Name: "prefix", Match: Match{Path: Path{Type: PathPrefix, Value: "/" + strings.Repeat("p", 63)}}},
		{Name: "root", Match: Match{Path: Path{Type: PathPrefix, Value: "/"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/bcdefg": 0, long: 1, long[:7]: 3, "/hijklm": 3, long + "a": 3, "/" + strings.Repeat("p", 63): 2, "/" + strings.Repeat("p", 63) + "/x": 2,
		"/" + strings.Repeat("q", 63): 3, "/" + strings.Repeat("p", 63) + "x": 3, "/": 3, "/" + strings.Repeat("p", 127): 3,
	} {
		if got := table.Find(&Request{Path: path}); got != want {
			t.Errorf("%s: rule %d, want %d", path, got, want)
		}
	}
}
