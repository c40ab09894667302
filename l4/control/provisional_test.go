package control

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// tcpFlows are a client and the service over both families.
var tcpFlows = [][2]string{{host, web}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}}

var macForger = [6]byte{2, 6, 6, 6, 6, 6}

// routedWorld is a gateway of a pair that knows the way to the clients of 198.18.0.9 and 2001:db8::9, by port 0 and macClient.
func routedWorld(t *testing.T, src string, index int) *world {
	t.Helper()
	c := parse(t, src)
	c.Sync = &config.Sync{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: netip.MustParseAddrPort("127.0.0.2:1"), Key: make([]byte, 32), Index: index}
	hops := hopsOf(c)
	for _, a := range []string{"198.18.0.9", "2001:db8::9"} {
		hops[netip.MustParseAddr(a)] = nexthop.Hop{MAC: macClient, Dev: 0, State: nexthop.Ready}
	}
	w := newWorldWith(t, c, hops)
	w.g.synced.now, w.g.synced.on = func() clock.Time { return w.now }, func(_ int, f func()) bool { f(); return true }
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		w.g.ResolveClients(ctx, func() clock.Time { return w.now }, func(_ int, f func()) bool { w.commands <- f; return true })
		close(done)
	}()
	t.Cleanup(func() { stop(); <-done })
	return w
}

// recordsTo carries what changed at w to o, as a version of the format has it.
func (w *world) recordsTo(o *world, version int) (n int) {
	var list []datapath.Record
	w.g.synced.Changes(func(r *datapath.Record) bool {
		if version == 1 {
			r.Windows = datapath.Windows{}
		}
		list = append(list, *r)
		return true
	})
	o.g.synced.Import(list)
	return len(list)
}

// forge sends segments of the client at src from another link address, with random numbers: all that a stranger can make.
func (w *world) forge(src, dst string, n int, seed uint64) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	for range n {
		for _, flags := range []string{"A", "PA", "FA", "R", "RA", "S"} {
			s := client(src, dst, flags)
			s.from, s.seq, s.ack, s.window = macForger, r.Uint32(), r.Uint32(), uint16(r.Uint32())
			if got := w.send(0, s.bytes()); got.verdict != packet.Forward || got.port != 1 {
				w.t.Fatalf("a forged segment with %s: %v to %d", flags, got.verdict, got.port)
			}
		}
	}
}

// toClientAt sends a backend's segment and wants it at the client's link address. The first may wait for the route.
func (w *world) toClientAt(s seg) {
	w.t.Helper()
	got := w.send(1, s.bytes())
	if got.verdict == packet.DropNoNeighbor {
		w.resolved()
		got = w.send(1, s.bytes())
	}
	if got.verdict != packet.Forward || [6]byte(got.p[:6]) != macClient {
		w.t.Fatalf("a reply leaves by %v to %x, the client is at %x", got.verdict, got.p[:6], macClient)
	}
}

// at moves a segment on: by so much of what its sender has sent, and of what the other has.
func (s seg) at(sent, acknowledged uint32) seg {
	s.seq, s.ack = firstSeq+sent, firstSeq+acknowledged
	return s
}

// Segments that are forged to a standby change nothing that its peer has sent, with and without windows: after a take-over
// in a download, whose first segments are the backend's, replies find the client, and the connection is followed to its end.
func TestForgedSegmentsDoNotHarmAStandby(t *testing.T) {
	for _, keys := range []string{"", "source: client"} {
		for i := range 4 {
			version, host, web := 1+i%2, tcpFlows[i/2][0], tcpFlows[i/2][1]
			t.Run(fmt.Sprintf("%s version %d of %s", keys, version, host), func(t *testing.T) {
				a, b := syncedWorld(t, keys, 0), routedWorld(t, fill(keys), 1)
				to := flowOf(a.connectTo(host, web))
				a.recordsTo(b, version)
				b.forge(host, web, 20, uint64(version))
				if st := b.g.Status(); st.Active != 1 || st.Closing != 0 || st.HalfOpen != 0 {
					t.Fatalf("%d active, %d closing, %d half-open after forged segments", st.Active, st.Closing, st.HalfOpen)
				}
				back := backendSends(to.dst.String(), to.src.String(), "PA")
				sent := uint32(50_000) // since the record
				b.toClientAt(back.at(sent, 0))
				b.forge(host, web, 1, 3)
				b.toClientAt(back.at(sent, 0)) // again: the client has not answered
				b.expect(0, client(host, web, "A").at(0, sent).bytes(), 1)
				b.forge(host, web, 5, 4)
				for range 3 {
					sent += 1000
					b.toClientAt(back.at(sent, 24))
				}
				b.expect(0, client(host, web, "R").at(24, 0).bytes(), 1)
				if st := b.g.Status(); st.Closing != 1 {
					t.Errorf("a reset of the client does not end the connection: %+v", st)
				}
				b.after(11 * time.Second)
				if n := b.g.Status().Connections; n != 0 {
					t.Errorf("%d connections", n)
				}
				b.audit()
			})
		}
	}
}

