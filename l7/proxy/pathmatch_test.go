package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// pathRule is a rule of a generated table. Its number is in the field x-rule that the backend gets.
type pathRule struct {
	path   route.Path
	denies bool
	form   PathForm
}

// randomPathRules returns the rules of a table. The last one takes every path.
func randomPathRules(rnd *rand.Rand) (rules []pathRule) {
	segments := []string{"/a", "/b", "/admin", "/x.y"}
	for range 1 + rnd.IntN(5) {
		value := ""
		for range 1 + rnd.IntN(3) {
			value += segments[rnd.IntN(len(segments))]
		}
		r := pathRule{path: route.Path{Type: route.PathType(rnd.IntN(2)), Value: value}, denies: rnd.IntN(2) == 0, form: PathForm(rnd.IntN(2))}
		if rnd.IntN(5) == 0 {
			r.path = route.Path{Type: route.PathRegexp, Value: value + `(/[a-z]*)?`}
		}
		rules = append(rules, r)
	}
	return append(rules, pathRule{path: route.Path{Value: "/"}, form: PathForm(rnd.IntN(2))})
}

// randomTarget returns a request target, in which parts stand that recipients resolve, decode or drop.
func randomTarget(rnd *rand.Rand) string {
	parts := []string{
		"/a", "/b", "/admin", "/x.y", "/", "//", "/.", "/..", "/../..", "/%2e", "/%2E%2e", "/.%2e/", "/%61", "/%62dmin", "/admi%6e", "%2f", "%2F..%2Fadmin", "/..;/",
		";v=1", "/x%2ey", "/7", "/%7Eu", "/%c3%a9", "\\..\\", "/...", "/a%20b", "/%252e%252e/", "/..",
	}
	target := ""
	for range 1 + rnd.IntN(7) {
		target += parts[rnd.IntN(len(parts))]
	}
	if target[0] != '/' {
		target = "/" + target
	}
	return target + []string{"", "", "?", "?q=/../admin", "?a//b"}[rnd.IntN(5)]
}

// wins returns the rule that has a path, by the order of Gateway API alone: exact, regular expression, longest prefix.
func wins(rules []pathRule, p string) (best int) {
	best, rank := -1, -1
	for i, r := range rules {
		n := -1
		switch v := strings.TrimSuffix(r.path.Value, "/"); r.path.Type {
		case route.PathExact:
			if p == r.path.Value {
				n = 2000
			}
		case route.PathRegexp:
			if regexp.MustCompile("^(" + r.path.Value + ")$").MatchString(p) {
				n = 1000
			}
		case route.PathPrefix:
			if p == v || strings.HasPrefix(p, v+"/") {
				n = len(v)
			}
		}
		if n > rank {
			best, rank = i, n
		}
	}
	return best
}

// readings are the paths that a backend serves which decodes all of a path, as WSGI has it, and may then resolve dot segments.
func readings(p string) []string {
	s, err := url.PathUnescape(p)
	if err != nil {
		return nil
	}
	out := path.Clean(s)
	if out != "/" && (strings.HasSuffix(s, "/") || strings.HasSuffix(s, "/.") || strings.HasSuffix(s, "/..")) {
		out += "/"
	}
	return []string{s, out}
}

// checkSeen compares the request that the backend has received with the rules.
func checkSeen(rules []pathRule, sent string, got *wrongcases.Request) error {
	wantPath, wantQuery, _ := strings.Cut(sent, "?")
	seen, query, _ := strings.Cut(got.Target, "?")
	number, _ := got.Field("x-rule")
	i := wins(rules, seen)
	switch {
	case number != fmt.Sprint(i):
		return fmt.Errorf("rule %s was matched, and %q is a path of rule %d", number, seen, i)
	case rules[i].denies:
		return fmt.Errorf("%q is denied", seen)
	case query != wantQuery || strings.Contains(sent, "?") != strings.Contains(got.Target, "?"):
		return fmt.Errorf("the query is %q", query)
	case rules[i].form == RawPath && seen != wantPath:
		return fmt.Errorf("%q was not sent as it came", seen)
	}
	for _, read := range readings(seen) {
		if j := wins(rules, read); j != i {
			return fmt.Errorf("%q is served as %q, of rule %d in place of %d", seen, read, j, i)
		}
	}
	if normal, _, err := semantics.NormalizePath(nil, seen); rules[i].form == NormalPath && (err != nil || normal != seen) {
		return fmt.Errorf("%q is not in its normal form, %q", seen, normal)
	}
	return nil
}

