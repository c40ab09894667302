package config

import (
	"strings"
	"testing"
)

func TestForwardPathIsReadAndChecked(t *testing.T) {
	const text = `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes:
- {name: a, rules: [{backend_refs: [{name: p}]}]}
- {name: b, forward_path: raw, rules: [{matches: [{path: {value: /b}}], backend_refs: [{name: p}]}]}
- {name: c, forward_path: normalized, rules: [{matches: [{path: {value: /c}}], backend_refs: [{name: p}]}]}
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
`
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []ForwardPath{ForwardNormalized, ForwardRaw, ForwardNormalized} {
		if got := c.Routes[i].ForwardPath; got != want {
			t.Errorf("route %d: %q, want %q", i, got, want)
		}
	}
	_, err = Parse("f", []byte(strings.Replace(text, "forward_path: raw", "forward_path: row", 1)))
	if err == nil || !strings.Contains(err.Error(), `forward_path`) || !strings.Contains(err.Error(), "raw") {
		t.Errorf("an unknown form: %v", err)
	}
}
