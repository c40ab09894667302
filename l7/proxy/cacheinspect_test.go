package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
)

// inspects has the rig inspect requests and responses.
func (r *cachedRig) inspects(rules string) {
	e := inspect.New(compiledRules(r.t, rules, nil), inspect.Config{Inline: true, Refuse: true}, func(*inspect.Alert) {})
	r.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return e, inspect.Prevent })
}

// What inspection ends is not stored, whether it was held or not, and what it has held is stored whole.
func TestInspectedResponsesAreStored(t *testing.T) {
	for _, hold := range []int{0, 4, 1000} {
		r := newCachedRig(t, func(r *cachedRig) {
			for _, ln := range r.tree.Listeners {
				ln.Inspection = &Inspection{Policy: 1, Hold: hold}
			}
		})
		r.inspects(evilResponses + evilURI)
		bad := true
		r.reply = func(string) string {
			if bad {
				return response("a long secret", "Cache-Control: max-age=9")
			}
			return response("a fine content", "Cache-Control: max-age=9")
		}
		for i := range 2 {
			if got := r.get("/x"); strings.Contains(got, "secret") || len(r.seen) != i+1 {
				t.Errorf("hold %d: %q after %d requests", hold, got, len(r.seen))
			}
		}
		bad = false
		r.expect("the first", r.get("/x"), "200 a fine content fwd=uri-miss; stored", 3)
		r.expect("the second", r.get("/x"), "200 a fine content hit", 3)
		if got := r.get("/evil"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || len(r.seen) != 3 {
			t.Errorf("hold %d: %q", hold, got)
		}
	}
}

// A response that a listener without inspection has stored is none for one with it, and none is validated without.
func TestNothingUninspectedIsStored(t *testing.T) {
	r := newCachedRig(t, nil)
	r.inspects(evilResponses)
	text := "a secret"
	r.reply = func(string) string { return response(text, "Cache-Control: max-age=9, stale-while-revalidate=99") }
	r.expect("without inspection", r.get("/x"), "200 a secret fwd=uri-miss; stored", 1)
	r.tree.Listeners[0].Inspection = &Inspection{Policy: 1, Hold: 1000}
	if got := r.get("/x"); strings.Contains(got, "secret") || len(r.seen) != 2 {
		t.Errorf("%q", got)
	}
	text = "fine"
	r.expect("with inspection", r.get("/x"), "200 fine fwd=vary-miss; stored", 3)
	r.now = r.now.Add(10 * time.Second)
	text = "a secret"
	if got := r.get("/x"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || len(r.seen) != 4 {
		t.Errorf("%q after %d requests", got, len(r.seen))
	}
}

// Content of a GET that was held, all of it, is content.
func TestHeldContentPassesByTheCache(t *testing.T) {
	r := newCachedRig(t, func(r *cachedRig) { r.tree.Listeners[0].Inspection = &Inspection{Policy: 1, Hold: 1000} })
	r.inspects(evilBody)
	r.reply = func(string) string { return response("x", cacheable) }
	get := requestOf("GET", "/", "Content-Length: 3") + "abc"
	r.expect("with a length", r.ask(get), "200 x fwd=bypass", 1)
	r.reply = func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + cacheable + "\r\n\r\nx|" }
	get = requestOf("GET", "/", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n"
	r.expect("in chunks", r.ask(get), "200 x fwd=bypass", 3) // chunks look like a header to this backend
}