// usePathRules gives listeners the rules, and their backend the numbers of those.
func usePathRules(tb testing.TB, rules []pathRule, to *Rule, listeners []*Listener) {
	tb.Helper()
	var list []route.Rule
	var all []*Rule
	for i, r := range rules {
		list = append(list, route.Rule{Name: fmt.Sprint(i), Match: route.Match{Path: r.path}})
		one := *to
		one.PathForm = r.form
		one.RequestHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-rule", Value: fmt.Sprint(i)}}}
		if r.denies {
			one = Rule{Response: &Response{Status: 403}}
		}
		all = append(all, &one)
	}
	table, err := route.New(list)
	if err != nil {
		tb.Fatal(err)
	}
	for _, ln := range listeners {
		ln.Table, ln.Rules = table, all
	}
}

// What a rule has matched is what the backend gets, byte for byte: generated rules and targets, with HTTP/1.1 and HTTP/2.
func TestTheBackendGetsThePathThatWasMatched(t *testing.T) {
	passed, refused := 0, 0
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 33))
		rules := randomPathRules(rnd)
		back := &recorder{}
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			r.backend = back.serve
			usePathRules(t, rules, r.rule, tree.Listeners)
		})
		for range 150 {
			target := randomTarget(rnd)
			c := newMemClient2(r)
			for version, ask := range map[string]func() int{
				"HTTP/1.1": func() int { return statusOf(t, r.ask("GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")) },
				"HTTP/2":   func() int { return c.ask("GET", target).status },
			} {
				before := len(back.connections)
				status := ask()
				requests := back.since(before)
				switch {
				case len(requests) == 0 && (status == 400 || status == 403):
					refused++
				case len(requests) == 1 && status == 200:
					passed++
					if err := checkSeen(rules, target, &requests[0]); err != nil {
						t.Errorf("seed %d, %s, GET %s: %v; rules %+v", seed, version, target, err, rules)
					}
				default:
					t.Fatalf("seed %d, %s, GET %s: status %d, %d requests at the backend", seed, version, target, status, len(requests))
				}
				if len(requests) > 0 { // the next one gets a connection of its own
					r.backs[len(r.backs)-1].Close()
					r.run()
				}
			}
			c.p.Close()
			r.run()
		}
		r.nothingLeft()
	}
	if passed < 5000 || refused < 2000 {
		t.Errorf("%d passed, %d refused: the generator should make more of both", passed, refused)
	}
}

// since returns the requests that have been received on connections from number n on.
func (b *recorder) since(n int) (all []wrongcases.Request) {
	for _, c := range b.connections[n:] {
		requests, _ := wrongcases.Parse(c)
		all = append(all, requests...)
	}
	return all
}

func statusOf(t *testing.T, answer string) (status int) {
	t.Helper()
	if _, err := fmt.Sscanf(answer, "HTTP/1.1 %d", &status); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	return status
}

// The same with HTTP/3, over the kernel's sockets.
func TestTheBackendGetsThePathThatWasMatchedHTTP3(t *testing.T) {
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 34))
		rules := randomPathRules(rnd)
		backend, got := recordingBackend(t)
		r := http3Rig(t, backend, func(r *rig) { usePathRules(t, rules, r.rule, r.tree.Listeners) })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		conn := r.dial3(ctx, quicSocket(t), nil)
		passed := 0
		for range 60 {
			target := randomTarget(rnd)
			c := wrongcases.FieldCase{Fields: []wrongcases.Field{{":method", "GET"}, {":scheme", "https"}, {":authority", "gateway.test"}, {":path", target}}}
			ask3(t, ctx, conn, &c)
			for _, b := range got.take() {
				requests, err := wrongcases.Parse(b)
				must(t, err)
				for i := range requests {
					passed++
					if err := checkSeen(rules, target, &requests[i]); err != nil {
						t.Errorf("seed %d, GET %s: %v; rules %+v", seed, target, err, rules)
					}
				}
			}
		}
		if passed == 0 {
			t.Errorf("seed %d: nothing reached the backend", seed)
		}
		cancel()
	}
}

