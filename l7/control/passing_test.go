package control

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
)

// Pools of H3 send early data where the file says so, and have a cache of sessions for it.
func TestEarlyDataOfPools(t *testing.T) {
	const text = `
listeners: [{name: web, address: "198.18.0.1:80", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: on}, {name: off}]}]}]
pools:
- {name: on, protocol: H3, tls: {insecure: true}, early_data: true, backends: [{address: "198.18.1.1:443"}]}
- {name: off, protocol: H3, tls: {insecure: true}, backends: [{address: "198.18.1.1:443"}]}
`
	cfg, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		p := &pooled{cfg: cfg.Pools[i]}
		if err := p.connections(&Set{}, cfg); err != nil || p.proxy.EarlyData != want || p.proxy.TLS.ClientSessionCache == nil {
			t.Errorf("pool %s: %v, early data %v, sessions %v", p.cfg.Name, err, p.proxy.EarlyData, p.proxy.TLS.ClientSessionCache)
		}
	}
	if sameConnections(&cfg.Pools[0], &cfg.Pools[1]) {
		t.Error("connections stay where early data changes")
	}
	var sum proxy.Stats
	add(&sum, proxy.Stats{EarlySent: 3, EarlyAgain: 2})
	if add(&sum, proxy.Stats{EarlySent: 1, EarlyAgain: 1}); sum.EarlySent != 4 || sum.EarlyAgain != 3 {
		t.Errorf("%+v", sum)
	}
}

// What routes and pools pass on by choice reaches rules, connections and the machine of the listener.
func TestWhatIsPassedOnByChoice(t *testing.T) {
	const text = `
listeners:
- {name: web, address: "198.18.0.1:80", protocol: HTTP}
- {name: plain, address: "198.18.0.1:81", protocol: HTTP}
routes:
- {name: r, listeners: [web], upgrades: [tcp], expect_continue: forward, rules: [{backend_refs: [{name: p}]}]}
- {name: q, listeners: [plain], rules: [{backend_refs: [{name: lower}]}]}
pools:
- {name: p, field_names: preserve, backends: [{address: "198.18.1.1:80"}]}
- {name: lower, backends: [{address: "198.18.1.1:80"}]}
`
	cfg, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.ReadLists(); err != nil {
		t.Fatal(err)
	}
	n := &plan{cfg: cfg, pools: map[string]*pooled{}, routes: map[string]*proxy.Route{}}
	for i := range cfg.Pools {
		p := &pooled{cfg: cfg.Pools[i]}
		if err := p.connections(&Set{}, cfg); err != nil {
			t.Fatal(err)
		}
		n.pools[p.cfg.Name] = p
	}
	for i, chosen := range []bool{true, false} {
		var ln proxy.Listener
		(&Set{}).planHTTP(n, &cfg.Listeners[i], &ln)
		rule := ln.Rules[0]
		if rule.ForwardExpect != chosen || slices.Equal(rule.Upgrades, []string{"tcp"}) != chosen {
			t.Errorf("%s: rule %+v", ln.Name, rule)
		}
		if ln.HTTP1.KeepCase != chosen || ln.HTTP1.UpgradeContent != chosen {
			t.Errorf("listener %d: %+v", i, ln.HTTP1)
		}
		if got := n.pools[cfg.Pools[i].Name].proxy.KeepCase; got != chosen {
			t.Errorf("pool %d keeps the case: %v", i, got)
		}
	}
	if sameConnections(&cfg.Pools[0], &cfg.Pools[1]) {
		t.Error("connections stay where the names of fields change")
	}
}
