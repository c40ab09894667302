package rewrite

import (
	"slices"
	"testing"
)

// Backends decode parameters: another spelling of a name or a value is no other key.
func TestEncodedParameters(t *testing.T) {
	k := &Key{By: ByQuery, Name: "api key"}
	for query, want := range map[string][]string{
		"?api+key=a": {"a"}, "?api%20key=a": {"a"}, "?%61pi%20%6bey=a": {"a"}, "?api%20key=%61": {"a"}, "?api+key=a+b": {"a b"}, "?api+key": {""},
		"?x=1&api%20key=a&API%20key=c&%61pi+key=b": {"a", "b"}, "?api%2520key=a": nil, "?apikey=a": nil, "?api+key=%zz": {"%zz"}, "?api+ke%79=%3D%26": {"=&"},
	} {
		var got []string
		s := &Source{Query: query}
		k.Each(s, func(text string) { got = append(got, text) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		if text, ok := k.Text(s); ok != (len(want) > 0) || ok && text != want[0] {
			t.Errorf("%s: %q, %v", query, text, ok)
		}
	}
	plain := &Key{By: ByQuery, Name: "k"}
	if n := testing.AllocsPerRun(100, func() { plain.Text(&Source{Query: "?a=b&k=c"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