// A record's windows may be behind. Within syncSlack of them both sides together verify a connection; beyond that it is
// forwarded and lives on, and is not followed.
func TestWindowsOfARecordMayBeBehind(t *testing.T) {
	for _, c := range []struct {
		name     string
		sent     uint32
		followed bool
	}{{"inside the window", 3000, true}, {"100 MB behind", 100_000_000, true}, {"1 GB behind", 1_000_000_000, false}} {
		t.Run(c.name, func(t *testing.T) {
			a, b := syncedWorld(t, "", 0), routedWorld(t, fill(""), 1)
			to := flowOf(a.connect(host))
			a.recordsTo(b, 2)
			back := backendSends(to.dst.String(), to.src.String(), "PA")
			b.after(time.Hour)
			for i := range uint32(5) {
				b.toClientAt(back.at(c.sent+i*1000, 0))
				b.expect(0, client(host, web, "A").at(0, c.sent+i*1000+16).bytes(), 1)
				b.after(20 * time.Minute)
			}
			if n := b.g.Status().Connections; n != 1 {
				t.Fatalf("%d connections after 2 hours with packets", n)
			}
			b.expect(0, client(host, web, "FA").at(24, c.sent+4016).bytes(), 1)
			if got := b.g.Status().Closing == 1; got != c.followed {
				t.Errorf("a FIN closes it: %v, want %v", got, c.followed)
			}
		})
	}
}

// A segment that fits the windows of a record is enough. Without them both sides are needed.
func TestASegmentInTheWindowsOfARecordIsEnough(t *testing.T) {
	for version, want := range []uint64{1: 0, 2: 1} {
		if version == 0 {
			continue
		}
		a, b := syncedWorld(t, "", 0), syncedWorld(t, "", 1)
		a.connect(host)
		a.recordsTo(b, version)
		b.expect(0, client(host, web, "FA").at(24, 0).bytes(), 1)
		if n := b.g.Status().Closing; n != want {
			t.Errorf("version %d: %d connections close after a FIN", version, n)
		}
	}
}

// After a restart forged segments come first. They pick the connection up, and neither lead replies elsewhere nor keep its
// own segments from being followed.
func TestForgedSegmentsDoNotTakeAPickedUpConnection(t *testing.T) {
	for _, f := range tcpFlows {
		t.Run(f[0], func(t *testing.T) { forgedPickUp(t, f[0], f[1]) })
	}
}

func forgedPickUp(t *testing.T, host, web string) {
	w := routedWorld(t, fill("source: client"), 0)
	first := client(host, web, "A")
	first.from, first.seq, first.ack = macForger, 0x12345678, 0x9abcdef0
	backend := flowOf(w.expect(0, first.bytes(), 1)).dst.String()
	w.forge(host, web, 5, 5)
	back := backendSends(backend, host, "PA")
	w.toClientAt(back.at(9000, 0))
	w.forge(host, web, 2, 6)
	w.toClientAt(back.at(9000, 0))
	w.expect(0, client(host, web, "A").at(0, 9016).bytes(), 1)
	if st := w.g.Status(); st.HalfOpen != 0 || st.Active != 1 {
		t.Errorf("%d half-open, %d active after both sides", st.HalfOpen, st.Active)
	}
	w.forge(host, web, 5, 7)
	w.toClientAt(back.at(9016, 0))
	w.expect(0, client(host, web, "FA").at(24, 9032).bytes(), 1)
	w.toClientAt(backendSends(backend, host, "FA").at(9032, 49))
	if st := w.g.Status(); st.Closing != 1 {
		t.Errorf("it is not followed to its end: %+v", st)
	}
	w.audit()
}

// A FIN that is the candidate of its side counts once the connection is verified.
func TestAFINPicksUpToo(t *testing.T) {
	w := pickUpWorld(t, fill("source: client"))
	backend := flowOf(w.expect(0, client(host, web, "FA").bytes(), 1)).dst.String()
	w.toClientAt(backendSends(backend, host, "A").at(0, 25))
	if st := w.g.Status(); st.Closing != 1 || st.HalfOpen != 0 {
		t.Errorf("%d closing, %d half-open", st.Closing, st.HalfOpen)
	}
}

// What only forged segments have picked up is forgotten soon, not after the idle time of an open connection.
func TestAForgedConnectionIsForgottenSoon(t *testing.T) {
	w := pickUpWorld(t, fill("source: client"))
	w.forge(host, web, 1, 8)
	if n := w.g.Status().Connections; n != 1 {
		t.Fatalf("%d connections", n)
	}
	w.after(5 * time.Minute) // table.tcp.syn_recv is 4
	if n := w.g.Status().Connections; n != 0 {
		t.Errorf("%d connections five minutes later", n)
	}
}

