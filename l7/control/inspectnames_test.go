package control

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// A listener whose requests are inspected guards the names of the fields that rules read, and others do not.
func TestNamesOfInspectedListeners(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}, {name: plain, address: "198.18.0.1:81", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.1.1:80"}]}]
inspection: {policies: [{name: edge, mode: prevent, listeners: [web], rules: [local.rules]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.ReadLists(); err != nil {
		t.Fatal(err)
	}
	n := &plan{cfg: cfg, routes: map[string]*proxy.Route{}, pools: map[string]*pooled{"p": {proxy: &proxy.Pool{}}}, fieldNames: func(policy string) []string { return []string{"x-of-" + policy} }}
	for i := range cfg.Listeners {
		var ln proxy.Listener
		(&Set{}).planHTTP(n, &cfg.Listeners[i], &ln)
		inspected := cfg.Listeners[i].Name == "web"
		for name, want := range map[string]bool{
			"user_agent": inspected, "user.agent": inspected, "content_encoding": inspected, "accept_encoding": inspected, "accept_language": inspected,
			"content_disposition": inspected, "x_of_edge": inspected, "x-of.edge": inspected, "x-of-edge": false, "content_type": true, "content_length": true, "user-agent": false, "x_other": false,
		} {
			if got := ln.Names.Collides(name); got != want {
				t.Errorf("%s: %s collides: %v, want %v", cfg.Listeners[i].Name, name, got, want)
			}
		}
	}
}
