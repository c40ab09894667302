package pool

import (
	"strings"
	"testing"
	"time"
)

func TestTokensNameTheirBackends(t *testing.T) {
	o := Options{Name: "api", Secret: []byte("a secret of the site")}
	p, other := newPool(t, o, same(50)), newPool(t, o, same(60))
	seen := map[string]bool{}
	for _, b := range p.Backends() {
		token := p.Token(b)
		if len(token) != TokenLen || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" || seen[token] {
			t.Errorf("token %q", token)
		}
		seen[token] = true
		if got, why := p.FromToken(0, token); got != b {
			t.Errorf("%s is %v, %v", token, got, why)
		}
		if got, _ := other.FromToken(0, token); got == nil || got.Name() != b.Name() {
			t.Errorf("another gateway takes %s for %v", token, got)
		}
	}
	b := p.Backends()[0]
	token := p.Token(b)
	for name, strange := range map[string]Options{
		"another secret": {Name: "api", Secret: []byte("b")}, "another pool": {Name: "web", Secret: o.Secret}, "no secret": {Name: "api"},
	} {
		if got, _ := newPool(t, strange, same(50)).FromToken(0, token); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, wrong := range []string{"", "a", token[:10], token + "A", token[:10] + "=", "!!!!!!!!!!!", token[:10] + "é"} {
		if got, why := p.FromToken(0, wrong); got != nil || why != NoBackend {
			t.Errorf("%q is %v, %v", wrong, got, why)
		}
	}
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", token[10])
	for bits := range 3 { // the last character has two bits to spare: one token, one spelling
		c := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last^(bits+1)]
		if got, _ := p.FromToken(0, token[:10]+string(c)); got != nil {
			t.Errorf("%q is taken for %q", token[:10]+string(c), token)
		}
	}
}

func TestSessionsFollowTheStateOfTheirBackend(t *testing.T) {
	o := Options{PerBackend: Limits{Requests: 1}, Limits: Limits{Requests: 2}, Outlier: &Outlier{Errors: 1, Down: 10 * time.Second}}
	p := newPool(t, o, same(3))
	a, b, c := p.ByName("a"), p.ByName("b"), p.ByName("c")
	token := p.Token(a)
	expect := func(what string, want *Backend, why Refusal) {
		t.Helper()
		if got, reason := p.FromToken(0, token); got != want || reason != why {
			t.Errorf("%s: %v, %v, want %v, %v", what, got, reason, want, why)
		}
	}
	expect("at first", a, NotRefused)
	a.SetState(0, Draining)
	expect("draining", a, NotRefused)
	a.SetState(0, Inactive)
	expect("inactive", nil, NoBackend)
	a.SetState(0, Active)
	a.SetWeight(0, 0)
	expect("weight 0", a, NotRefused)
	a.ResetWeight(0)
	a.SetHealthy(0, false, nil)
	expect("unhealthy", nil, Unhealthy)
	a.SetHealthy(0, true, nil)
	a.Start(0)
	expect("full", nil, Full)
	b.Start(0)
	expect("pool full", nil, PoolFull)
	b.Done(0, Outcome{Status: 200})
	a.Done(0, Outcome{Status: 500})
	expect("ejected", nil, Unhealthy)
	if got, _ := p.FromToken(10*second, token); got != a {
		t.Errorf("after the ejection: %v", got)
	}
	if err := p.Update(10*second, o, same(3)[1:]); err != nil {
		t.Fatal(err)
	}
	if got, why := p.FromToken(10*second, token); got != nil || why != NoBackend {
		t.Errorf("after it was removed: %v, %v", got, why)
	}
	if got, _ := p.FromToken(10*second, p.Token(c)); got != c {
		t.Errorf("another one: %v", got)
	}
}
