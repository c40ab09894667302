package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// TestBackendsAreAsInTheProcessBefore has a backend that probes have found unhealthy, one that an operator drains, and one with a weight of
// the operator's: the next gateway has them so, except what its configuration lacks.
func TestBackendsAreAsInTheProcessBefore(t *testing.T) {
	src := checked("{interval: 1h}", 11, 12, 13)
	w := newWorld(t, src)
	w.setHealth("b11", false)
	service := w.g.Status().Services[0].Name
	if err := w.g.Drain(service, "b12", DrainOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.g.SetWeight(service, "b13", 5, true); err != nil {
		t.Fatal(err)
	}
	states := BackendStates(w.g)
	if len(states) != 3 {
		t.Fatalf("%+v", states)
	}
	next := func(src string) []BackendStatus {
		t.Helper()
		c := parse(t, src)
		n := newWorldOf(t, c, hopsOf(c), func(o *Options) { o.Inherited = states })
		if err := Restore(n.g, states); err != nil {
			t.Error(err)
		}
		return n.g.Status().Services[0].Backends
	}
	for _, b := range next(src) {
		down, drained, weight := b.Name == "b11", b.Name == "b12", b.Name == "b13"
		if b.Healthy == down || b.OperatorDrained != drained || b.OperatorWeight != weight || weight && b.Weight != 5 {
			t.Errorf("%+v", b)
		}
	}
	for _, b := range next(strings.Replace(checked("{interval: 1h}", 12, 14), "b14", "b11", 1)) { // another address of this name
		if !b.Healthy || b.OperatorDrained != (b.Name == "b12") {
			t.Errorf("%+v", b)
		}
	}
	if b := next(withBackends("keep", 11)); !b[0].Healthy {
		t.Error("a backend that nothing probes is down for ever")
	}
	if slices.ContainsFunc(next(checked("{interval: 1h}", 15)), func(b BackendStatus) bool { return b.State != config.StateActive }) {
		t.Error("another backend is not active")
	}
}
