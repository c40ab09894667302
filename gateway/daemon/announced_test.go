package daemon

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

const announcedListenersFile = `
bgp: {as: 64512, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 65000, next_hop: "2001:db8::1"}]}
listeners:
  - {name: web, address: ["198.18.1.1:80", "[2001:db8:1::1]:80"], protocol: HTTP, announce: {med: 9}}
  - {name: other, address: "198.18.1.2:80", protocol: HTTP}
  - {name: stream, address: "198.18.1.3:80", protocol: TCP, announce: {}}
routes:
  - {name: a, listeners: web, rules: [{backend_refs: [{name: p}, {name: idle, weight: 0}]}, {matches: [{path: {value: /b}}], backend_refs: [{name: q}]}]}
  - {name: b, listeners: other, rules: [{backend_refs: [{name: r}]}]}
tcp_routes: [{name: s, listeners: stream, backend_refs: [{name: t}]}]
pools:
  - {name: p, backends: [{address: 192.0.2.7:1}]}
  - {name: q, backends: [{address: 192.0.2.7:1}]}
  - {name: r, backends: [{address: 192.0.2.7:1}]}
  - {name: idle, backends: [{address: 192.0.2.7:1}]}
  - {name: t, protocol: TCP, backends: [{address: 192.0.2.7:1}]}
`

// A listener is available while a pool of its routes is, with the pool's backends in each state.
func TestTheAvailabilityOfListeners(t *testing.T) {
	c, err := config.Parse("f", []byte(announcedListenersFile))
	if err != nil {
		t.Fatal(err)
	}
	if of := listenersOf(c); of == nil || !slices.Equal(of.pools, []string{"idle", "p", "q", "t"}) {
		t.Errorf("%+v", of)
	}
	up := l7control.BackendStatus{Healthy: true, State: "active", Weight: 1}
	down, ejected, draining, inactive, weightless := up, up, up, up, up
	down.Healthy, ejected.Ejected, draining.State, inactive.State, weightless.Weight = false, true, "draining", "inactive", 0
	for _, k := range []struct {
		name    string
		p, q, t l7control.BackendStatus
		web     l4control.Availability
		stream  l4control.Availability
	}{
		{"all up", up, up, up, l4control.Available, l4control.Available},
		{"one of two pools is down", down, up, down, l4control.Available, l4control.Unavailable},
		{"both are down", down, ejected, up, l4control.Unavailable, l4control.Available},
		{"the last drains", draining, down, ejected, l4control.Draining, l4control.Unavailable},
		{"the last has no weight", weightless, inactive, inactive, l4control.Draining, l4control.Unavailable},
	} {
		pool := func(name string, b l7control.BackendStatus) l7control.PoolStatus {
			return l7control.PoolStatus{Name: name, Panic: true, Backends: []l7control.BackendStatus{down, b}}
		}
		got := listenersAnnounced(c, []l7control.PoolStatus{pool("p", k.p), pool("q", k.q), pool("t", k.t), pool("r", up), pool("idle", up)})
		if len(got) != 2 || got[0].families != [2]l4control.Availability{k.web, k.web} || got[1].families[0] != k.stream || len(got[0].addresses) != 2 || *got[0].attrs.MED != 9 {
			t.Errorf("%s: %+v", k.name, got)
		}
	}
	c.Listeners[0].Announce, c.Listeners[2].Announce = nil, nil
	if listenersOf(c) != nil {
		t.Error("without announced listeners pools are looked at")
	}
}

// A rule that answers itself needs no pool.
func TestAListenerThatAnswersItself(t *testing.T) {
	if refsAvailability(nil, nil) != l4control.Available {
		t.Error("it has no backend, and needs none")
	}
}
