package cache

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

// lines returns the lines of a field.
func lines(name string, values ...string) (fields []semantics.Field) {
	for _, v := range values {
		fields = append(fields, semantics.Field{Name: name, Value: v})
	}
	return fields
}

// RFC 9111 5.2, and what is malformed.
func TestParseControl(t *testing.T) {
	none := Control{MaxAge: unset, SMaxAge: unset, MaxStale: unset, MinFresh: unset, StaleWhileRevalidate: unset, StaleIfError: unset}
	with := func(change func(c *Control)) Control {
		c := none
		change(&c)
		return c
	}
	age := func(s time.Duration) Control { return with(func(c *Control) { c.MaxAge = s * time.Second }) }
	for _, tc := range []struct {
		values []string
		want   Control
	}{
		{nil, none},
		{[]string{""}, none},
		{[]string{" , ,"}, none},
		{[]string{"no-store"}, with(func(c *Control) { c.Directives = NoStore })},
		{[]string{"No-StOrE,PRIVATE"}, with(func(c *Control) { c.Directives = NoStore | Private })},
		{[]string{"public", "must-revalidate, proxy-revalidate", "must-understand"}, with(func(c *Control) {
			c.Directives = Public | MustRevalidate | ProxyRevalidate | MustUnderstand
		})},
		{[]string{"max-age=3600"}, age(3600)},
		{[]string{"MaX-aGe=3600"}, age(3600)},
		{[]string{`max-age="3600"`}, age(3600)},
		{[]string{"max-age=003600"}, age(3600)},
		{[]string{"max-age=99999999999999999999"}, age(maxSeconds)},
		{[]string{"max-age=1, max-age=1800"}, age(1)},
		{[]string{"max-age=1800", "max-age=1"}, age(1800)},
		{[]string{"max-age"}, age(0)},
		{[]string{"max-age="}, age(0)},
		{[]string{"max-age=-3600"}, age(0)},
		{[]string{"max-age=3600.5"}, age(0)},
		{[]string{"max-age='3600'"}, age(0)},
		{[]string{"max-age =3600"}, age(0)},
		{[]string{"max-age= 3600"}, age(0)},
		{[]string{`max-age="3600"x`}, age(0)},
		{[]string{`extension="max-age=3600", max-age=1`}, age(1)},
		{[]string{`max-age=1, extension="a\", max-age=3600"`}, age(1)},
		{[]string{`foo bar "a, max-age=9", max-age=2`}, age(2)},
		{[]string{`="x, max-age=9", max-age=2`}, age(2)},
		{[]string{`"unterminated, max-age=9`}, none},
		{[]string{"s-maxage=5, stale-while-revalidate=6, stale-if-error=7"}, with(func(c *Control) {
			c.SMaxAge, c.StaleWhileRevalidate, c.StaleIfError = 5*time.Second, 6*time.Second, 7*time.Second
		})},
		{[]string{"stale-if-error=x"}, with(func(c *Control) { c.StaleIfError = 0 })},
		{[]string{"max-stale, only-if-cached"}, with(func(c *Control) { c.Directives = AnyStale | OnlyIfCached })},
		{[]string{"max-stale=9, min-fresh=8"}, with(func(c *Control) { c.MaxStale, c.MinFresh = 9*time.Second, 8*time.Second })},
		{[]string{"max-stale=x, min-fresh=x"}, with(func(c *Control) { c.MaxStale, c.MinFresh = 0, maxSeconds*time.Second })},
		{[]string{"no-cache"}, with(func(c *Control) { c.Directives = NoCache })},
		{[]string{"no-cache=x"}, with(func(c *Control) { c.Directives = NoCache })},
		{[]string{`no-cache="Set-Cookie, a", private="b"`}, with(func(c *Control) { c.Listed = []string{"set-cookie", "a", "b"} })},
	} {
		fields := append(lines("cache-control", tc.values...), lines("pragma", "no-cache")...)
		if diff := cmp.Diff(tc.want, ParseControl(fields)); diff != "" {
			t.Errorf("%q: %s", tc.values, diff)
		}
	}
}

