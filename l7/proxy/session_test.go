package proxy

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
)

// A session stays with its backend where a rule splits requests over pools, also when the weight of its pool becomes 0 (GEP-1619
// of Gateway API, "Traffic Splitting").
func TestSessionsComeBeforeTheWeightsOfPools(t *testing.T) {
	r := newRig(t, named(t, "a"), func(r *rig) {
		other, err := pool.New(pool.Options{Name: "q"}, []pool.BackendOptions{{Address: netip.MustParseAddrPort(named(t, "b"))}}, 1)
		must(t, err)
		r.rule.Sticky = &rewrite.Sticky{Name: "session"}
		r.rule.Backends = append(r.rule.Backends, Weighted{Pool: &Pool{Pool: other}, Weight: 1})
		r.tree.Pools = append(r.tree.Pools, r.rule.Backends[1].Pool)
	})
	sessions := map[byte]*http.Cookie{}
	for i := 0; len(sessions) < 2; i++ {
		if i == 200 {
			t.Fatalf("after %d requests: %v", i, sessions)
		}
		resp, body := get(t, "http://"+r.addr+"/")
		sessions[body[0]] = resp.Cookies()[0]
	}
	stays := func() {
		t.Helper()
		for want, cookie := range sessions {
			for range 8 {
				if resp, body := get(t, "http://"+r.addr+"/", cookie); body[0] != want || len(resp.Cookies()) > 0 {
					t.Fatalf("the session of %c gets %q, cookies %v", want, body, resp.Cookies())
				}
			}
		}
	}
	stays()
	r.do(func() { r.rule.Backends[1].Weight = 0 })
	stays()
	r.do(func() { r.rule.Backends[1].Pool.Backends()[0].SetState(0, pool.Inactive) })
	if resp, body := get(t, "http://"+r.addr+"/", sessions['b']); body[0] != 'a' || len(resp.Cookies()) != 1 {
		t.Errorf("the session of a backend that is gone gets %q, cookies %v", body, resp.Cookies())
	}
}

// Rules and hashes go by the client that a trusted proxy names, and by the peer where another one names it.
func TestRulesGoByTheClientBehindATrustedProxy(t *testing.T) {
	r := newRig(t, named(t, "a"), func(r *rig) {
		table, err := route.New([]route.Rule{{Name: "all", Match: route.Match{Clients: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}}})
		must(t, err)
		r.each(func(l *Listener) { l.Table = table })
	})
	records := make(chan [2]string, 4)
	r.do(func() {
		r.worker.OnRecord(func(rec *Record) { records <- [2]string{rec.Address().String(), rec.Client.Addr().String()} })
	})
	status := func() int {
		req, err := http.NewRequest("GET", "http://"+r.addr+"/", nil)
		must(t, err)
		req.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.9")
		resp, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(); got != 404 {
		t.Errorf("status %d by the word of an unknown client", got)
	}
	r.do(func() {
		r.each(func(l *Listener) { l.Forwarding.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	})
	if got := status(); got != 200 {
		t.Errorf("status %d by the word of a trusted proxy", got)
	}
	for _, want := range [][2]string{{"127.0.0.1", "127.0.0.1"}, {"203.0.113.9", "127.0.0.1"}} {
		if got := <-records; got != want {
			t.Errorf("a line has %v, want %v", got, want)
		}
	}
}