// In direct modes the client alone confirms a connection, by going on where it was: new data later, or acknowledging more.
// Forged numbers do not keep it from being confirmed, and neither end a connection of the peer nor count as its own.
func TestADirectConnectionIsConfirmedByGoingOn(t *testing.T) {
	w := newWorld(t, directConfig)
	w.forge(host, web, 3, 9)
	w.expect(0, client(host, web, "A").at(0, 0).bytes(), 1)
	w.after(time.Second)
	w.expect(0, client(host, web, "A").at(0, 0).bytes(), 1)
	if n := w.g.Status().HalfOpen; n != 1 {
		t.Errorf("%d half-open after the same segment twice", n)
	}
	w.expect(0, client(host, web, "A").at(0, 1).bytes(), 1) // the backend has sent more
	if st := w.g.Status(); st.HalfOpen != 0 || st.Active != 1 {
		t.Errorf("%d half-open, %d active", st.HalfOpen, st.Active)
	}

	w = newWorld(t, directConfig)
	w.expect(0, client(host, web, "A").at(0, 0).bytes(), 1)
	w.expect(0, client(host, web, "A").at(24, 0).bytes(), 1)
	if n := w.g.Status().HalfOpen; n != 1 {
		t.Errorf("%d half-open after data at once", n)
	}
	w.after(time.Second)
	w.expect(0, client(host, web, "A").at(48, 0).bytes(), 1)
	if n := w.g.Status().HalfOpen; n != 0 {
		t.Errorf("%d half-open after data later", n)
	}
}

// Forged segments do not end connections of the peer in any direct mode, over both families, nor count as their clients' own.
func TestForgedSegmentsDoNotHarmADirectStandby(t *testing.T) {
	configs := map[string]string{"l2 " + backend4: fmt.Sprintf(tunnelConfig, "l2", backend4), "l2 " + backend6: fmt.Sprintf(tunnelConfig, "l2", backend6)}
	for _, c := range tunnels {
		configs[c.mode+" "+c.backend] = fmt.Sprintf(tunnelConfig, c.mode, c.backend)
	}
	for name, config := range configs {
		for i := range 4 {
			version, f := 1+i%2, tcpFlows[i/2]
			if name == "l2 "+backend4 && i/2 == 1 || name == "l2 "+backend6 && i/2 == 0 {
				continue // link addresses lead to backends of the client's family
			}
			t.Run(fmt.Sprint(name, " version ", version, " of ", f[0]), func(t *testing.T) {
				forgedDirect(t, config, version, f[0], f[1])
			})
		}
	}
}

func forgedDirect(t *testing.T, config string, version int, host, web string) {
	a, b := syncedWorldOf(t, config, 0), syncedWorldOf(t, config, 1)
	a.expect(0, client(host, web, "S").bytes(), 1)
	a.expect(0, client(host, web, "A").bytes(), 1)
	if n := a.recordsTo(b, version); n != 1 {
		t.Fatalf("%d records", n)
	}
	b.forge(host, web, 10, 10)
	if st := b.g.Status(); st.Active != 1 || st.Closing != 0 {
		t.Errorf("%d active, %d closing after forged segments", st.Active, st.Closing)
	}
	for i := range uint32(3) {
		b.expect(0, client(host, web, "A").at(24*i, i).bytes(), 1)
	}
	b.expect(0, client(host, web, "R").at(72, 0).bytes(), 1)
	if st := b.g.Status(); st.Closing != 1 {
		t.Error("the client's own reset does not end it")
	}
	b.audit()
}

// A connection that goes to the other gateway and comes back is followed at both: records move the numbers on.
func TestAConnectionThatComesBackIsFollowed(t *testing.T) {
	a, b := syncedWorld(t, "", 0), routedWorld(t, fill(""), 1)
	to := flowOf(a.connect(host))
	a.recordsTo(b, 2)
	back := backendSends(to.dst.String(), to.src.String(), "PA")
	sent, records := uint32(0), 0
	for range 10_000 { // 40 MB by the peer
		s := back.at(sent, 0)
		s.payload = string(make([]byte, 1000))
		s.seq += 3000
		sent += 4000
		b.toClientAt(s)
		b.expect(0, client(host, web, "A").at(0, sent).bytes(), 1)
		if n := b.recordsTo(a, 2); n > 0 {
			records += n
		}
	}
	if records < 8 || records > 14 { // one for each 4 MiB, and one every 30 s
		t.Errorf("%d records of 40 MB", records)
	}
	a.expect(1, back.at(sent, 0).bytes(), 0)
	a.expect(0, client(host, web, "A").at(0, sent+16).bytes(), 1)
	a.expect(0, client(host, web, "FA").at(24, sent+16).bytes(), 1)
	if st := a.g.Status(); st.Closing != 1 {
		t.Errorf("it is not followed any more: %+v", st)
	}
}

