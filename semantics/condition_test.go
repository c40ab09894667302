package semantics

import (
	"testing"
	"time"
)

func TestParseDate(t *testing.T) {
	want := time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "SUN, 06 NOV 1994 08:49:37 gmt", "sun Nov 06 08:49:37 1994",
		"Mon, 06 Nov 1994 08:49:37 GMT",
	} {
		if got, ok := ParseDate(s); !ok || !got.Equal(want) {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	if got, ok := ParseDate("Thursday, 18-Aug-50 02:01:18 GMT"); !ok || got.Year() != 2050 {
		t.Errorf("of this century: %v, %v", got, ok)
	}
	if got, ok := ParseDate("Fri, 31 Dec 9999 23:59:60 GMT"); !ok || got.Year() != 10000 {
		t.Errorf("a leap second: %v, %v", got, ok)
	}
	for _, s := range []string{
		"", "0", "x", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 AEST", "Sun, 06 Nov 94 08:49:37 GMT", "Sun 06 Nov 1994 08:49:37 GMT",
		"Sun, 06  Nov  1994 08:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 8:49:37 GMT",
		"Sun, 06 Nov 1994 08.49.37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT",
		"Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Foo 1994 08:49:37 GMT", "Foo, 06 Nov 1994 08:49:37 GMT",
		"Sun, 06 Nov 1994 08:49:37GMT ", "Sunnnnn, 06-Nov-94 08:49:37 GMT", "Sunday, 06 Nov 94 08:49:37 GMT", "Sun Nov 6 08:49:37 1994 ", "Sun, -6 Nov 1994 08:49:37 GMT",
		"Sun, 06 onN 1994 08:49:37 GMT",
	} {
		if got, ok := ParseDate(s); ok {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestMatchesTag(t *testing.T) {
	for _, c := range []struct {
		list, tag    string
		weak, strong bool
	}{
		{`"a"`, `"a"`, true, true},
		{`"b", "a"`, `"a"`, true, true},
		{`,, "a" ,`, `"a"`, true, true},
		{`W/"a"`, `"a"`, true, false},
		{`"a"`, `W/"a"`, true, false},
		{`W/"a"`, `W/"a"`, true, false},
		{`*`, `"a"`, true, true},
		{`"b"`, `"a"`, false, false},
		{`a`, `"a"`, false, false},
		{`"a`, `"a"`, false, false},
		{`b, "a"`, `"a"`, false, false},
		{``, `"a"`, false, false},
	} {
		if got := MatchesTag(c.list, c.tag, true); got != c.weak {
			t.Errorf("%s has %s weakly: %v", c.list, c.tag, got)
		}
		if got := MatchesTag(c.list, c.tag, false); got != c.strong {
			t.Errorf("%s has %s strongly: %v", c.list, c.tag, got)
		}
	}
}

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		value       string
		size        int64
		first, last int64
		result      RangeResult
	}{
		{"bytes=0-0", 10, 0, 0, RangeSatisfiable},
		{"Bytes=2-4", 10, 2, 4, RangeSatisfiable},
		{"bytes= 2-4 ", 10, 2, 4, RangeSatisfiable},
		{"bytes=2-", 10, 2, 9, RangeSatisfiable},
		{"bytes=-3", 10, 7, 9, RangeSatisfiable},
		{"bytes=-30", 10, 0, 9, RangeSatisfiable},
		{"bytes=2-99999999999999999999", 10, 2, 9, RangeSatisfiable},
		{"bytes=10-", 10, 0, 0, RangeUnsatisfiable},
		{"bytes=-0", 10, 0, 0, RangeUnsatisfiable},
		{"bytes=0-", 0, 0, 0, RangeUnsatisfiable},
		{"bytes=-1", 0, 0, 0, RangeUnsatisfiable},
		{"bytes=4-2", 10, 0, 0, RangeIgnored},
		{"bytes=1-2,4-5", 10, 0, 0, RangeIgnored},
		{"bytes=a-", 10, 0, 0, RangeIgnored},
		{"bytes=-", 10, 0, 0, RangeIgnored},
		{"bytes=", 10, 0, 0, RangeIgnored},
		{"lines=1-2", 10, 0, 0, RangeIgnored},
		{"", 10, 0, 0, RangeIgnored},
	} {
		if first, last, r := ParseRange(c.value, c.size); r != c.result || r == RangeSatisfiable && (first != c.first || last != c.last) {
			t.Errorf("%q of %d: %d-%d, %d", c.value, c.size, first, last, r)
		}
	}
}
