package config

import (
	"errors"
	"strings"
	"testing"
)

// A firewall that evaluates nothing, or a key of one that has no effect, is an error at its place.
func TestFirewallsAreChecked(t *testing.T) {
	of := func(listener, route string) string {
		text := strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l,"+listener, 1)
		return strings.Replace(text, "name: r,", "name: r,"+route, 1)
	}
	for _, c := range []struct{ text, want string }{
		{of(" waf: {mode: prevent},", ""), `waf lacks the key "rules"`},
		{of("", " waf: {},"), `waf lacks the key "rules"`},
		{of(" waf: {mode: off},", ""), `waf of listener "l" is off`},
		{of("", " waf: {mode: off},"), `waf of route "r" has no effect`},
		{of(" waf: {rules: a},", " waf: {mode: off, rules: b},"), "rules has no effect: mode is off"},
		{of(" waf: {rules: a, excess: pass},", ""), "excess has no effect: mode is detect"},
		{of(" waf: {rules: a, body_bytes: 9},", ""), "body_bytes"},
		{of(" waf: {rules: a, timeout: 1ms},", ""), "timeout"},
		{strings.Replace(kinds["tcp"], "protocol: TCP}]", "protocol: TCP, waf: {rules: a}}]", 1), "waf is for HTTP and HTTPS"},
	} {
		_, err := Parse("t", []byte(c.text))
		ce := new(Error)
		if !errors.As(err, &ce) || len(ce.Problems) == 0 || !strings.Contains(ce.Problems[0].Message, c.want) || ce.Problems[0].Line < 1 {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	c, err := Parse("t", []byte(of(" waf: {rules: [crs, 'x/*.conf'], mode: prevent},", " waf: {mode: off},")))
	if err != nil {
		t.Fatal(err)
	}
	if w, ofRoute := c.Listeners[0].WAFOf(&c.Routes[0]); w != nil || !ofRoute {
		t.Error("the route has the listener's firewall, which is off for it")
	}
	if w, ofRoute := c.Listeners[0].WAFOf(&Route{}); w != c.Listeners[0].WAF || ofRoute {
		t.Error("another route has not the listener's firewall")
	}
}
