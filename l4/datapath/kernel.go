package datapath

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// The kernel can forward established connections without the loop: package fastpath says what it does. The table stays
// the truth. It is brought up to date (read) before anything looks at the deadline, the sequence numbers or the counters
// of a connection that the kernel forwards:
//
//	a packet of it comes to the loop, or an ICMP error about it     cameToLoop, expired
//	the sweep passes it: within sweepRound                          sweepKernel
//	it may be evicted, or replaced by a record of a peer            idlest, replaceable
//	it is listed                                                    Conns
//	it ends, for any reason                                         forget, abort
//
// A packet that comes to the loop is decided as any other. If it changes what the kernel has a copy of, the loop takes
// the connection back (takeBack). Forged segments change nothing, so they keep no connection from the kernel.
//
// Conn.place of a confirmed connection says how far it is:
//
//	31 30 29     25 24                    0
//	+--+--+--------+-----------------------+
//	|1 |1 |backoff | place in entries      |   the kernel forwards it
//	|1 |0 |backoff | packets in the loop   |   it may
//	+--+--+--------+-----------------------+
//
// and 0 where there was no packet since.
const (
	placeConfirmed = 1 << 31
	placeEntered   = 1 << 30
	placeBackoff   = 25 // shift
	placeLow       = 1<<placeBackoff - 1
)

const (
	// flushEvery and flushMost say when keys are entered and removed, by system calls that are to serve many: at the
	// latest that long after the first was noted, or when so many are.
	flushEvery, flushMost = time.Millisecond, 64

	// mostMissed is the number of packets of a connection that may come to the loop in a row after its keys were entered, without
	// one that the kernel forwards: more than were under way. A key may be missing, or the device have lost its program.
	mostMissed = 4096
)

// Why a connection comes back, and what else is counted of the kernel: see Kernel.
const (
	backEnded   = iota // it expired, or was evicted, reset or replaced
	backClosing        // FIN, RST, or a SYN+ACK of another connection with its ports
	backLink           // another link address, VLAN or device
	backLoose          // segments beyond the window, or fragments: the sequence numbers are judged less strictly
	backChanged        // the configuration, a backend or a next hop has changed
	backIdle           // others needed its slot
	backMissed         // its packets came to the loop all the same
	backReasons
)

// The counts of a loop's connections in the kernel, besides the reasons.
const (
	kernelEntered = backReasons + iota
	kernelRejected
	kernelFlushErrors
	kernelToPackets
	kernelToBytes
	kernelFromPackets
	kernelFromBytes
	kernelCounters
)

// kernelFlows are the connections of a loop that the kernel forwards.
type kernelFlows struct {
	forwarder  fastpath.Forwarder // nil: none
	entries    []kernelEntry      // without gaps
	after      uint32             // Options.EnterAfter
	generation uint32
	flushes    uint32
	noted      int        // connections entered and taken back since the last flush
	since      clock.Time // the first of them
	short      bool       // a connection found no slot since the sweep began its pass
	counts     *metrics.Block
	live       metrics.Counter
}

// kernelEntry is a connection that the kernel forwards.
type kernelEntry struct {
	slot, conn        uint32
	generation        uint32
	backend, endpoint uint32 // numbers; the endpoint's is its place in Snapshot.Endpoints
	mac               [6]byte
	devs              [2]uint8 // that packets of each side come by
	loose             bool
	packets, bytes    [2]uint64 // read so far
	last              clock.Time
	flush             uint32 // the last one before it was entered
	missed            uint32 // packets that came to the loop in a row
	start             uint64 // packets of both sides that were read at the last pass of the sweep
}

// SetForwarder makes the handler give established connections to the kernel. It is called before the first packet.
func (h *Handler) SetForwarder(f fastpath.Forwarder) {
	h.kernel.forwarder, h.kernel.counts = f, metrics.NewBlock(kernelCounters)
}

func (k *kernelFlows) on() bool { return k.forwarder != nil }

// halfOpen reports whether only one side of the connection has been seen.
func (c *Conn) halfOpen() bool { return int32(c.place) > 0 }

// entered reports whether the kernel forwards the connection.
func (c *Conn) entered() bool { return c.place>>30 == placeConfirmed>>30|placeEntered>>30 }

// entry returns that of a connection that the kernel forwards.
func (k *kernelFlows) entry(c *Conn) *kernelEntry { return &k.entries[c.place&placeLow] }

// expired reports whether the connection expired, also where the kernel may have had packets since.
func (h kernelSide) expired(c *Conn) bool {
	if c.expired(h.now) {
		h.read(c)
	}
	return c.expired(h.now)
}

// read brings the connection up to date, if the kernel forwards it.
func (h kernelSide) read(c *Conn) {
	if c.entered() {
		e := h.kernel.entry(c)
		t := h.kernel.forwarder.Read(e.slot)
		h.merge(e, &t)
	}
}

