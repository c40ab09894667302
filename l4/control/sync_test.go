package control

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
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
	return syncedWorldOf(t, fill(keys), index)
}

func syncedWorldOf(t *testing.T, src string, index int) *world {
	t.Helper()
	c := parse(t, src)
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

// syncedLoops is syncedPair with several loops.
func syncedLoops(t *testing.T, keys string, loops int) (a, b *world) {
	t.Helper()
	list := [2]*world{}
	for i := range list {
		list[i] = syncedWorldOf(t, strings.Replace(withLoops(keys, loops), "size: 1024", "size: 65536", 1), i)
	}
	return list[0], list[1]
}

// passes sends a packet through the loop that it comes to, and on to its own, and wants it at a port.
func (w *world) passes(loop int, from uint8, p []byte, to uint8) []byte {
	w.t.Helper()
	s, _ := w.at(loop, from, p)
	if s.verdict != packet.Forward || s.port != to {
		w.t.Fatalf("verdict %v to port %d, want forward to %d", s.verdict, s.port, to)
	}
	w.checksumsRight(s.p)
	return s.p
}

// Both gateways serve clients at once, TCP and UDP, on four loops each. Then one takes over the other's: every flow keeps
// its backend and source port, by whichever loop it comes, while new ones open.
func TestActiveGatewaysTakeOverFromEachOther(t *testing.T) {
	const loops, flows = 4, 400
	for _, keys := range []string{"", "source: client"} {
		a, b := syncedLoops(t, keys, loops)
		gates := [2]*world{a, b}
		type opened struct {
			at        int
			p, onward []byte
		}
		list, sources := []opened{}, map[string]int{}
		open := func(i, at int) opened {
			w, src := gates[at], fmt.Sprintf("198.18.%d.%d:%d", 16+i>>8, 1+i&127, 20000+i)
			dst, flags := web, [3]string{"S", "SA", "A"}
			if i%4 > 1 {
				src, dst = fmt.Sprintf("[2001:db8::%x]:%d", 1+i, 20000+i), "[2001:db8:1::1]:80"
			}
			if i%3 == 0 {
				dst, flags = strings.TrimSuffix(dst, "80")+"53", [3]string{}
			}
			out := w.passes(i%loops, 0, client(src, dst, flags[0]).bytes(), 1)
			w.passes((i+1)%loops, 1, answer(out, flags[1]).bytes(), 0)
			w.passes((i+2)%loops, 0, client(src, dst, flags[2]).bytes(), 1)
			return opened{at, client(src, dst, strings.Replace(flags[2], "A", "PA", 1)).bytes(), out}
		}
		for i := range flows {
			o := open(i, i%2)
			list = append(list, o)
			f := flowOf(o.onward)
			if sources[f.src.String()+f.dst.String()]++; sources[f.src.String()+f.dst.String()] > 1 {
				t.Fatalf("%q: two flows from %v to %v", keys, f.src, f.dst)
			}
		}
		if n, m := a.changesTo(b), b.changesTo(a); n != flows/2 || m != flows/2 {
			t.Errorf("%q: %d and %d records", keys, n, m)
		}
		for _, w := range gates {
			w.outcome(t, map[string]uint64{"entered": flows / 2})
		}
		for i, o := range list {
			w := gates[1-o.at]
			if i%5 == 0 {
				open(flows+i, 1-o.at)
			}
			want := flowOf(o.onward)
			out := w.passes(i%loops, 0, o.p, 1)
			if got := flowOf(out); got.src != want.src || got.dst != want.dst {
				t.Fatalf("%q: flow %d goes from %v to %v, before from %v to %v", keys, i, got.src, got.dst, want.src, want.dst)
			}
			flags := ""
			if i%3 != 0 {
				flags = "PA"
			}
			back := flowOf(w.passes((i+3)%loops, 1, answer(out, flags).bytes(), 0))
			if first := flowOf(o.p); back.dst != first.src || back.src != first.dst {
				t.Fatalf("%q: flow %d is answered from %v to %v", keys, i, back.src, back.dst)
			}
		}
		for _, w := range gates {
			if st := w.g.Status(); len(st.Dropped) > 0 {
				t.Errorf("%q: %v", keys, st.Dropped)
			}
			for _, h := range w.g.Handlers() {
				if err := h.Audit(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A client whose packets of one connection come by both gateways at once is a conflict at both: each keeps its own.
func TestOneClientAtBothIsAConflictAtBoth(t *testing.T) {
	a, b := syncedLoops(t, "", 4)
	for i := range 20 {
		src := fmt.Sprintf("198.18.0.9:%d", 30000+i)
		for _, w := range []*world{a, b} {
			out := w.passes(0, 0, client(src, web, "S").bytes(), 1)
			w.passes(1, 1, answer(out, "SA").bytes(), 0)
			w.passes(2, 0, client(src, web, "A").bytes(), 1)
		}
	}
	a.changesTo(b)
	b.changesTo(a)
	for _, w := range []*world{a, b} {
		w.outcome(t, map[string]uint64{"conflict": 20})
		if n := w.g.Status().Connections; n != 20 {
			t.Errorf("%d connections", n)
		}
	}
}

// A record enters as one opened connection of its backend, in the state that it has, and once.
func TestEnteredConnectionsAreCountedByBackend(t *testing.T) {
	a, b := syncedPair(t, "")
	for i := range 30 {
		src := fmt.Sprintf("198.18.0.9:%d", 30000+i)
		a.connect(src)
		if i < 10 {
			a.expect(0, client(src, web, "FA").bytes(), 1)
		}
	}
	a.allTo(b)
	a.allTo(b)
	b.outcome(t, map[string]uint64{"entered": 30, "updated": 30})
	st := b.g.Status()
	opened, now := uint64(0), uint64(0)
	for _, be := range st.Services[0].Backends {
		opened, now = opened+be.Opened, now+be.Connections
	}
	if opened != 30 || now != 30 || st.Active != 20 || st.Closing != 10 {
		t.Errorf("%d opened, %d now, %d active, %d closing", opened, now, st.Active, st.Closing)
	}
	b.after(3 * time.Hour)
	if st := b.g.Status(); st.Connections != 0 || st.Active != 0 || st.Closing != 0 {
		t.Errorf("%+v", st)
	}
	b.audit()
}

// A half-open connection is sent in no way, whatever its state is: a flood costs the peer nothing.
func TestHalfOpenConnectionsAreNotSent(t *testing.T) {
	a, b := syncedPair(t, "source: client")
	a.expect(0, client(host, web, "S").bytes(), 1)
	a.expect(0, client("198.18.0.9:41000", dns, "").bytes(), 1)   // UDP: of one side
	a.expect(0, client("198.18.0.9:41001", web, "PA").bytes(), 1) // picked up from one side
	a.expect(0, client("198.18.0.9:41002", web, "S").bytes(), 1)  // and closed before it was open
	a.expect(0, client("198.18.0.9:41002", web, "R").bytes(), 1)
	a.after(40 * time.Second) // a refresh
	if n, m := a.changesTo(b), a.allTo(b); n != 0 || m != 0 {
		t.Errorf("%d changes and %d connections", n, m)
	}
}

// oneRecord is the record of the one connection of a world.
func oneRecord(t *testing.T, w *world) datapath.Record {
	t.Helper()
	var list []datapath.Record
	w.g.synced.Page(0, func(r *datapath.Record) { list = append(list, *r) })
	if len(list) != 1 {
		t.Fatalf("%d records", len(list))
	}
	return list[0]
}

// A record whose time is over enters nothing, and one that is older than what is known shortens nothing.
func TestLateRecordsChangeNothing(t *testing.T) {
	a, b := syncedPair(t, "")
	a.connect(host)
	r := oneRecord(t, a)
	late := r
	late.Idle = 3 * time.Hour
	b.g.synced.Import([]datapath.Record{late})
	b.outcome(t, map[string]uint64{"stale": 1})
	b.g.synced.Import([]datapath.Record{r})
	b.expect(0, client(host, web, "PA").bytes(), 1) // it is served here
	late.Idle = time.Hour
	b.g.synced.Import([]datapath.Record{late})
	if got := oneRecord(t, b).Idle; got > time.Second {
		t.Errorf("an older record makes a connection idle for %v", got)
	}
	b.after(time.Hour)
	b.g.synced.Import([]datapath.Record{r})
	if got := oneRecord(t, b).Idle; got > time.Second {
		t.Errorf("a newer record leaves a connection idle for %v", got)
	}
	b.outcome(t, map[string]uint64{"stale": 1, "entered": 1, "updated": 2})
}

// A connection that is half-open or closed makes way for one with the same client that the peer serves.
func TestConnectionsThatAreNotInUseMakeWayForRecords(t *testing.T) {
	for _, c := range []struct {
		name string
		here func(b *world)
	}{
		{"half-open", func(b *world) { b.expect(0, client(host, web, "S").bytes(), 1) }},
		{"reset", func(b *world) { b.connect(host); b.expect(0, client(host, web, "R").bytes(), 1) }},
	} {
		a, b := syncedPair(t, "")
		want := flowOf(a.connect(host))
		c.here(b)
		a.allTo(b)
		b.outcome(t, map[string]uint64{"entered": 1})
		if got := flowOf(b.expect(0, client(host, web, "PA").bytes(), 1)); got.src != want.src || got.dst != want.dst {
			t.Errorf("%s: from %v to %v, at the peer from %v to %v", c.name, got.src, got.dst, want.src, want.dst)
		}
		if st := b.g.Status(); st.Connections != 1 || st.HalfOpen != 0 || st.Active != 1 {
			t.Errorf("%s: %d connections, %d half-open, %d active", c.name, st.Connections, st.HalfOpen, st.Active)
		}
		b.audit()
	}
}

// Records of the peer leave the room that half-open connections have.
func TestRecordsLeaveRoomForNewConnections(t *testing.T) {
	a := syncedWorldOf(t, strings.Replace(fill(""), "size: 1024", "size: 4096", 1), 0)
	b := syncedWorldOf(t, strings.Replace(fill(""), "size: 1024", "size: 1024, half_open: 256", 1), 1)
	for i := range 900 {
		a.connect(fmt.Sprintf("198.18.0.9:%d", 30000+i))
	}
	a.allTo(b)
	b.outcome(t, map[string]uint64{"entered": 768, "no_room": 132})
	b.expect(0, client(host, web, "S").bytes(), 1)
}

// The port of a closed connection that comes back rests with it, and may be reclaimed as any other.
func TestClosedConnectionsComeBackWithTheirPorts(t *testing.T) {
	a, b := syncedPair(t, "")
	a.connect(host)
	a.expect(0, client(host, web, "R").bytes(), 1)
	a.allTo(b)
	again := syncedWorld(t, "", 0)
	b.allTo(again)
	again.outcome(t, map[string]uint64{"entered": 1})
	again.after(5 * time.Second) // a survey of the ports
	if st := again.g.Status().SNAT[0]; st.Closed != 1 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
	again.after(time.Minute)
	if st := again.g.Status(); st.SNAT[0].Closed != 0 || st.Connections != 0 {
		t.Errorf("%d connections, %+v", st.Connections, st.SNAT[0])
	}
	again.audit()
}

// A gateway does not send back what only the peer's records say.
func TestRecordsAreNotSentBack(t *testing.T) {
	a, b := syncedPair(t, "")
	a.connect(host)
	a.changesTo(b)
	b.after(20 * time.Second)
	if n := b.changesTo(a); n != 0 {
		t.Errorf("%d records come back", n)
	}
}

// A record does not get the source port of a connection that is served here.
func TestARecordDoesNotTakeAPortInUse(t *testing.T) {
	a, _ := syncedPair(t, "")
	to := flowOf(a.connect(host))
	r := oneRecord(t, a)
	r.Client = netip.MustParseAddrPort("198.18.0.77:4000")
	a.g.synced.Import([]datapath.Record{r})
	a.outcome(t, map[string]uint64{"conflict": 1})
	if got := flowOf(a.expect(0, client(host, web, "PA").bytes(), 1)); got.src != to.src {
		t.Errorf("from %v, before from %v", got.src, to.src)
	}
}
