package cache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/semantics"
)

// RFC 9213 2.1: CDN-Cache-Control is a dictionary. Without one, or with what is none, Cache-Control counts.
func TestTargetedControl(t *testing.T) {
	of := func(change func(c *Control)) Control {
		c := noControl()
		c.Targeted = true
		change(&c)
		return c
	}
	age := func(n time.Duration) Control { return of(func(c *Control) { c.MaxAge = n * time.Second }) }
	bits := func(d Directive) Control { return of(func(c *Control) { c.Directives = d }) }
	fallback := noControl()
	fallback.MaxAge = 7 * time.Second
	for _, tc := range []struct {
		values []string
		want   Control
	}{
		{nil, fallback},
		{[]string{""}, fallback},
		{[]string{"  "}, fallback},
		{[]string{"max-age=1,"}, fallback},
		{[]string{",max-age=1"}, fallback},
		{[]string{"max-age=1 no-store"}, fallback},
		{[]string{"Max-Age=1"}, fallback},
		{[]string{"max-age =1"}, fallback},
		{[]string{"max-age= 1"}, fallback},
		{[]string{"max-age="}, fallback},
		{[]string{"max-age=1, &&&&"}, fallback},
		{[]string{"max-age=1000000000000000"}, fallback},
		{[]string{"max-age=1."}, fallback},
		{[]string{"max-age=1.0000"}, fallback},
		{[]string{"max-age=--1"}, fallback},
		{[]string{`a="x`}, fallback},
		{[]string{`a="\x"`}, fallback},
		{[]string{"a=\"\x7f\""}, fallback},
		{[]string{"a=?2"}, fallback},
		{[]string{"a=:!:"}, fallback},
		{[]string{"a=:aa"}, fallback},
		{[]string{"a=(1 2"}, fallback},
		{[]string{"a=(1,2)"}, fallback},
		{[]string{"a=@1.5"}, fallback},
		{[]string{"a;B=1"}, fallback},
		{[]string{"a;b=="}, fallback},
		{[]string{`a=%"x"`}, fallback},
		{[]string{"max-age=1"}, age(1)},
		{[]string{"max-age=1", "no-store"}, of(func(c *Control) { c.MaxAge, c.Directives = time.Second, NoStore })},
		{[]string{"max-age=1 \t,\t s-maxage=2"}, of(func(c *Control) { c.MaxAge, c.SMaxAge = time.Second, 2*time.Second })},
		{[]string{"max-age=1, max-age=2, max-age=3"}, age(3)},
		{[]string{"max-age=9, a, max-age=2"}, age(2)},
		{[]string{"max-age=999999999999999"}, age(maxSeconds)},
		{[]string{"max-age=-1"}, age(0)},
		{[]string{"max-age=003"}, age(3)},
		{[]string{`max-age="1"`}, bits(0)},
		{[]string{"max-age=1.5"}, bits(0)},
		{[]string{"max-age"}, bits(0)},
		{[]string{"max-age=1;a;b=2;c=\"d, e\";  f=?0"}, age(1)},
		{[]string{`a=(1 "b, no-store" c;d  e);f, max-age=1`}, age(1)},
		{[]string{"a=(), b=:AA==:, c=*t/o:k, d=@-5, max-age=1"}, age(1)},
		{[]string{"no-store=?0, private=?0, no-cache=?0, must-revalidate=?0, proxy-revalidate=?0, public=?0, must-understand=?0"}, bits(0)},
		{[]string{"no-store=?1"}, bits(NoStore)},
		{[]string{"no-store=1, private=x, no-cache=(), must-revalidate=2, proxy-revalidate=3"}, bits(NoStore | Private | NoCache | MustRevalidate | ProxyRevalidate)},
		{[]string{"public=1, must-understand=a"}, bits(0)},
		{[]string{"public, must-understand, private, no-cache"}, bits(Public | MustUnderstand | Private | NoCache)},
		{[]string{`private="X-A, x-b", no-cache="c\"d"`}, of(func(c *Control) { c.Listed = []string{"x-a", "x-b", `c"d`} })},
		{[]string{"stale-while-revalidate=1, stale-if-error=2"}, of(func(c *Control) { c.StaleWhileRevalidate, c.StaleIfError = time.Second, 2*time.Second })},
	} {
		got := ControlOf(append(lines("cdn-cache-control", tc.values...), lines("cache-control", "max-age=7")...))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q: %s", tc.values, diff)
		}
	}
}

// RFC 9213 2.2: what is targeted counts in place of Cache-Control and Expires, whether it permits more or less. Credentials of a request
// are permitted by it too (RFC 9111 3.5).
func TestTargetedControlDecides(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		cdn, control, expires string
		authorized            bool
		lifetime              time.Duration // -1: not stored
	}{
		{"max-age=60", "no-store", "", false, 60 * time.Second},
		{"max-age=60", "private, max-age=1", "", false, 60 * time.Second},
		{"max-age=60", "", at.Add(time.Hour).Format(httpDate), false, 60 * time.Second},
		{"no-store", "max-age=60", "", false, -1},
		{"private", "max-age=60", "", false, -1},
		{"foo", "max-age=60", "", false, -1},
		{"foo", "", at.Add(time.Hour).Format(httpDate), false, -1},
		{"max-age=x;;", "max-age=60", "", false, 60 * time.Second},
		{"max-age=60", "public, s-maxage=9", "", true, -1},
		{"max-age=60, public", "private", "", true, 60 * time.Second},
	} {
		fields := lines("cdn-cache-control", tc.cdn)
		fields = append(fields, lines("cache-control", tc.control)...)
		if tc.expires != "" {
			fields = append(fields, lines("expires", tc.expires)...)
		}
		p := Policy{MaxObject: 1 << 20}
		e, why := p.New(&Request{Authorized: tc.authorized}, &Response{Status: 200, Fields: fields, Asked: at, Arrived: at})
		switch {
		case e == nil && tc.lifetime >= 0, e != nil && e.lifetime != tc.lifetime:
			t.Errorf("%+v: %v, %v", tc, e, why)
		case e != nil:
			if _, ok := field(e.Fields, "cdn-cache-control"); !ok {
				t.Errorf("%+v: caches behind this one do not get the field", tc)
			}
		}
	}
}

func FuzzTargetedControl(f *testing.F) {
	for _, s := range []string{"max-age=1", `a=("b" 1.5;c);d=:AA==:, no-store=?0`, "a=@1, b=*x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := parseTargeted([]semantics.Field{{Name: "cdn-cache-control", Value: s}})
		if ok && (c.MaxAge < unset || c.MaxAge > maxSeconds*time.Second) {
			t.Errorf("%q: %+v", s, c)
		}
	})
}