// ask3 sends a request on a connection of HTTP/3, and waits for the end of the response.
func ask3(t *testing.T, ctx context.Context, conn *quic.Conn, c *wrongcases.FieldCase) {
	t.Helper()
	s, err := conn.OpenStream(ctx)
	must(t, err)
	if s.ID() == 0 {
		control, err := conn.OpenUniStream(ctx)
		must(t, err)
		_, err = io.WriteString(control, "\x00\x04\x00") // its type, and SETTINGS without any
		must(t, err)
	}
	_, err = io.WriteString(s, c.HTTP3())
	must(t, err)
	_ = s.Close() // it fails where a complete answer came first, and with it a request to stop (RFC 9114 4.1)
	must(t, s.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadAll(s)
	must(t, err)
}

// A rule that denies a path holds for every target that a real server serves under it: net/http's mux resolves dot segments.
func TestDotSegmentsDoNotGoAroundARule(t *testing.T) {
	backend := served(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RequestURI, "/admin") {
			w.Header().Set("X-Admin", "1")
		}
	})
	for _, form := range []PathForm{NormalPath, RawPath} {
		rules := []pathRule{{path: route.Path{Value: "/admin"}, denies: true}, {path: route.Path{Value: "/"}, form: form}}
		r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) { usePathRules(t, rules, r.rule, r.tree.Listeners) })
		for _, target := range []string{
			"/admin/delete/7/../../..", "/admin/..", "/admin/%2e%2e", "/admin/..?q", "/admin/../", "/admin/x/../../", "/admin/.%2E?a=b",
		} {
			for _, h2 := range []bool{false, true} {
				resp, err := r.client(h2).Do(&http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: r.secure, Opaque: target}, Host: "gateway.test"})
				must(t, err)
				_ = resp.Body.Close()
				want := map[PathForm]int{NormalPath: 200, RawPath: 400}[form]
				if resp.Header.Get("X-Admin") != "" || resp.StatusCode != want {
					t.Errorf("form %d, h2 %v, %s: status %d, want %d; served as one of /admin: %q", form, h2, target, resp.StatusCode, want, resp.Header.Get("X-Admin"))
				}
			}
		}
	}
}

// A raw path arrives as it was sent: keys of object stores and signed URLs depend on every byte.
func TestRawPathsArriveAsTheyWereSent(t *testing.T) {
	for target, want := range map[string]string{
		"/bucket//key": "200", "/bucket/%7Euser/a%2Fb?X-Signature=a%2fb": "200", "/bucket/%c3%a9": "200", "//": "200", "/bucket/a+b//": "200", "/bucket/...": "200",
		"/bucket/../key": "400", "/bucket/./key": "400", "/bucket/%2e%2E": "400", "/bucket/..": "400", "/.": "400", // a backend may resolve these
		"//admin/x": "403", "/%61dmin": "403", "/bucket/..%2fadmin": "400", "/admin%2fx": "400", "/bucket;v=1/x": "200",
		"/bucket//exact": "400", "/%62ucket/exact": "400", "/bucket/exact": "200", // as it is, a path of another rule
	} {
		rules := []pathRule{
			{path: route.Path{Value: "/admin"}, denies: true},
			{path: route.Path{Type: route.PathExact, Value: "/bucket/exact"}, form: RawPath},
			{path: route.Path{Value: "/"}, form: RawPath},
		}
		back := &recorder{}
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			r.backend = back.serve
			usePathRules(t, rules, r.rule, tree.Listeners)
		})
		got := r.ask("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%s: %.100q, want %s", target, got, want)
		}
		if requests := back.since(0); want == "200" && (len(requests) != 1 || requests[0].Target != target) {
			t.Errorf("%s: the backend got %+v", target, requests)
		}
		r.nothingLeft()
	}
}

// A rewrite of a raw path replaces its prefix, and leaves the rest as it was sent.
func TestRawPathsAreRewritten(t *testing.T) {
	for target, want := range map[string]string{"/bucket//key%7e?a//b": "/store//key%7e?a//b", "/bucket": "/store", "/bucket/a%2fb": "/store/a%2fb"} {
		back := &recorder{}
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			r.backend = back.serve
			usePathRules(t, []pathRule{{path: route.Path{Value: "/bucket"}, form: RawPath}}, r.rule, tree.Listeners)
			tree.Listeners[0].Rules[0].Rewrite = &rewrite.Rewrite{Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Value: "/store", Prefix: "/bucket"}}
		})
		r.ask("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if requests := back.since(0); len(requests) != 1 || requests[0].Target != want {
			t.Errorf("%s: the backend got %+v, want %s", target, requests, want)
		}
		r.nothingLeft()
	}
}
