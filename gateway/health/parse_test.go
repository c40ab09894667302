package health

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatusCodesAreRead(t *testing.T) {
	for text, want := range map[string][]StatusRange{
		"200": {{200, 200}}, "200-399": {{200, 399}}, " 200 - 299 ,304": {{200, 299}, {304, 304}}, "100-100,599": {{100, 100}, {599, 599}},
		"": nil, "99": nil, "600": nil, "1000": nil, "2xx": nil, "200-": nil, "-200": nil, "399-200": nil, "200,": nil, "200-300-400": nil,
		"+20": nil, "２００": nil, "0200": nil, "200 299": nil,
	} {
		got, err := ParseStatus(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %s", text, err, diff)
		}
	}
}

func TestHexIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"0d0A": "\r\n", "0d 0a": "\r\n", "0d:0a\n": "\r\n", "": "", "  ": "", "0": "error", "0d 0": "error", "0x0d": "error", "0g": "error", "é0": "error",
	} {
		got, err := ParseHex(text)
		if err != nil {
			got = []byte("error")
		}
		if string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	for _, s := range []string{"200", "200-399,404", " 100 - 199 , 200", "599-100", "-", ",", "2147483648"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseStatus(s)
		if err != nil {
			if list != nil {
				t.Error("ranges and an error")
			}
			return
		}
		for _, r := range list {
			if r.First < 100 || r.Last > 599 || r.First > r.Last {
				t.Errorf("%q: %v", s, r)
			}
		}
		again, err := ParseStatus(statusList(list))
		if diff := cmp.Diff(list, again); err != nil || diff != "" {
			t.Errorf("%q: %v %s", s, err, diff)
		}
		if len(list) != 1+strings.Count(s, ",") { // the obvious count
			t.Errorf("%q: %d ranges", s, len(list))
		}
	})
}

func FuzzParseHex(f *testing.F) {
	for _, s := range []string{"00", "0d0a", "0d:0A", " 1 2", "zz", "0", "ff\tff\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseHex(s)
		if err != nil {
			return
		}
		// fmt's own reader of hexadecimal, on the digits alone, is the oracle.
		digits := strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \t\r\n:", r) {
				return -1
			}
			return r
		}, s)
		var want []byte
		if digits != "" {
			if _, err := fmt.Sscanf(digits, "%x", &want); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
		}
		if !bytes.Equal(got, want) || hex.EncodeToString(got) != strings.ToLower(digits) {
			t.Errorf("%q: %x, want %x", s, got, want)
		}
	})
}