// RFC 9111 4.1.
func TestVary(t *testing.T) {
	for _, tc := range []struct {
		values []string
		names  []string
		ok     bool
	}{
		{nil, nil, true},
		{[]string{"Foo, Bar", " foo,, baz"}, []string{"bar", "baz", "foo"}, true},
		{[]string{"*"}, nil, false},
		{[]string{"foo, *"}, nil, false},
		{[]string{"foo bar"}, nil, false},
		{[]string{strings.Repeat("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,", 2)}, strings.Split("a b c d e f g h i j k l m n o p", " "), true},
		{[]string{"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, nil, false},
	} {
		names, ok := parseVary(lines("vary", tc.values...))
		if diff := cmp.Diff(tc.names, names); diff != "" || ok != tc.ok {
			t.Errorf("%q: %v, %s", tc.values, ok, diff)
		}
	}
	same := func(name string, a, b []string) bool {
		return selects(varying([]string{name}, lines(name, a...)), lines(name, b...))
	}
	for _, tc := range []struct {
		name string
		a, b []string
		same bool
	}{
		{"foo", []string{"1"}, []string{"1"}, true},
		{"foo", []string{"1"}, []string{"2"}, false},
		{"foo", []string{"1"}, nil, false},
		{"foo", nil, nil, true},
		{"foo", []string{"1, 2"}, []string{"1", "2"}, true},
		{"foo", []string{"1,2"}, []string{" 1 ,  2 "}, true},
		{"foo", []string{"1,2"}, []string{"2,1"}, false},
		{"foo", []string{"a"}, []string{"A"}, false},
		{"accept-language", []string{"en, de"}, []string{"De,EN"}, true},
		{"accept-language", []string{"en"}, []string{"de"}, false},
		{"accept-encoding", []string{"gzip, br;q=0.5"}, []string{"br;q=0.5", "GZIP"}, true},
		{"accept-encoding", []string{"gzip;q=0"}, []string{"gzip"}, false},
	} {
		if got := same(tc.name, tc.a, tc.b); got != tc.same {
			t.Errorf("%s: %q and %q: %v", tc.name, tc.a, tc.b, got)
		}
	}
}

// FuzzFields has Cache-Control, Vary and Range of any octets: nothing of them panics, loops, or makes a time below 0 or a part beyond the
// content.
func FuzzFields(f *testing.F) {
	f.Add("max-age=1, no-cache=\"a\\\"b\", s-maxage=\"2\"", "foo, *", "bytes=1-2", "bytes=-1")
	f.Add("\"", ",", "bytes=", "x")
	f.Fuzz(func(t *testing.T, control, vary, ranges, condition string) {
		c := ParseControl(lines("cache-control", control, control))
		for _, d := range []time.Duration{c.MaxAge, c.SMaxAge, c.MaxStale, c.MinFresh, c.StaleWhileRevalidate, c.StaleIfError} {
			if d < unset || d > maxSeconds*time.Second {
				t.Fatalf("%q: %v", control, d)
			}
		}
		if again := ParseControl(lines("cache-control", control)); again.MaxAge != c.MaxAge || again.Directives != c.Directives {
			t.Fatalf("%q twice differs: %+v, %+v", control, again, c)
		}
		names, ok := parseVary(lines("vary", vary))
		if len(names) > maxVary || !ok && names != nil {
			t.Fatalf("%q: %q", vary, names)
		}
		if v := varying(names, lines("foo", control, vary)); !selects(v, lines("foo", control, vary)) {
			t.Fatalf("%q: a request does not select its own response", control)
		}
		e := testEntry(nil, "0123456789")
		fields := append(lines("range", ranges), lines("if-none-match", condition)...)
		a := e.Answer("GET", fields)
		if a.Status == 206 && (len(a.Body) == 0 || int64(len(a.Body)) != a.Length || !strings.Contains("0123456789", string(a.Body))) {
			t.Fatalf("%q: %+v", ranges, a)
		}
		var text []byte
		a.AppendFields(nil, &text, start)
		semantics.ParseDate(condition)
	})
}
