package ascii

import (
	"bytes"
	"testing"
)

// TestCaseOfASCIIAlone has letters in both cases, bytes beside them, and letters of Unicode that fold to ASCII elsewhere.
func TestCaseOfASCIIAlone(t *testing.T) {
	for _, c := range []struct {
		text, lower string
		want        bool
	}{
		{"HoSt", "host", true},
		{"host", "host", true},
		{"h0st", "host", false},
		{"@[`{", "@[`{", true},
		{"\x60", "@", false},
		{"\u212a", "k\x80\x80", false},
		{"\xc1", "\xe1", false},
		{"", "", true},
	} {
		if got := IsWord([]byte(c.text), c.lower); got != c.want {
			t.Errorf("%q is %q: %v", c.text, c.lower, got)
		}
		if got := len(c.text) == len(c.lower) && EqualNames([]byte(c.text), []byte(c.lower)); got != c.want {
			t.Errorf("%q names %q: %v", c.text, c.lower, got)
		}
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	if lower, upper := Lower(all), Upper(all); lower['A'] != 'a' || upper['z'] != 'Z' || !bytes.Equal(lower[128:], all[128:]) || !bytes.Equal(upper[128:], all[128:]) {
		t.Errorf("%q, %q", lower, upper)
	}
}

// TestIndexFold has contents at both ends, near matches and none.
func TestIndexFold(t *testing.T) {
	for text, want := range map[string]int{"evil": 0, "EVIL": 0, "xeViL": 1, "evievil": 3, "evi": -1, "": -1, "e.vil": -1, "xxxevil": 3} {
		if got := IndexFold([]byte(text), []byte("evil")); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := IndexFold([]byte("a"), nil); got != -1 {
		t.Errorf("an empty content is at %d", got)
	}
}

// TestHeadEnd has the ends of lines that recipients take.
func TestHeadEnd(t *testing.T) {
	for text, want := range map[string]int{
		"a\r\n\r\nb": 5, "a\n\nb": 3, "a\n\r\nb": 4, "a\r\n\nb": 4, "a\r\nb": -1, "a\r\n\r": -1, "a\n": -1, "": -1, "a\r\n\r\r\n": -1,
	} {
		if got := HeadEnd([]byte(text), 0); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestParameters has values with and without quotes, and other parameters before them.
func TestParameters(t *testing.T) {
	for value, want := range map[string]string{
		`a; name=b`: "b", `a; NAME = "b;c"; x=y`: "b;c", `a; x="name=c"; name=b`: "b", `a;name=b ;c`: "b", `a; name="b`: "b", `a; names=b`: "<nil>", `name=b`: "<nil>", `a; name`: "",
	} {
		got := Parameter([]byte(value), "name")
		if text := string(got); text != want && !(got == nil && want == "<nil>") {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

// TestDecoding has base64 and codes of URLs, whole and cut.
func TestDecoding(t *testing.T) {
	for text, want := range map[string]string{"ZXZpbA==": "evil", "ZX\r\n Zp\tbA": "evil", "ZXZpbA!x": "evil", "ZXZpb": "evi", "!": "", "": ""} {
		if got := FromBase64([]byte(text)); string(got) != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"%41+%4": "A+%4", "%zz%": "%zz%", "%2541": "%41", "a%00b": "a\x00b"} {
		if got := URLDecode([]byte(text), false); string(got) != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := URLDecode([]byte("a+b%2b"), true); string(got) != "a b+" {
		t.Errorf("%q", got)
	}
}
