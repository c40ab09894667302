package rewrite

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/semantics"
)

func field(line string) semantics.Field {
	name, value, _ := strings.Cut(line, ": ")
	return semantics.Field{Name: name, Value: value}
}

func fieldsOf(lines ...string) (list []semantics.Field) {
	for _, l := range lines {
		list = append(list, field(l))
	}
	return list
}

func text(fields []semantics.Field) string {
	var lines []string
	for _, f := range fields {
		lines = append(lines, f.Name+": "+f.Value)
	}
	return strings.Join(lines, "\n")
}

// Random edits of random fields give what Del, Set and Add of net/http give.
func TestHeadersAgainstNetHTTP(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		draw := func(n int) (list []semantics.Field) {
			for range rng.IntN(n) {
				list = append(list, semantics.Field{Name: string(rune('a' + rng.IntN(5))), Value: fmt.Sprint(rng.IntN(100))})
			}
			return list
		}
		in := draw(8)
		h := Headers{Set: draw(4), Add: draw(4)}
		for _, f := range draw(3) {
			h.Remove = append(h.Remove, f.Name)
		}
		want := http.Header{}
		for _, f := range in {
			want.Add(f.Name, f.Value)
		}
		for _, name := range h.Remove {
			want.Del(name)
		}
		for _, f := range h.Set {
			want.Set(f.Name, f.Value)
		}
		for _, f := range h.Add {
			want.Add(f.Name, f.Value)
		}
		got := http.Header{}
		for _, f := range h.Apply(slices.Clone(in)) {
			got.Add(f.Name, f.Value)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: %v by %+v: %v, want %v", seed, in, h, got, want)
		}
	}
}

func TestAFieldThatIsSetKeepsItsPlace(t *testing.T) {
	h := Headers{Set: fieldsOf("b: 9")}
	if got := text(h.Apply(fieldsOf("a: 1", "b: 2", "c: 3", "b: 4", "d: 5"))); got != "a: 1\nb: 9\nc: 3\nd: 5" {
		t.Error(got)
	}
}

func TestCookies(t *testing.T) {
	for _, x := range []struct {
		lines      []string
		name, want string
		ok         bool
	}{
		{[]string{"cookie: a=1; b=2; c=3"}, "b", "2", true},
		{[]string{"cookie: a=1", "x: y", "cookie: b=2"}, "b", "2", true}, // crumbs of HTTP/2
		{[]string{"cookie: a=1;b=2"}, "b", "2", true},
		{[]string{"cookie: a=1 ;\t b = 2 "}, "b", "2", true},
		{[]string{"cookie: b=1; b=2"}, "b", "1", true},
		{[]string{"cookie: b=x=y"}, "b", "x=y", true},
		{[]string{`cookie: b="q"`}, "b", `"q"`, true},
		{[]string{"cookie: b="}, "b", "", true},
		{[]string{"cookie: b"}, "b", "", false},
		{[]string{"cookie: bb=1; B=2"}, "b", "", false},
		{[]string{"cookie: ;;=;"}, "b", "", false},
		{[]string{"set-cookie: b=1"}, "b", "", false},
		{nil, "b", "", false},
	} {
		if got, ok := Cookie(fieldsOf(x.lines...), x.name); got != x.want || ok != x.ok {
			t.Errorf("%s of %q: %q %v", x.name, x.lines, got, ok)
		}
	}
}

// FuzzCookie compares with net/http, which skips cookies with bytes that we take, keeps blanks inside of a value's ends,
// takes off quotes, and takes a name alone for a
// cookie.
func FuzzCookie(f *testing.F) {
	f.Add("a=1; b=2", "b")
	f.Add(` b="x y" ;;= `, "b")
	f.Fuzz(func(t *testing.T, line, name string) {
		if !semantics.IsValue(line) {
			return
		}
		got, ok := Cookie([]semantics.Field{{Name: "cookie", Value: line}}, name)
		r := http.Request{Header: http.Header{"Cookie": {line}}}
		c, err := r.Cookie(name)
		if err != nil || c.Quoted || strings.Count(line, name) > 1 {
			return
		}
		if want := textproto.TrimString(c.Value); got != want || !ok && want != "" {
			t.Errorf("%q of %q: %q %v, net/http has %q", name, line, got, ok, want)
		}
	})
}

