package control

import (
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
)

// Each pool of a rule keeps its own time-outs, also those that are none.
func TestPoolsOfARuleKeepTheirTimeouts(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners: [{name: a, address: "198.18.0.3:80", protocol: HTTP}]
routes:
- {name: r, rules: [{timeouts: {backend_request: 7s}, backend_refs: [{name: none}, {name: fast}, {name: slow}]}]}
pools:
- {name: none, timeouts: {response: 0s, body: 0s}, backends: [{address: "198.18.1.3:80"}]}
- {name: fast, timeouts: {response: 1s, body: 2s}, backends: [{address: "198.18.1.4:80"}]}
- {name: slow, timeouts: {response: 5m, body: 6m}, backends: [{address: "198.18.1.5:80"}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := (&Set{loops: make([]*loop, 1)}).plan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := n.tree.Listeners[0].Rules[0]
	if r.Attempt != 7*time.Second {
		t.Errorf("an attempt may take %v", r.Attempt)
	}
	for i, want := range [][2]time.Duration{{}, {time.Second, 2 * time.Second}, {5 * time.Minute, 6 * time.Minute}} {
		if p := r.Backends[i].Pool; p.Response != want[0] || p.Body != want[1] {
			t.Errorf("pool %s: response %v and body %v, want %v", p.Name(), p.Response, p.Body, want)
		}
	}
}
