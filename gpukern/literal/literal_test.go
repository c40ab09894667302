package literal

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomSet makes patterns over a small alphabet, so that they overlap.
func randomSet(r *rand.Rand, n int, alphabet string) []Pattern {
	set := make([]Pattern, n)
	for i := range set {
		size := 3 + r.IntN(6)
		if r.IntN(3) == 0 {
			size = 3 + r.IntN(62)
		}
		set[i] = Pattern{randomText(r, size, alphabet), r.IntN(2) == 0, 1 + r.Uint32N(20)}
	}
	return set
}

func randomText(r *rand.Rand, n int, alphabet string) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return b
}

func TestScanAsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for i := range 3000 {
		alphabet := []string{"ab", "aA", "aAbB@`", "\x00 \x20a", "aB01\xff\xdf"}[i%5]
		set := randomSet(r, 1+r.IntN(30), alphabet)
		text := randomText(r, r.IntN(400), alphabet)
		for range 3 { // some of the longer patterns, which chance would not bring
			p := set[r.IntN(len(set))].Bytes
			if r.IntN(2) == 0 {
				p = bytes.ToUpper(p)
			}
			text = slices.Insert(text, r.IntN(len(text)+1), p...)
		}
		cut := r.IntN(len(text) + 1)
		limit := r.IntN(40)
		s, err := Compile(set)
		if err != nil {
			t.Fatal(err)
		}
		got := s.Scan(text[:cut], text[cut:], limit, nil)
		want := Reference(set).Scan(text[:cut], text[cut:], limit, nil)
		if !slices.Equal(got, want) {
			t.Fatalf("%d: %v in %q|%q, limit %d:\ngot  %v\nwant %v", i, set, text[:cut], text[cut:], limit, got, want)
		}
		found += len(want)
	}
	if found < 10000 {
		t.Errorf("only %d matches: the test shows little", found)
	}
}
