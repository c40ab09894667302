package interop

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/bgp"
)

// TestTwoGatewaysAnnounceOneAddress has two gateways behind a router with ECMP, and what happens to either of them: a backend fails and
// comes back, an operator drains, upgrades and stops, the process is killed. Clients notice none of it, but for connections that a dead
// gateway carried.
func TestTwoGatewaysAnnounceOneAddress(t *testing.T) {
	s := newECMPSite(t, "iecmp", routerOfThePage(t, "frr"))
	one, two := s.gates[0], s.gates[1]
	one.start(t, "")
	two.start(t, "")
	eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
	s.wantGates(t, "gate1", "gate2")
	route := func() string { return s.router.show("show ip bgp 198.18.1.1/32") }
	eventually(t, "attributes", route, "metric 50", "Community: 64512:11", "Large Community: 64512:1:1", "Community: 64512:12")

	t.Run("a backend fails", func(t *testing.T) {
		one.fail()
		eventually(t, "one next hop", s.nextHops, "!198.18.11.2", "198.18.12.2")
		s.wantGates(t, "gate2")
		one.serve()
		eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
		s.wantGates(t, "gate1", "gate2")
	})
	t.Run("the status", func(t *testing.T) {
		st := one.status(t).BGP
		if st == nil || len(st.Peers) != 1 || st.Peers[0].State != bgp.Established || st.Peers[0].Prefixes != 1 || len(st.Routes) != 1 || st.Routes[0].Prefix.String() != "198.18.1.1/32" {
			t.Errorf("status %+v", st)
		}
		text := one.run(t, "status")
		for _, want := range []string{"AS 64512, router id 198.18.11.2, to 1 of 1 routers: 198.18.1.1/32", "198.18.11.1, AS 65000: Established", "announced 1"} {
			if !strings.Contains(text, want) {
				t.Errorf("the status lacks %q:\n%s", want, text)
			}
		}
	})
	t.Run("drained", func(t *testing.T) {
		two.run(t, "drain", "web", "b", "--force")
		eventually(t, "the community", route, "graceful-shutdown")
		eventually(t, "one next hop", s.nextHops, "198.18.11.2", "!198.18.12.2")
		two.run(t, "undrain", "web", "b")
		eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
	})
	t.Run("upgraded", func(t *testing.T) {
		before := s.router.neighbor("198.18.12.2")
		pid := two.pid(t)
		two.run(t, "upgrade")
		if two.pid(t) == pid {
			t.Fatal("the process is the same")
		}
		eventually(t, "the session", func() string { return two.run(t, "status") }, "Established")
		s.wantGates(t, "gate1", "gate2")
		if after := s.router.neighbor("198.18.12.2"); after.Established != before.Established || after.Withdrawn != before.Withdrawn || after.State != "Established" {
			t.Errorf("before the upgrade %+v, after it %+v", before, after)
		}
		if st := two.status(t).BGP; st.Peers[0].Prefixes != 1 {
			t.Errorf("status %+v", st)
		}
	})
	t.Run("killed", func(t *testing.T) {
		if err := one.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "one next hop", s.nextHops, "!198.18.11.2", "198.18.12.2")
		s.wantGates(t, "gate2")
		one.start(s.t, "")
		eventually(t, "both next hops", s.nextHops, "198.18.11.2", "198.18.12.2")
		s.wantGates(t, "gate1", "gate2")
	})
	t.Run("stopped", func(t *testing.T) {
		done := make(chan struct{})
		go func() { defer close(done); one.run(t, "stop") }()
		eventually(t, "the community", route, "graceful-shutdown")
		eventually(t, "one next hop", s.nextHops, "!198.18.11.2", "198.18.12.2")
		<-done
		s.wantGates(t, "gate2")
		if log, _ := os.ReadFile(one.log + ".out"); !strings.Contains(string(log), "graceful shutdown") {
			t.Errorf("the log lacks the shutdown:\n%s", log)
		}
	})
}

// neighbor is what FRR knows of a session.
type neighbor struct {
	State       string `json:"bgpState"`
	Established int    `json:"connectionsEstablished"`
	Withdrawn   int    // UPDATE messages with withdrawals do not show there, so the version of the table counts
}

func (r *frr) neighbor(address string) neighbor {
	var all map[string]neighbor
	if err := json.Unmarshal([]byte(r.show("show bgp neighbors "+address+" json")), &all); err != nil {
		r.t.Fatal(err)
	}
	var table struct {
		Version int `json:"tableVersion"`
	}
	if err := json.Unmarshal([]byte(r.show("show bgp ipv4 unicast json")), &table); err != nil {
		r.t.Fatal(err)
	}
	n := all[address]
	n.Withdrawn = table.Version
	return n
}

// pid returns the process that serves.
func (g *ecmpGate) pid(t *testing.T) string {
	t.Helper()
	return g.status(t).Started.String()
}