// What the kernel forwards is reported to the peer, too.
func TestThePeerHearsOfConnectionsInTheKernel(t *testing.T) {
	c := parse(t, fill(""))
	c.Sync = &config.Sync{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Peer: netip.MustParseAddrPort("127.0.0.2:1"), Key: make([]byte, 32)}
	w := kernelWorldWith(t, c, hopsOf(c), 8, 4)
	w.h.SyncChanges()
	w.g.synced.now = func() clock.Time { return w.now }
	to := flowOf(w.inKernel(host))
	w.expectBack(1)
	back := backendSends(to.dst.String(), to.src.String(), "PA")
	w.g.synced.Changes(func(*datapath.Record) bool { return true })
	sent := uint32(0)
	for range 2000 {
		s := back.at(sent, 0)
		s.payload = string(make([]byte, 1000))
		s.seq += 2000
		sent += 3000
		w.expect(1, s.bytes(), 0)
		w.expect(0, client(host, web, "A").at(0, sent).bytes(), 1)
	}
	w.after(150 * time.Millisecond)
	var last datapath.Record
	w.g.synced.Changes(func(r *datapath.Record) bool { last = *r; return true })
	if end := last.Windows.Sides[1].End; !last.Windows.Known || end != firstSeq+sent {
		t.Errorf("the last record says %d, sent are %d: %+v", end, firstSeq+sent, last)
	}
}

// Which state follows when the peer comes into step, is lost, and is awaited in vain.
func TestStatesOfThePeer(t *testing.T) {
	for _, c := range []struct {
		from           peerState
		inStep, timeUp bool
		to             peerState
	}{
		{peerAwaiting, false, false, peerAwaiting},
		{peerAwaiting, false, true, peerAbsent},
		{peerAwaiting, true, false, peerInStep},
		{peerAbsent, false, true, peerAbsent},
		{peerAbsent, true, true, peerInStep},
		{peerInStep, true, true, peerInStep},
		{peerInStep, false, true, peerLost},
		{peerInStep, false, false, peerLost},
		{peerLost, false, true, peerLost},
		{peerLost, true, true, peerInStep},
		{peerGone, false, true, peerGone},
		{peerGone, true, true, peerInStep},
	} {
		if got := c.from.next(c.inStep, c.timeUp); got != c.to {
			t.Errorf("%d follows %d with %v, %v, want %d", got, c.from, c.inStep, c.timeUp, c.to)
		}
	}
}

// While a peer is out of reach, segments of unknown connections are dropped, of clients and of backends. While it is in step,
// and where there is none any more, they are reset.
func TestUnknownConnectionsOfALostPeerAreNotReset(t *testing.T) {
	w := syncedWorldOf(t, fill("source: gateway"), 0)
	unknown := map[string]func() sent{
		"client":  func() sent { return w.send(0, client(host, web, "A").bytes()) },
		"backend": func() sent { return w.send(1, backendSends("198.18.2.11:8080", "198.18.2.1:40000", "A").bytes()) },
	}
	was := peerAwaiting
	for _, c := range []struct {
		state peerState
		want  packet.Verdict
	}{
		{peerAbsent, packet.DropNoFlow},
		{peerGone, packet.Forward},
		{peerInStep, packet.Forward},
		{peerLost, packet.DropNoFlow},
		{peerInStep, packet.Forward},
		{peerLost, packet.DropNoFlow},
	} {
		w.g.peerChanged(was, c.state)
		was = c.state
		for name, send := range unknown {
			if got := send(); got.verdict != c.want {
				t.Errorf("state %d: a segment of a %s: %v, want %v", c.state, name, got.verdict, c.want)
			}
		}
		if st := w.g.syncStatus(); st.Holds != (c.want != packet.Forward) || st.Waiting {
			t.Errorf("state %d: the status says %+v", c.state, st)
		}
	}
}

// Segments of a provisional connection allocate nothing.
func TestProvisionalConnectionsDoNotAllocate(t *testing.T) {
	w := newWorld(t, fill("source: client"))
	s := client(host, web, "A")
	w.expect(0, s.bytes(), 1)
	s.seq, s.ack = 77, 99
	b := w.batch(0, s.bytes())
	w.describe(b)
	copyOf := b.D[0]
	frame := append([]byte(nil), b.Bytes(0)...)
	if n := testing.AllocsPerRun(100, func() {
		b.D[0] = copyOf
		copy(b.Bytes(0), frame)
		w.h.Handle(w.now, b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
