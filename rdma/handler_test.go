package rdma

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// TestAcknowledgementsLeaveAtOnce: a program that ends when it has its last message leaves no peer without an acknowledgement.
func TestAcknowledgementsLeaveAtOnce(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 4096), newSide(t, c, RC, 4096)
	join(t, a, b, ConnectConfig{})
	h := c.Enter() // the loop does not run meanwhile
	defer h.Exit()
	tick := func(what string, want int) {
		t.Helper()
		if (handler{c}).Tick(c.polledAt); len(c.local) != want {
			t.Fatalf("%s: %d packets, want %d", what, len(c.local), want)
		}
	}
	tick("what joining has left", 0)
	w := SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	if err := h.PostSend(a.qp, &w); err != nil {
		t.Fatal(err)
	}
	tick("WRITE", 1)
	tick("it arrives, and the acknowledgement leaves", 1)
	tick("that arrives", 0)
}

// TestTrafficClasses: packets of a queue pair have its DSCP, or that of the context.
func TestTrafficClasses(t *testing.T) {
	c := openContext(t, 1, Config{TOS: 0x20})
	for own, want := range map[uint8]byte{0: 0x20, 0x68: 0x68} {
		a, b := newSideWith(t, c, QPConfig{Service: RC, TOS: own}, 8), newSide(t, c, RC, 8)
		join(t, a, b, ConnectConfig{})
		h := c.Enter()
		err := h.PostSend(a.qp, &SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		(handler{c}).Tick(c.polledAt)
		if err != nil || len(c.local) != 1 || wire.IPv4(c.local[0][wire.EthernetLen:]).TOS() != want {
			t.Errorf("TOS %#x: %d packets, %v", own, len(c.local), err)
		}
		for len(c.local) > 0 {
			(handler{c}).Tick(c.polledAt)
		}
		h.Exit()
	}
}

// TestVerdicts gives frames to the handler of a context: each is counted once, under its reason, and gets the loop's verdict.
func TestVerdicts(t *testing.T) {
	c := openContext(t, 1, Config{})
	s := newSide(t, c, RC, 64)
	if err := s.qp.Connect(Endpoint{Addr: ownAddr, QPN: 5}, ConnectConfig{}); err != nil {
		t.Fatal(err)
	}
	own, other := wire.AddrFrom(ownAddr), wire.AddrFrom4([4]byte{198, 18, 0, 9})
	build := func(dst wire.Addr, p roce.Packet) []byte {
		b := make([]byte, 200)
		return b[:roce.Build(b, &roce.Envelope{Src: own, Dst: dst, TTL: 1}, &p)]
	}
	good := roce.Packet{Opcode: roce.SendOnly, DestQP: s.qp.QPN(), PKey: 0xffff}
	unknown, partition := good, good
	unknown.DestQP ^= 1
	partition.PKey = 0x8001
	damaged := build(own, good)
	damaged[len(damaged)-1] ^= 1
	for _, x := range []struct {
		name  string
		frame []byte
		want  packet.Verdict
		count func() *uint64
	}{
		{"another address", build(other, good), packet.DropNotOurs, func() *uint64 { return &c.count.otherAddr }},
		{"unknown queue pair", build(own, unknown), packet.DropNoSocket, func() *uint64 { return &c.count.unknownQP }},
		{"wrong ICRC", damaged, packet.DropL4Checksum, func() *uint64 { return &c.count.refused[roce.BadICRC] }},
		{"cut", build(own, good)[:50], packet.DropTruncated, func() *uint64 { return &c.count.refused[roce.Truncated] }},
		{"wrong partition", build(own, partition), packet.DropDenied, func() *uint64 { return &c.count.dropped[transport.WrongPKey] }},
		{"no receive", build(own, good), packet.DropSocketFull, func() *uint64 { return &c.count.dropped[transport.NoReceive] }},
	} {
		now := c.lock.Enter()
		before := *x.count()
		got, after := c.input(now, x.frame), *x.count()
		c.lock.ExitUnchanged()
		if got != x.want || after != before+1 {
			t.Errorf("%s: %v, counted %d; want %v", x.name, got, after-before, x.want)
		}
	}
	for r := roce.Accepted + 1; r < roce.Reasons; r++ {
		if !frameVerdicts[r].Dropped() {
			t.Errorf("frames dropped as %v have the verdict %v", r, frameVerdicts[r])
		}
	}
	for r := transport.Taken + 1; r < transport.Reasons; r++ {
		if !effectVerdicts[r].Dropped() {
			t.Errorf("packets dropped as %v have the verdict %v", r, effectVerdicts[r])
		}
	}
}

// resolver is a nexthop.Resolver that reports what a test wants.
type resolver struct {
	nexthop.Resolver
	state nexthop.State
}

func (r resolver) Watch(addrs []netip.Addr, changed func(netip.Addr, nexthop.Hop)) {
	for _, a := range addrs {
		changed(a, nexthop.Hop{State: r.state})
	}
}

// TestUnreachablePeers has no route to a peer, or no answer to ARP: a connection fails by its retries, and datagrams are lost.
func TestUnreachablePeers(t *testing.T) {
	for _, state := range []nexthop.State{nexthop.NoRoute, nexthop.Unresolved} {
		c := openContext(t, 1, Config{Hops: resolver{state: state}})
		peer := netip.MustParseAddr("198.18.0.77")
		rc, ud := newSide(t, c, RC, 64), newSide(t, c, UD, 64)
		ah, err := ud.pd.CreateAH(peer)
		if err := errors.Join(err, rc.qp.Connect(Endpoint{Addr: peer, QPN: 5}, ConnectConfig{}), ud.qp.OpenDatagrams(1)); err != nil {
			t.Fatal(err)
		}
		rc.post(SendWR{Op: OpWrite})
		ud.post(SendWR{Op: OpSend, Path: ah.Number(), DestQP: 5})
		if w := ud.completions(1)[0]; w.Status != transport.Success {
			t.Errorf("%v: datagram %v", state, w.Status)
		}
		if w := rc.completions(1)[0]; w.Status != transport.RetriesExceeded {
			t.Errorf("%v: connection %v", state, w.Status)
		}
		c.lock.Enter()
		if n := c.count.noPath; n != 1+8 {
			t.Errorf("%v: %d packets were lost", state, n)
		}
		c.lock.ExitUnchanged()
	}
}

// TestPatience has a packet wait for a link address until its time is over, and the next wait anew once one was known.
func TestPatience(t *testing.T) {
	const start = clock.Time(5e9)
	c := &Context{polled: new(QP), polledAt: start}
	waiting := &path{}
	for _, x := range []struct {
		after time.Duration
		lost  bool
	}{{0, false}, {patience - 1, false}, {patience, true}, {patience + 1, true}} {
		c.polledAt, c.polled.waits = start.Add(x.after), false
		if lost := c.emitNowhere(waiting); lost != x.lost || c.polled.waits == x.lost {
			t.Errorf("after %v: lost %v, waits %v", x.after, lost, c.polled.waits)
		}
	}
	c.polled.waitsSince = 0
	if !c.emitNowhere(&path{hop: nexthop.Hop{State: nexthop.NoRoute}}) || c.emitNowhere(waiting) {
		t.Error("without a route a packet waits, or with one it does not")
	}
}

// TestPacketsOfSeveralFramesAreDropped has a chain between two others: it counts once.
func TestPacketsOfSeveralFramesAreDropped(t *testing.T) {
	c := openContext(t, 1, Config{})
	now := c.lock.Enter()
	defer c.lock.ExitUnchanged()
	b := packet.NewBatch(c.out.Arena(), 4)
	for _, f := range []packet.Flags{packet.FlagMore, packet.FlagMore, 0, 0} {
		b.Append(packet.Desc{Len: 60, Flags: f})
	}
	handler{c}.Handle(now, b)
	if b.D[0].Verdict != packet.DropUnsupported || !b.D[3].Verdict.Dropped() || c.count.received != 1 {
		t.Errorf("%v, %v, %d received", b.D[0].Verdict, b.D[3].Verdict, c.count.received)
	}
}
