package gateway

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/datapath"
)

// syncedPair is two gateways with one configuration but for the key sync, whose streams the test carries itself.
func syncedPair(t *testing.T, keys string) (a, b *world) {
	t.Helper()
	one := func(index int) *world { return syncedWorld(t, keys, index) }
	return one(0), one(1)
}

// syncedWorld is one of them.
func syncedWorld(t *testing.T, keys string, index int) *world {
	t.Helper()
	c := parse(t, fill(keys))
	c.Sync = &config.Sync{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: netip.MustParseAddrPort("127.0.0.2:1"), Key: make([]byte, 32), Index: index}
	w := newWorldWith(t, c, hopsOf(c))
	w.g.synced.now, w.g.synced.on = func() clock.Time { return w.now }, func(_ int, f func()) bool { f(); return true }
	return w
}

// changesTo carries what changed at w to another gateway, and returns how many records that were.
func (w *world) changesTo(o *world) int {
	var list []datapath.Record
	w.g.synced.Changes(func(r *datapath.Record) bool { list = append(list, *r); return true })
	o.g.synced.Import(list)
	return len(list)
}

// allTo carries all connections.
func (w *world) allTo(o *world) int {
	var list []datapath.Record
	for at := int64(0); at >= 0; {
		at = w.g.synced.Page(at, func(r *datapath.Record) { list = append(list, *r) })
	}
	o.g.synced.Import(list)
	return len(list)
}

func (w *world) outcome(t *testing.T, want map[string]uint64) {
	t.Helper()
	for name, n := range w.g.syncStatus().Outcomes {
		if n != want[name] {
			t.Errorf("%d records are %s, want %d", n, name, want[name])
		}
	}
	w.audit()
}

// A connection goes on at the other gateway, from the same source, in both directions, with right checksums.
func TestAConnectionGoesOnAtThePeer(t *testing.T) {
	for _, keys := range []string{"", "source: client"} {
		a, b := syncedPair(t, keys)
		if a.changesTo(b) != 0 {
			t.Error("records without connections")
		}
		a.expect(0, client("198.18.0.9:40001", web, "S").bytes(), 1) // half-open: not sent
		to := flowOf(a.connect(host))
		if n := a.changesTo(b); n != 1 {
			t.Errorf("%d records of one connection", n)
		}
		b.outcome(t, map[string]uint64{"entered": 1})
		p := b.expect(0, client(host, web, "PA").bytes(), 1)
		if got := flowOf(p); got.src != to.src || got.dst != to.dst || string(recomputed(p)) != string(p) {
			t.Errorf("%q: at the peer from %v to %v, before from %v to %v", keys, got.src, got.dst, to.src, to.dst)
		}
		back := flowOf(b.expect(1, answer(p, "PA").bytes(), 0))
		if back.dst.String() != host || back.src.String() != web {
			t.Errorf("%q: the reply goes from %v to %v", keys, back.src, back.dst)
		}
		// Its end is sent back, and leaves both tables.
		b.expect(0, client(host, web, "R").bytes(), 1)
		if n := b.changesTo(a); n != 1 {
			t.Errorf("%q: %d records of the end", keys, n)
		}
		b.after(11 * time.Second)
		if n := b.g.Status().Connections; n != 0 {
			t.Errorf("%q: %d connections after a reset", keys, n)
		}
		a.audit()
		b.audit()
	}
}

// Both gateways open connections to one backend with one SNAT address: no port is the same.
func TestGatewaysTakeDifferentPorts(t *testing.T) {
	a, b := syncedPair(t, "")
	seen := map[string]bool{}
	for i := range 300 {
		w := []*world{a, b}[i%2]
		from := flowOf(w.connect(fmt.Sprintf("198.18.0.9:%d", 30000+i))).src
		if want := map[bool]int{true: 0, false: 1}[from.Port() < 33280]; want != i%2 {
			t.Fatalf("gateway %d takes port %d", i%2, from.Port())
		}
		seen[from.String()] = true
	}
	a.changesTo(b)
	b.changesTo(a)
	a.outcome(t, map[string]uint64{"entered": 150})
	b.outcome(t, map[string]uint64{"entered": 150})
	if a.g.Status().Connections != 300 || b.g.Status().Connections != 300 {
		t.Error("not all connections are at both")
	}
	if st := a.g.Status().SNAT[0]; st.Ports != 32256 {
		t.Errorf("%d ports", st.Ports)
	}
}

// A gateway that was restarted gets its connections back, and their ports are in use.
func TestARestartedGatewayGetsItsConnectionsBack(t *testing.T) {
	a, b := syncedPair(t, "")
	for i := range 50 {
		a.connect(fmt.Sprintf("198.18.0.9:%d", 30000+i))
	}
	a.allTo(b)
	a.g.Close()
	again := syncedWorld(t, "", 0)
	if n := b.allTo(again); n != 50 {
		t.Errorf("%d records", n)
	}
	again.outcome(t, map[string]uint64{"entered": 50})
	b.allTo(again)
	again.outcome(t, map[string]uint64{"entered": 50, "updated": 50})
	again.after(5 * time.Second)
	if st := again.g.Status().SNAT[0]; st.Open == 0 {
		t.Errorf("%+v", st)
	}
	again.after(3 * time.Hour)
	if n := again.g.Status().Connections; n != 0 {
		t.Errorf("%d connections are not forgotten", n)
	}
	again.audit()
}

// Idle times agree: a record says how long there was no packet, and packets are reported within the refresh.
func TestIdleTimesAgree(t *testing.T) {
	a, b := syncedPair(t, "")
	a.connect(host)
	a.after(time.Hour)
	b.now = a.now
	a.allTo(b)
	b.after(65 * time.Minute) // 2 h 4 min are over
	if n := b.g.Status().Connections; n != 0 {
		t.Errorf("%d connections outlive their idle time", n)
	}
	a.expect(0, client(host, web, "PA").bytes(), 1)
	a.g.synced.Changes(func(*datapath.Record) bool { return true })
	a.after(31 * time.Second)
	if n := a.changesTo(b); n == 0 {
		t.Error("a connection with packets is not refreshed")
	}
	a.after(2 * time.Minute)
	a.g.synced.Changes(func(*datapath.Record) bool { return true })
	a.after(2 * time.Minute)
	if n := a.changesTo(b); n != 0 {
		t.Errorf("%d records of an idle connection", n)
	}
}

// A connection that is served here is not taken by a record of another with the same addresses; what changes faster than
// it is taken is counted.
func TestRecordsDoNotReplaceLiveConnections(t *testing.T) {
	a, b := syncedPair(t, "")
	a.connect(host)
	b.connect(host) // the same client at both, from different ports
	a.changesTo(b)
	b.outcome(t, map[string]uint64{"conflict": 1})
	for i := range 10_000 {
		a.connect(fmt.Sprintf("198.18.%d.%d:%d", 20+i/1000, i%250, 30000+i))
		if i%500 == 0 {
			a.after(time.Millisecond)
		}
	}
	st := a.g.syncStatus()
	if n := a.changesTo(b); st.Dropped == 0 || n > 8192 {
		t.Errorf("%d records, %d dropped", n, st.Dropped)
	}
	b.audit()
}
