package semantics

import "testing"

func TestDecodeQuery(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "a+b": "a b", "%61": "a", "%2F": "/", "%2f": "/", "%252F": "%2F", "%2B": "+", "a%": "a%", "%zz+": "%zz+", "%00": "\x00", "%C3%A9": "é",
	} {
		if got := DecodeQuery(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { DecodeQuery("plain") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