// merge enters in the table what the kernel has forwarded of a connection.
func (h kernelSide) merge(e *kernelEntry, t *fastpath.Traffic) {
	c, stats := &h.table.conns[e.conn], h.stats[e.backend]
	for side := range t.Packets {
		packets, bytes := t.Packets[side]-e.packets[side], t.Bytes[side]-e.bytes[side]
		if packets|bytes != 0 {
			stats.Add(ToPackets+2*side, packets) // not by a tally, which 4 GiB would not fit in
			stats.Add(ToBytes+2*side, bytes)
			h.kernel.counts.Add(kernelToPackets+2*side, packets)
			h.kernel.counts.Add(kernelToBytes+2*side, bytes)
		}
	}
	e.packets, e.bytes = t.Packets, t.Bytes
	if last := max(t.Last[sideClient], t.Last[sideBackend]); last > e.last {
		e.last = last
		if d := ticksAt(last) + ticks(h.snap.Timeouts[c.state]); int32(d-c.deadline) > 0 {
			c.deadline = d
		}
	}
	if c.state == stateUDP {
		return
	}
	for side := range t.Sequences {
		q := &h.table.sequences[e.conn][side]
		before := q.end
		q.raise(&t.Sequences[side])
		h.syncSide().reportProgress(int(e.conn), before, q.end)
	}
	if t.Loose {
		c.flags |= connLoose
	}
}

// raise moves the numbers on to those of the kernel.
func (s *sequence) raise(to *fastpath.Sequence) {
	later := func(at *uint32, to uint32) {
		if after(to, *at) {
			*at = to
		}
	}
	later(&s.end, to.End)
	later(&s.limit, to.Limit)
	later(&s.acked, to.Acked)
	s.window = max(s.window, to.Window)
}

// takeBack takes a connection back from the kernel, if that forwards it.
func (h kernelSide) takeBack(c *Conn, why int) {
	if !c.entered() {
		return
	}
	k := &h.kernel
	at := c.place & placeLow
	e := k.entries[at]
	t := k.forwarder.Leave(e.slot)
	h.merge(&e, &t)
	k.counts.Add(why, 1)
	h.noteKernel()

	backoff, packets := c.place>>placeBackoff&31, uint32(0)
	if t.Packets[sideClient]+t.Packets[sideBackend] >= longStay {
		backoff = 0
	}
	switch why {
	case backLink, backMissed:
		backoff = min(backoff+1, mostBackoff)
	case backChanged: // it has proved itself
		packets = placeLow >> 1
	}
	c.place = placeConfirmed | backoff<<placeBackoff | packets

	last := len(k.entries) - 1
	if moved := k.entries[last]; int(at) != last {
		k.entries[at] = moved
		m := &h.table.conns[moved.conn]
		m.place = m.place&^placeLow | at
	}
	k.entries = k.entries[:last]
}

// noteKernel notes that the next flush has something to do.
func (h kernelSide) noteKernel() {
	k := &h.kernel
	if k.noted++; k.noted == 1 {
		k.since = h.clock
	}
}

// cameToLoop prepares the decision on a packet of a connection that the kernel forwards.
func (h kernelSide) cameToLoop(n int, v *view, side int) {
	c := &h.table.conns[n]
	e := h.kernel.entry(c)
	before := e.packets
	h.read(c)
	if e.missed++; e.packets != before || e.flush == h.kernel.flushes {
		e.missed = 0
	}
	switch {
	case e.generation != h.kernel.generation:
		h.takeBack(c, backChanged)
	case e.missed > mostMissed:
		h.takeBack(c, backMissed)
	case side == sideBackend && v.part == whole && v.flags.Has(wire.FlagSYN) && h.tracker().reopens(n, wire.TCP(v.p[v.d.L4:]).Ack()):
		h.takeBack(c, backClosing) // its numbers are another connection's
	}
}

// loopForwarded follows the decision on a packet of connection n that came by dev: the kernel gets the connection, or
// gives it back where its copy is not right any more.
func (h kernelSide) loopForwarded(n, side int, dev uint8, verdict packet.Verdict) {
	c := &h.table.conns[n]
	if !c.entered() {
		if verdict == packet.Forward && !c.halfOpen() && (c.state == stateEstablished || c.state == stateUDP) {
			h.advance(n, side, dev)
		}
		return
	}
	e := h.kernel.entry(c)
	switch {
	case c.state != stateUDP && c.state != stateEstablished:
		h.takeBack(c, backClosing)
	case c.mac != e.mac || c.dev != e.devs[sideClient] || c.vlan != 0 || side == sideBackend && dev != e.devs[side]:
		h.takeBack(c, backLink)
	case c.flags&connLoose != 0 && !e.loose:
		h.takeBack(c, backLoose)
	case c.state == stateEstablished:
		to := h.table.sequences[n].forKernel()
		h.kernel.forwarder.Raise(e.slot, &to)
	}
}

func (s *sequences) forKernel() (to [2]fastpath.Sequence) {
	for side, q := range s {
		to[side] = fastpath.Sequence{End: q.end, Limit: q.limit, Window: q.window, Acked: q.acked}
	}
	return to
}

