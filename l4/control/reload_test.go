package control

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

const oneService = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 1024}
services:
  - name: web
    address: 198.18.1.1:80
    removed: %s
    backends: [%s]
`

func withBackends(removed string, hosts ...int) string {
	var list []string
	for _, n := range hosts {
		list = append(list, fmt.Sprintf("{name: b%d, address: 198.18.2.%d:80}", n, n))
	}
	return fmt.Sprintf(oneService, removed, strings.Join(list, ", "))
}

// open starts n connections and returns the backend of each client.
func (w *world) open(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		src := fmt.Sprintf("198.18.0.9:%d", 1000+i)
		m[src] = flowOf(w.connect(src)).dst.String()
	}
	return m
}

func TestAReloadKeepsEveryConnection(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12), withBackends("keep", 12, 13, 14))
	was := w.open(200)
	if err := w.g.Reload(parse(t, withBackends("keep", 12, 13, 14))); err != nil {
		t.Fatal(err)
	}
	for src, backend := range was {
		out := w.expect(0, client(src, web, "A").bytes(), 1)
		if got := flowOf(out).dst.String(); got != backend {
			t.Fatalf("%s moved from %s to %s", src, backend, got)
		}
		w.expect(1, answer(out, "A").bytes(), 0)
	}
	for i := range 200 {
		src := fmt.Sprintf("198.18.0.10:%d", 1000+i)
		if got := flowOf(w.connect(src)).dst.String(); got == "198.18.2.11:80" {
			t.Fatal("a new connection went to a backend that is gone")
		}
	}
	removed := 0
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Removed {
			removed++
			if b.Name != "b11" || b.Connections == 0 {
				t.Errorf("%+v", b)
			}
		}
	}
	if removed != 1 {
		t.Errorf("%d removed backends are shown", removed)
	}
}

// The first packets to a backend whose link address is not known yet would be lost: new connections
// wait for nobody and go to the others.
func TestANewBackendTakesConnectionsOnceItsNextHopIsKnown(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11))
	hop := func(host string, h nexthop.Hop) { w.g.hopChanged(netip.MustParseAddr(host), h) }
	const first, second = "198.18.2.11:80", "198.18.2.12:80"
	served := func() map[string]bool {
		at := map[string]bool{}
		for i := range 50 {
			w.now = w.now.Add(24 * time.Hour) // no connection of before is left
			at[flowOf(w.connect(fmt.Sprintf("198.18.0.10:%d", 2000+i))).dst.String()] = true
		}
		return at
	}
	if err := w.g.Reload(parse(t, withBackends("keep", 11, 12))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		hop  nexthop.Hop
		want map[string]bool
	}{
		{"no route", nexthop.Hop{State: nexthop.NoRoute}, map[string]bool{first: true}},
		{"unresolved", nexthop.Hop{Dev: 1}, map[string]bool{first: true}},
		{"ready", nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready}, map[string]bool{first: true, second: true}},
		{"lost", nexthop.Hop{Dev: 1}, map[string]bool{first: true}},
	} {
		hop("198.18.2.12", c.hop)
		if diff := cmp.Diff(c.want, served()); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
	hop("198.18.2.11", nexthop.Hop{Dev: 1})
	w.refused(0, client("198.18.0.11:1", web, "S").bytes(), packet.DropNoNeighbor)
	hop("198.18.2.12", nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready})
	w.expect(0, client("198.18.0.11:2", web, "S").bytes(), 1)
}

// A backend that takes no new connections is no better than none.
func TestReadyBackendsWithoutWeightDoNotCount(t *testing.T) {
	config := strings.Replace(withBackends("keep", 11, 12), "2.11:80}", "2.11:80, weight: 0}", 1)
	c := parse(t, config)
	w := newWorldWith(t, c, nexthop.Static{
		netip.MustParseAddr("198.18.2.11"): {MAC: macBackend, Dev: 1, State: nexthop.Ready},
		netip.MustParseAddr("198.18.2.12"): {Dev: 1},
	})
	w.refused(0, client(host, web, "S").bytes(), packet.DropNoNeighbor)
}

// Nobody checks a backend that is gone from the configuration: its last finding no longer counts.
func TestARemovedBackendIsNoLongerUnhealthy(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11), withBackends("keep", 12))
	w.open(1)
	w.setHealth("b11", false)
	w.refused(0, client("198.18.0.9:1000", web, "A").bytes(), packet.DropNoBackend)
	if err := w.g.Reload(parse(t, withBackends("keep", 12))); err != nil {
		t.Fatal(err)
	}
	w.expect(0, client("198.18.0.9:1000", web, "A").bytes(), 1)
}

func TestAReloadDropsRemovedBackendsWhenToldTo(t *testing.T) {
	w := newWorld(t, withBackends("drop", 11, 12))
	was := w.open(100)
	if err := w.g.Reload(parse(t, withBackends("drop", 12))); err != nil {
		t.Fatal(err)
	}
	for src, backend := range was {
		want := packet.Forward
		if backend == "198.18.2.11:80" {
			want = packet.DropNoBackend
		}
		if s := w.send(0, client(src, web, "A").bytes()); s.verdict != want {
			t.Fatalf("%s: %v, want %v", backend, s.verdict, want)
		}
	}
	if err := w.g.Reload(parse(t, withBackends("drop", 11, 12))); err != nil {
		t.Fatal(err)
	}
	for src := range was { // back in time: nothing is lost
		w.expect(0, client(src, web, "A").bytes(), 1)
	}
}

func TestARemovedServiceServesOnlyItsConnections(t *testing.T) {
	other := strings.Replace(withBackends("keep", 12), "198.18.1.1:80", "198.18.1.2:80", 1)
	w := newWorld(t, withBackends("keep", 11, 12), other)
	w.open(1)
	if err := w.g.Reload(parse(t, other)); err != nil {
		t.Fatal(err)
	}
	out := w.expect(0, client("198.18.0.9:1000", web, "A").bytes(), 1)
	w.expect(1, answer(out, "A").bytes(), 0)
	w.refused(0, client("198.18.0.9:1001", web, "S").bytes(), packet.DropNoService)
	w.refused(0, arpFor("198.18.1.1", 1), packet.DropNoService)
	steered := false
	for _, s := range w.g.Steering() {
		steered = steered || s.Addr.String() == "198.18.1.1" && !s.Neighbor
	}
	if !steered {
		t.Error("packets of the connection are no longer steered to the gateway, or ARP still is")
	}
}

// Connections made with one kind of source go on when a reload takes the other, and drivers bring
// their replies until the last has ended.
func TestTheSourceMayChange(t *testing.T) {
	now := strings.Replace(withBackends("keep", 11), "removed: keep", "source: client", 1)
	w := newWorld(t, now)
	old := w.connect(host)
	if err := w.g.Reload(parse(t, withBackends("keep", 11))); err != nil {
		t.Fatal(err)
	}
	if got := flowOf(w.expect(1, answer(old, "A").bytes(), 0)); got.dst.String() != host {
		t.Errorf("a reply to %s went to %v", host, got.dst)
	}
	if got := flowOf(w.connect("198.18.0.9:40001")); got.src.Addr().String() != "198.18.2.1" {
		t.Errorf("a new connection comes from %v", got.src)
	}
	replies := func() bool {
		return slices.ContainsFunc(w.g.Steering(), func(s Steer) bool { return s.Source })
	}
	if !replies() {
		t.Error("replies of an old connection stay with the kernel")
	}
	w.after(3 * time.Hour)
	if replies() {
		t.Error("replies are taken from the kernel for nobody")
	}
}

func TestWhatNeedsARestartIsRefused(t *testing.T) {
	base := withBackends("keep", 11)
	for _, c := range []struct{ old, new string }{
		{"{name: gw0}", "{name: gw0, mode: generic}"},
		{"{name: gw0}", "{name: gw0, ring: 4096}"},
		{"size: 1024", "size: 2048"},
		{"snat:", "snat_ports: 2000-3000\nsnat:"},
		{"snat:", "engine: auto\nsnat:"},
		{"snat:", "extra_processor: true\nsnat:"},
	} {
		w := newWorld(t, base)
		err := w.g.Reload(parse(t, strings.Replace(base, c.old, c.new, 1)))
		if !errors.Is(err, ErrRestart) {
			t.Errorf("%s: %v", c.new, err)
		}
		w.open(1)
	}
}

func TestABackendsFlowsWaitForItsReturn(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12))
	was := w.open(100)
	w.setHealth("b11", false)
	for src, backend := range was {
		s := w.send(0, client(src, web, "A").bytes())
		if (backend == "198.18.2.11:80") != (s.verdict == packet.DropNoBackend) {
			t.Fatalf("connection to %s: %v", backend, s.verdict)
		}
	}
	for i := range 100 {
		if got := flowOf(w.connect(fmt.Sprintf("198.18.0.10:%d", 1000+i))).dst.String(); got != "198.18.2.12:80" {
			t.Fatalf("a new connection went to %s", got)
		}
	}
	w.setHealth("b11", true)
	for src, backend := range was {
		if got := flowOf(w.expect(0, client(src, web, "A").bytes(), 1)).dst.String(); got != backend {
			t.Fatalf("moved from %s to %s", backend, got)
		}
	}
	if len(w.events) < 4 || w.events[2].What != "unhealthy" || w.events[3].What != "healthy" {
		t.Errorf("events: %v", w.events)
	}
}

func (w *world) setHealth(name string, healthy bool) {
	for i := range w.g.cfg.Services {
		for _, b := range backendsOf(&w.g.cfg.Services[i]) {
			if b.name == name {
				w.g.mu.Lock()
				st := health.State{Healthy: healthy}
				w.g.healthChanged([]health.Change{{ID: w.g.reg.backends.of[b], State: st}})
				w.g.mu.Unlock()
			}
		}
	}
}

func TestASYNLeavesADeadBackend(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12))
	for src, backend := range w.open(50) {
		if backend == "198.18.2.11:80" {
			w.setHealth("b11", false)
			if got := flowOf(w.connect(src)).dst.String(); got != "198.18.2.12:80" {
				t.Fatalf("went to %s", got)
			}
			return
		}
	}
	t.Error("no connection to b11")
}

func TestUDPLeavesADeadBackend(t *testing.T) {
	src := strings.Replace(withBackends("keep", 11, 12), "address: 198.18.1.1:80", "address: 198.18.1.1:80\n    protocol: udp", 1)
	w := newWorld(t, src)
	out := flowOf(w.expect(0, client(host, web, "").bytes(), 1))
	dead, left := "b11", "198.18.2.12:80"
	if out.dst.String() == left {
		dead, left = "b12", "198.18.2.11:80"
	}
	w.setHealth(dead, false)
	if got := flowOf(w.expect(0, client(host, web, "").bytes(), 1)); got.dst.String() != left {
		t.Errorf("went to %v", got.dst)
	}
	if n := w.g.Status().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
	w.setHealth("b11", false)
	w.setHealth("b12", false)
	w.refused(0, client(host, web, "").bytes(), packet.DropNoBackend)
}

// TestCountersAddUp sends all sorts of packets and compares the sums.
func TestCountersAddUp(t *testing.T) {
	w := newWorld(t, fill(""))
	total, bytesTo := 0, 0
	for i := range 300 {
		p := client(fmt.Sprintf("198.18.0.9:%d", 1000+i%100), []string{web, dns, "198.18.1.1:9"}[i%3], []string{"S", "", "A"}[i%3]).bytes()
		if s := w.send(0, p); s.verdict == packet.Forward {
			bytesTo += len(p)
			w.expect(1, answer(s.p, []string{"SA", "", ""}[i%3]).bytes(), 0)
			total++
		}
		total++
	}
	st := w.g.Status()
	var dropped, to, from, toBytes, conns uint64
	for _, n := range st.Dropped {
		dropped += n
	}
	for _, s := range st.Services {
		for _, b := range s.Backends {
			to, from, toBytes, conns = to+b.ToPackets, from+b.FromPackets, toBytes+b.ToBytes, conns+b.Connections
		}
	}
	if st.Forwarded+dropped != uint64(total) || to+from != st.Forwarded || toBytes != uint64(bytesTo) || conns != st.Connections {
		t.Errorf("of %d: forwarded %d, dropped %d; to %d from %d; %d of %d bytes; %d of %d connections",
			total, st.Forwarded, dropped, to, from, toBytes, bytesTo, conns, st.Connections)
	}
	w.after(3 * 3600e9)
	st = w.g.Status()
	if st.Connections != 0 || st.Services[0].Backends[0].Connections != 0 {
		t.Errorf("%d connections are left", st.Connections)
	}
	w.audit() // no port is left in use
}
