package config

import (
	"strings"
	"testing"
)

func TestCollidingFieldsAreReadAndChecked(t *testing.T) {
	const text = `
listeners:
- {name: a, address: "198.18.0.1:80", protocol: HTTP}
- {name: b, address: "198.18.0.1:81", protocol: HTTP, colliding_fields: allow}
- {name: c, address: "198.18.0.1:82", protocol: TCP}
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
tcp_routes: [{name: s, backend_refs: [{name: q}]}]
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}, {name: q, protocol: TCP, backends: [{address: "198.18.1.1:80"}]}]
`
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []CollidingFields{CollidingDrop, CollidingAllow} {
		if got := c.Listeners[i].Colliding; got != want {
			t.Errorf("listener %d: %q, want %q", i, got, want)
		}
	}
	for wrong, want := range map[string]string{
		strings.Replace(text, "allow", "pass", 1):                                                "reject",
		strings.Replace(text, "protocol: TCP}\n", "protocol: TCP, colliding_fields: drop}\n", 1): "colliding_fields",
	} {
		if _, err := Parse("f", []byte(wrong)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
