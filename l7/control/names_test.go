package control

import (
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// What rules and pools read, set, add and remove is what clients cannot name otherwise.
func TestNamesOfRulesAndPools(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP, colliding_fields: reject}]
routes:
- name: r
  rules:
  - matches: [{headers: [{name: X-Matched, value: a}]}, {headers: [{name: x-second, value: a}]}]
    filters: [{type: RequestHeaderModifier, set: [{name: X-Set, value: a}], add: [{name: x-added, value: a}], remove: [x-removed]},
      {type: ResponseHeaderModifier, set: [{name: x-response, value: a}]}]
    backend_refs: [{name: p}]
pools: [{name: p, balance: consistent_hash, hash: {by: header, name: X-Hashed}, backends: [{address: "198.18.1.1:80"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.ReadLists(); err != nil {
		t.Fatal(err)
	}
	n := &plan{cfg: cfg, routes: map[string]*proxy.Route{}, pools: map[string]*pooled{"p": {proxy: &proxy.Pool{Key: keyOf(cfg, &cfg.Pools[0])}}}}
	var ln proxy.Listener
	(&Set{}).planHTTP(n, &cfg.Listeners[0], &ln)
	for name, want := range map[string]bool{
		"x_matched": true, "x_second": true, "x_set": true, "x.added": true, "x_removed": true, "x_hashed": true, "x_response": false, "x_other": false, "x-set": false, "x_real_ip": true,
	} {
		if got := ln.Names.Collides(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := ln.Colliding; got != proxy.RejectColliding {
		t.Errorf("colliding fields: %d", got)
	}
}