// sweepKernel brings a connection that the sweep passes up to date. It comes back where it is of an earlier generation, and
// where it had no packet since the pass before while others find no slot.
func (h kernelSide) sweepKernel(c *Conn) {
	if !c.entered() {
		return
	}
	h.read(c)
	e := h.kernel.entry(c)
	n := e.packets[sideClient] + e.packets[sideBackend]
	switch {
	case e.generation != h.kernel.generation:
		h.takeBack(c, backChanged)
	case h.kernel.short && e.start == n:
		h.takeBack(c, backIdle)
	default:
		e.start = n
	}
}

// TakeSnapshot takes the newest snapshot at once. The loop would do so with its next packet, which may not come while the
// kernel forwards all of them. Only the loop may call it.
func (h *Handler) TakeSnapshot(now clock.Time) {
	h.clock, h.now = now, ticksAt(now)
	h.refresh()
	h.publish()
}

// reconcileKernel takes back the connections that the snapshot which follows old concerns: all after a reload, which may
// give addresses another meaning, and where devices or own addresses have changed; otherwise those of the backends and endpoints that are
// not what they were: an inactive backend is not usable, and all else of one changes by a reload. The loop forwards nothing
// by the new snapshot before.
func (h kernelSide) reconcileKernel(old *Snapshot) {
	k, s := &h.kernel, h.snap
	if old.Round != s.Round || old.Sources.Mark != s.Sources.Mark || !slices.Equal(old.Devices, s.Devices) {
		k.generation++
		k.forwarder.Renew()
		return
	}
	var backends, endpoints NumberSet
	for i, b := range s.Backends[:min(len(old.Backends), len(s.Backends))] {
		if was := old.Backends[i]; b != was && b.Usable != was.Usable {
			backends.Add(uint32(i))
		}
	}
	for i, e := range s.Endpoints[:min(len(old.Endpoints), len(s.Endpoints))] {
		if was := old.Endpoints[i]; e != was && e.Hop != was.Hop {
			endpoints.Add(uint32(i))
		}
	}
	if backends.Empty() && endpoints.Empty() {
		return
	}
	for i := len(k.entries) - 1; i >= 0; i-- { // backwards, for the last takes the place of one that goes
		if e := &k.entries[i]; backends.Has(e.backend) || endpoints.Has(e.endpoint) {
			h.takeBack(&h.table.conns[e.conn], backChanged)
		}
	}
}

// publishKernel enters and removes what has been noted, if it is time, and publishes how many connections there are.
func (h kernelSide) publishKernel() {
	k := &h.kernel
	if k.noted >= flushMost || k.noted > 0 && h.clock.Sub(k.since) >= flushEvery {
		h.flushKernel()
	}
	gauge(&k.live, len(k.entries))
}

func (h kernelSide) flushKernel() {
	h.kernel.noted = 0
	h.kernel.flushes++
	if h.kernel.forwarder.Flush(h.clock) != nil {
		h.kernel.counts.Add(kernelFlushErrors, 1)
	}
}

// leaveKernel takes all connections back: the loop ends.
func (h kernelSide) leaveKernel() {
	k := &h.kernel
	for i := len(k.entries) - 1; i >= 0; i-- {
		h.takeBack(&h.table.conns[k.entries[i].conn], backEnded)
	}
	if k.on() {
		h.flushKernel()
		h.publish()
	}
}

// KernelStatus counts the connections that the kernel forwards.
type KernelStatus struct {
	Connections uint64 // now
	Entered     uint64
	Rejected    uint64 // no slot was free, or the kernel does not take it
	FlushErrors uint64 // flushes after which keys of some were missing
	TakenBack   [len(BackReasons)]uint64

	ToPackets, ToBytes, FromPackets, FromBytes uint64 // as read so far: at most sweepRound ago
}

// BackReasons name why connections come back from the kernel.
var BackReasons = [...]string{
	backEnded: "ended", backClosing: "closing", backLink: "link", backLoose: "loose", backChanged: "changed", backIdle: "idle", backMissed: "missed",
}

// Kernel returns what is counted of the connections that the kernel forwards; false where none does. Any goroutine may call it.
func (h *Handler) Kernel() (s KernelStatus, ok bool) {
	k := &h.kernel
	if !k.on() {
		return s, false
	}
	s = KernelStatus{
		Connections: k.live.Load(), Entered: k.counts.Load(kernelEntered), Rejected: k.counts.Load(kernelRejected),
		FlushErrors: k.counts.Load(kernelFlushErrors),
		ToPackets:   k.counts.Load(kernelToPackets), ToBytes: k.counts.Load(kernelToBytes),
		FromPackets: k.counts.Load(kernelFromPackets), FromBytes: k.counts.Load(kernelFromBytes),
	}
	for why := range s.TakenBack {
		s.TakenBack[why] = k.counts.Load(why)
	}
	return s, true
}
