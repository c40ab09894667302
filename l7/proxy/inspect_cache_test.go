package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
)

// newInspectedCache is a rig with a cache, whose listeners inspect responses by evilResponses.
func newInspectedCache(t *testing.T) (*cachedRig, *inspect.Engine) {
	t.Helper()
	r := newCachedRig(t, func(r *cachedRig) {
		for _, ln := range r.tree.Listeners {
			ln.Inspection = &Inspection{Policy: 1, Hold: 1000}
		}
	})
	e := inspect.New(compiledRules(t, evilResponses, nil), inspect.Config{Inline: true, Refuse: true}, func(*inspect.Alert) {})
	r.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return e, inspect.Prevent })
	return r, e
}

// cacheReleased checks that nothing is left.
func cacheReleased(t *testing.T, r *cachedRig, e *inspect.Engine) {
	t.Helper()
	for _, p := range r.peers {
		p.Close()
	}
	r.nothingLeft()
	if _, used := e.Flows(); used != 0 {
		t.Errorf("the engine holds %d bytes", used)
	}
}

// What is stored was inspected: a response that matches is not stored, nor is one that was held and is fine stored in part.
func TestResponsesAreInspectedBeforeTheyAreStored(t *testing.T) {
	r, e := newInspectedCache(t)
	text := "a secret"
	r.reply = func(string) string { return response(text, "Cache-Control: max-age=60") }
	r.expect("it matches", r.get("/a"), "502 502 Bad Gateway", 1)
	text = "fine content"
	r.expect("it is fine", r.get("/a"), "200 fine content fwd=uri-miss; stored", 2)
	r.expect("it is stored", r.get("/a"), "200 fine content hit", 2)
	cacheReleased(t, r, e)
}

// An error that is held gives way to a stored response, and none of its content gets into that.
func TestAStaleResponseInPlaceOfAHeldOne(t *testing.T) {
	r, e := newInspectedCache(t)
	r.reply = func(string) string { return response("fine content", "Cache-Control: max-age=5, stale-if-error=60") }
	r.get("/a")
	r.now = r.now.Add(10 * time.Second)
	r.reply = func(string) string { return "HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nbroken" }
	if got := brief(r.get("/a")); !strings.HasPrefix(got, "200 fine content ") {
		t.Errorf("%q", got)
	}
	r.reply = func(string) string { return response("a secret", "Cache-Control: max-age=5") }
	if got := brief(r.get("/a")); !strings.HasPrefix(got, "200 fine content ") { // an error of the gateway is one, too
		t.Errorf("%q", got)
	}
	cacheReleased(t, r, e)
}

// chosen is the policy in another mode, without some rules.
func chosen(prevent bool, except ...InspectedRule) *Inspection {
	i := &Inspection{Policy: 1}
	i.Choose(prevent, false, except)
	return i
}

// What was stored without inspection, or inspected otherwise, is none for a request whose rule inspects.
func TestStoredResponsesAreOfTheirInspection(t *testing.T) {
	r, e := newInspectedCache(t)
	fetched := 0
	r.reply = func(string) string { fetched++; return response("a secret", "Cache-Control: max-age=60") }
	rule, ln := r.tree.Listeners[0].Rules[0], r.tree.Listeners[0]
	ln.RulesInspect = true
	for n, i := range []*Inspection{
		{}, // off
		chosen(false),
		chosen(true, InspectedRule{1, 77}),
		nil, // the listener's, which ends it
	} {
		rule.Inspection = i
		if got := brief(r.get("/a")); fetched != n+1 || strings.HasPrefix(got, "200 a secret") != (i != nil && (i.Policy == 0 || i.choice.Mode == inspect.Detect)) && n != 2 {
			t.Errorf("%+v: %q, fetched %d times", i, got, fetched)
		}
	}
	rule.Inspection = &Inspection{}
	if got := brief(r.get("/a")); got != "200 a secret hit" || fetched != 4 {
		t.Errorf("%q, fetched %d times", got, fetched)
	}
	cacheReleased(t, r, e)
}