func TestSetCookie(t *testing.T) {
	for _, x := range []struct {
		s    Sticky
		tls  bool
		want http.Cookie
	}{
		{Sticky{Name: "millrace"}, false, http.Cookie{Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		{Sticky{"srv", 90 * time.Second}, true, http.Cookie{Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: true, MaxAge: 90}},
	} {
		line := string(x.s.AppendSetCookie(nil, "AbC-_123456", x.tls))
		got, err := http.ParseSetCookie(line)
		x.want.Name, x.want.Value = x.s.Name, "AbC-_123456"
		if err != nil || got.String() != x.want.String() {
			t.Errorf("%s: %v, %v, want %v", line, got, err, &x.want)
		}
	}
}

func TestKeys(t *testing.T) {
	s := Source{
		Fields: fieldsOf("x-user: ann", "x-user: bob", "cookie: id=7; lang=de"), Path: "/a/b", Query: "?x=1&y=2&x=3",
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	secret := random.Key{1, 2}
	of := func(by KeyBy, name string) uint64 { return (&Key{by, name, secret}).Of(&s) }
	for _, x := range []struct {
		by   KeyBy
		name string
		want string
	}{{ByHeader, "x-user", "ann"}, {ByCookie, "lang", "de"}, {ByQuery, "x", "1"}, {ByQuery, "y", "2"}, {ByPath, "", "/a/b"}} {
		if got := of(x.by, x.name); got != secret.Sum([]byte(x.want)) {
			t.Errorf("%v %s is not the hash of %s", x.by, x.name, x.want)
		}
	}
	a := s.Client.As16()
	for _, x := range []struct {
		by   KeyBy
		name string
	}{{ByClient, ""}, {ByHeader, "x-none"}, {ByCookie, "none"}, {ByQuery, "none"}} {
		mapped := netip.MustParseAddr("::ffff:192.0.2.1")
		if got := of(x.by, x.name); got != secret.Sum(a[:]) || got != (&Key{Secret: secret}).Of(&Source{Client: mapped}) {
			t.Errorf("%v %s is not the hash of the client", x.by, x.name)
		}
	}
	if of(ByPath, "") == (&Key{By: ByPath}).Of(&s) {
		t.Error("the secret changes nothing")
	}
}

func TestWhichRequestsMayBeRepeated(t *testing.T) {
	for _, x := range []struct {
		a    Attempt
		want bool
	}{
		{Attempt{Method: "GET", Sent: true}, true},
		{Attempt{Method: "PUT", Sent: true}, true},
		{Attempt{Method: "POST", Sent: true}, false},
		{Attempt{Method: "PATCH", Sent: true}, false},
		{Attempt{Method: "CONNECT", Sent: true}, false},
		{Attempt{Method: "get", Sent: true}, false},
		{Attempt{Method: "POST"}, true},
		{Attempt{Method: "POST", Sent: true, Unprocessed: true}, true},
		{Attempt{Method: "GET", Streamed: true}, false},
		{Attempt{Method: "GET", Sent: true, Responded: true}, false},
		{Attempt{Method: "POST", Unprocessed: true, Streamed: true}, false},
	} {
		if got := x.a.MayRepeat(); got != x.want {
			t.Errorf("%+v: %v", x.a, got)
		}
	}
}

var rfc9110 = map[string]bool{ // 9.3: is it idempotent?
	"GET": true, "HEAD": true, "POST": false, "PUT": true, "DELETE": true, "CONNECT": false, "OPTIONS": true, "TRACE": true,
}

func TestIdempotentMethods(t *testing.T) {
	for method, want := range rfc9110 {
		if Idempotent(method) != want {
			t.Errorf("%s: %v", method, !want)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	in := fieldsOf("host: a.example", "x-forwarded-for: 198.51.100.7", "cookie: id=7", "via: 1.1 other", "accept: */*")
	fields := make([]semantics.Field, 0, 32)
	buf := make([]byte, 0, 512)
	h := Headers{Set: fieldsOf("x-a: b", "accept: text/html"), Add: fieldsOf("x-c: d"), Remove: []string{"cookie"}}
	rw := Rewrite{Hostname: "b.example", Path: PathModifier{ReplacePrefixMatch, "/new", "/old"}}
	rd := Redirect{Scheme: "https", Path: PathModifier{ReplacePrefixMatch, "/new", "/old"}}
	key := Key{By: ByCookie, Name: "id"}
	peer := Peer{Addr: netip.MustParseAddr("192.0.2.1"), Authority: "a.example"}
	sticky := Sticky{Name: "s", MaxAge: time.Hour}
	for _, style := range []Style{StyleX, StyleForwarded, StyleNone} {
		fw := Forwarding{Style: style, Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		if n := testing.AllocsPerRun(100, func() {
			list, b := append(fields, in...), buf
			fw.Client(list, peer.Addr)
			list, b = fw.Apply(list, b, &peer)
			key.Of(&Source{Fields: list, Path: "/old/x"})
			list, b = Via(list, b, "1.1", "millrace")
			h.Apply(list)
			m := semantics.Message{Path: "/old/x?q", Authority: "a.example"}
			b = rw.Apply(&m, b, "/old/x", "?q")
			b = rd.AppendLocation(b, &Target{Port: 80, Authority: "a.example", Path: "/old/x", Query: "?q"})
			sticky.AppendSetCookie(b, "token", true)
		}); n != 0 {
			t.Errorf("style %v: %v allocations", style, n)
		}
	}
}

func BenchmarkForwarding(b *testing.B) {
	in := fieldsOf("accept: */*", "user-agent: x", "accept-encoding: gzip", "cookie: id=7", "x-request-id: 4711")
	fields, buf := make([]semantics.Field, 0, 32), make([]byte, 0, 512)
	var fw Forwarding
	peer := Peer{Addr: netip.MustParseAddr("192.0.2.1"), Authority: "a.example"}
	for b.Loop() {
		fw.Apply(append(fields, in...), buf, &peer)
	}
}
