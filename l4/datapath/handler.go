package datapath

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/l4/quiclb"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Handler decides the packets of one loop; it is a stack.Handler. Handle, Tick, Conns and Audit may be
// called by the loop only. The counts may be read by any goroutine: the loop publishes them once per batch,
// so that a packet costs no atomic operation.
type Handler struct {
	snapshots  *atomic.Pointer[Snapshot]
	loop       int
	loops      int           // number of loops
	span       PortRange     // of all loops' SNAT ports
	snap       *Snapshot     // as of the start of the batch
	arena      *packet.Arena // of the batch
	clock      clock.Time
	now        ticks   // of clock
	meters     *meters // nil while there are no limits
	table      *table
	ports      *ports
	survey     portSurvey
	retirement retirement
	clientHops clientHops
	senders    senders
	sync       syncState
	newSYNs    newSYNs
	kernel     kernelFlows
	offered    offer // what Handle, Offer or Refuse decides
	fragments  *fragments
	held       *heldFragments
	looked     *lookup // what prefetching found of the packet; see prefetcher
	prefetcher prefetcher
	answers    answerLimiter
	outer      outerParser
	scratch    [wire.NDReplyLen]byte
	cid        quiclb.Scratch

	others      []*Handler              // of all loops, this one too; nil until Join
	early       earlyFragments          // that this loop has handed over
	batch       [packet.Verdicts]uint32 // verdicts of this batch
	tallies     []tally                 // of this batch, by backend
	touched     []uint32                // the backends that have a tally
	stats       []*metrics.Block        // what is counted of each backend
	counts      *metrics.Block          // by verdict
	live        metrics.Counter         // connections, as a gauge
	half        metrics.Counter         // half-open ones, as a gauge
	abortResets ip.RateLimiter          // of connections that are aborted
	resetFrame  [maxResetFrame]byte

	onLimited      func(client netip.Addr, now clock.Time) // see OnLimited; nil: not reported
	active         func() bool                             // see Options
	halfOpenResets ip.RateLimiter                          // of half-open connections that are aborted by a reset to the backend

	closing int             // those that have begun to close
	ending  metrics.Counter // the same, as a gauge

	out          Output              // of the loop; nil in tests that need none
	chain        []packet.Desc       // of the batch, from the packet that is decided on: it may have several
	lastID       uint16              // of outer IPv4 headers
	paths        map[addr]tunnelPath // to backends, where tunnels take less than the device
	pieces       []packet.Desc       // scratch of fragmenter.fragment
	tail         []byte              // the same
	segment      []byte              // of fragmenter.makeSegment
	answerCounts *metrics.Block      // answers, by kind

	inspector Inspector      // nil without
	inspected Inspected      // scratch
	matches   []packet.Match // of the batch, from the packet on that is decided on
	searched  uint64         // Batch.Searched
	index     int            // of that packet in the batch
	opens     bool           // it has opened its connection
}

// tally holds the additions of a batch to the counts of a backend.
type tally [BackendCounts]uint32

// Output is the part of its loop's transmit side that a Handler uses: frames for packets that a packet becomes, and the way
// back for packets that it holds. *stack.Output implements it.
type Output interface {
	Reserve(dev uint8, n int) []uint32
	Originate(dev uint8, d []packet.Desc)
	Send(dev uint8, frame []byte) error
	Resume(d []packet.Desc)
	Repeat(d []packet.Desc) bool
	RequestTick()
	AtEnd(f func())
	On(loop int, f func(now clock.Time)) bool
}

// SetOutput sets the transmit side of the handler's loop, before the first packet. Without it fragments that come
// before the first of their datagram are dropped, and so are packets that would leave in fragments, and connections are
// discarded without resets.
func (h *Handler) SetOutput(o Output) {
	h.out = o
	o.AtEnd(h.defragmenter().dropHeld)
	o.AtEnd(h.kernelSide().leaveKernel)
}

// Options are the sizes of a Handler, of all loops together.
type Options struct {
	Loop, Loops int       // this loop, of so many
	Table       int       // connections
	HalfOpen    int       // of them half-open
	Fragments   int       // datagrams whose fragments are followed at once
	SNATPorts   PortRange // each loop has its own part of them,
	Gateway     int       // and each of two gateways that share connections its half of that: 0 or 1;
	Gateways    int       // 0 or 1: there is one

	// PrefetchFrom is the number of connections from which on memory is prefetched; 0 is a number up to
	// which the caches hold the table anyway.
	PrefetchFrom int

	// EnterAfter is the number of packets of a connection that pass the loop before a Forwarder gets it; 0 is a number from which on
	// that pays.
	EnterAfter int

	// Active reports whether the handler answers for addresses now (ARP, neighbour discovery); nil: always. It reads the clock
	// itself: a process may have been suspended since its loop has read it.
	Active func() bool

	Seed uint64 // of hash keys and source ports; 0 is a random one
}

// New returns the handler of a loop. It takes the newest snapshot at the start of each batch.
func New(o Options, snap *atomic.Pointer[Snapshot]) *Handler {
	seed := random.Source(o.Seed)
	if o.Seed == 0 {
		seed = random.Source(rand.Uint64())
	}
	t := newTable(perLoop(o.Table, o.Loops), perLoop(o.HalfOpen, o.Loops), &seed)
	h := &Handler{
		snapshots: snap, loop: o.Loop, loops: o.Loops, span: o.SNATPorts,
		table: t, ports: newPorts(o.SNATPorts.Part(o.Loop, o.Loops).Part(o.Gateway, max(o.Gateways, 1)), seed.Uint64()),
		fragments: newFragments(o.Fragments/o.Loops, &seed),
		paths:     map[addr]tunnelPath{},
		held:      newHeldFragments(&seed),
		looked:    &notLookedUp,
		active:    o.Active,
		counts:    metrics.NewBlock(packet.Verdicts), answerCounts: metrics.NewBlock(answerKinds),
		answers: newAnswerLimiter(&seed),
	}
	h.abortResets = ip.NewRateLimiter(answerRate, answerBurst, 0)
	h.halfOpenResets = ip.NewRateLimiter(halfOpenResetRate, halfOpenResetBurst, 0)
	h.prefetcher.from = cmp.Or(o.PrefetchFrom, manyConns)
	h.kernel.after = uint32(cmp.Or(o.EnterAfter, enterAfter))
	h.refresh()
	return h
}

// perLoop returns each loop's part of n, rounded up.
func perLoop(n, loops int) int { return (n + loops - 1) / loops }

// Handle borrows a batch and decides every packet of it: verdict and device, and the bytes of its frame. It
// keeps the frames of fragments that come before the first of their datagram (hold); see stack.Handler.
//
// Of a packet with several descriptors (FlagMore) the first is decided and the others follow it: headers
// are in the first. One that becomes an answer needs the first frame alone, and the others are released.
func (h *Handler) Handle(now clock.Time, b *packet.Batch) {
	h.handle(now, b)
	h.publish()
}

// ForwardsExternal implements stack.ExternalForwarder: packets are decided by their headers, and of those that are kept none is large.
func (h *Handler) ForwardsExternal() {}

// offer says who may know the flow of a packet that belongs to none here and opens none.
type offer uint8

const (
	toThis  offer = iota // no other handler: the packet is answered, or picked up
	toFirst              // another one, perhaps: the packet is declined
	toLast               // no other one, as the packet was declined before and comes again
)

// Offer implements stack.Refuser.
func (h *Handler) Offer(now clock.Time, b *packet.Batch) {
	h.offered = toFirst
	h.handle(now, b)
	h.offered = toThis
	h.batch[packet.DropNoService], h.batch[packet.DropNoFlow] = 0, 0 // Refuse counts those that are dropped
	h.publish()
}

// Refuse implements stack.Refuser.
func (h *Handler) Refuse(now clock.Time, b *packet.Batch) {
	h.offered = toLast
	h.handle(now, b)
	h.offered = toThis
	h.publish()
}

// handle decides the packets of a batch.
func (h *Handler) handle(now clock.Time, b *packet.Batch) {
	h.refresh()
	h.clock, h.now, h.arena = now, ticksAt(now), b.Arena
	h.matches, h.searched = b.Matches, b.Searched
	rest, cut := false, false // of a packet whose first descriptor has been decided, and is all that is left of it
	for i := range b.D {
		d := &b.D[i]
		more := d.Flags.Has(packet.FlagMore)
		h.looked = h.lookups().lookedUp(b.D, i)
		switch {
		case cut && rest:
			d.Verdict = packet.Release
			d.Flags &^= packet.FlagMore
		case rest:
			d.Verdict, d.Port = b.D[i-1].Verdict, b.D[i-1].Port
		default:
			h.chain, h.index = b.D[i:], i
			for len(h.matches) > 0 && int(h.matches[0].D) < i {
				h.matches = h.matches[1:]
			}
			d.Verdict = h.decide(d, b.Arena.Bytes(d))
			h.batch[d.Verdict]++
			cut = more && !d.Flags.Has(packet.FlagMore)
		}
		rest = more
	}
}

// A tick looks at sweepStep connections, so that it never delays packets for long. Ticks come at the latest
// every sweepIdle, and so often that all connections are looked at within sweepRound: that late the room and
// the source port of an expired connection are free again. Lookups treat it as absent at once.
const (
	sweepRound = 4 * time.Second
	sweepStep  = 1024
	sweepIdle  = 500 * time.Millisecond
)

// Tick removes connections that expired or whose backend became inactive; see stack.Handler.
func (h *Handler) Tick(now clock.Time) clock.Time {
	h.refresh()
	h.clock, h.now = now, ticksAt(now)
	h.defragmenter().sweepHeld()
	if h.table.sweep(sweepStep, h.ended, h.aborter().endSwept) {
		h.retirer().endPass()
		h.kernel.short = false
	}
	h.translator().surveyPorts()
	if h.sync.changes != nil {
		h.syncSide().refreshPeer()
		h.syncSide().readForPeer()
	}
	h.publish()
	if h.table.trim(h.now) {
		return now.Add(trimEvery)
	}
	steps := time.Duration(h.table.high/sweepStep + 1)
	next := now.Add(min(sweepIdle, sweepRound/steps))
	if h.kernel.noted > 0 {
		next = min(next, h.kernel.since.Add(flushEvery))
	}
	if h.sync.changes != nil && len(h.kernel.entries) > 0 {
		next = min(next, now.Add(kernelReadEvery))
	}
	return next
}

// ended reports whether a connection is over: it expired, or its backend became inactive. It is asked of each connection
// once in a pass of the sweep.
func (h *Handler) ended(c *Conn) bool {
	if r := &h.retirement; r.asked != nil {
		r.held.intersect(r.asked, c)
	}
	h.kernelSide().sweepKernel(c)
	return c.expired(h.now) || h.snap.Backends[c.backend].Inactive
}

// refresh takes the newest snapshot. Within a batch the snapshot stays the same, so numbers that a packet
// looked up remain valid until its verdict. What follows from a new one is done here, once:
//
//   - the marks of source lists wrapped: all connections are looked up in the lists again
//   - a reload: port maps of endpoints that are gone are given back, and paths of tunnels to them
//   - more backends: their counters get a place
//   - connections in the kernel that the snapshot concerns come back (reconcileKernel)
//   - numbers that are used again: so do the counters of what has them now
func (h *Handler) refresh() {
	snap := h.snapshots.Load()
	if snap == h.snap {
		return
	}
	if h.snap != nil && h.snap.Sources.round != snap.Sources.round {
		h.table.unmark()
	}
	if h.snap == nil || h.snap.Round != snap.Round {
		h.ports.trim(func(p portPair) bool {
			e, _ := snap.endpoint(p.endpoint)
			return e.InUse
		})
		h.tunneler().forgetPaths(snap)
	}
	if h.snap != nil && h.snap.Era != snap.Era {
		h.stats, h.tallies = h.stats[:0], h.tallies[:0] // published, so zero
	}
	old := h.snap
	h.snap = snap
	if h.meters == nil && snap.Limits.on {
		h.meters = newMeters(perLoop(snap.Limits.clients, h.loops), h.table.key)
	}
	for len(h.tallies) < len(snap.Backends) {
		h.stats = append(h.stats, snap.Backends[len(h.tallies)].stats[h.loop])
		h.tallies = append(h.tallies, tally{})
	}
	if len(h.kernel.entries) > 0 {
		h.kernelSide().reconcileKernel(old)
	}
}

// publish adds what was counted since the last time to the counters that others read. Only backends that
// had a packet are touched: there may be thousands.
func (h *Handler) publish() {
	for v, n := range h.batch {
		if n != 0 {
			h.counts.Add(v, uint64(n))
			h.batch[v] = 0
		}
	}
	if h.kernel.on() {
		h.kernelSide().publishKernel()
	}
	h.lookups().prefetchCounters()
	for _, id := range h.touched {
		t, stats := &h.tallies[id], h.stats[id]
		for i, n := range t {
			if n != 0 {
				stats.Add(i, uint64(n))
			}
		}
		*t = tally{}
	}
	h.touched = h.touched[:0]
	gauge(&h.live, h.table.live)
	gauge(&h.half, h.table.halfOpen.n)
	gauge(&h.ending, h.closing)
}

// gauge sets a counter that has one writer.
func gauge(c *metrics.Counter, to int) {
	if old := c.Load(); old != uint64(to) {
		c.Add(uint64(to) - old)
	}
}

// Connections returns the number of connections. Any goroutine may call it, as the other counts.
func (h *Handler) Connections() uint64 { return h.live.Load() }

// HalfOpen returns the number of connections of which only one side has been seen.
func (h *Handler) HalfOpen() uint64 { return h.half.Load() }

// Closing returns the number of connections that a FIN or RST has begun to close.
func (h *Handler) Closing() uint64 { return h.ending.Load() }

// Count returns the number of packets with a verdict.
func (h *Handler) Count(v packet.Verdict) uint64 { return h.counts.Load(int(v)) }

// Answers returns the number of answers of a kind, an index of AnswerKinds.
func (h *Handler) Answers(kind int) uint64 { return h.answerCounts.Load(kind) }

// tally returns the tally of a backend.
func (h *Handler) tally(id uint32) *tally {
	t := &h.tallies[id]
	if *t == (tally{}) {
		h.touched = append(h.touched, id)
	}
	return t
}

// slowPath are the flags of packets that checkHeaders judges before they are treated as any other.
const slowPath = packet.FlagMalformed | packet.FlagTruncated | packet.FlagVLAN | packet.FlagTunnel | packet.FlagOptions

// decide returns the verdict on a packet, and rewrites it if that is Forward. The order of the tests is part
// of the behaviour: what the engine found wrong is dropped before anything in the packet is believed, and
// the addresses of a packet count only after its IP checksum.
func (h *Handler) decide(d *packet.Desc, p []byte) packet.Verdict {
	if int(d.Port) >= len(h.snap.Devices) {
		return packet.DropUnsupported
	}
	if d.Flags&slowPath != 0 {
		if verdict := h.checkHeaders(d, p); verdict != packet.Forward {
			return verdict
		}
	}
	switch {
	case wire.Ethernet(p).Src().Multicast(): // no station has a group address (IEEE 802.3 3.2.3); an answer would go to all of the group
		return packet.DropMalformed
	case d.Flags&(packet.FlagIPv4|packet.FlagIPv6) == 0:
		return h.responder().arp(d, p)
	case d.Flags&(packet.FlagIPv4|packet.FlagIPChecksumOK) == packet.FlagIPv4:
		return packet.DropIPChecksum
	case d.Flags.Has(packet.FlagFragment):
		return h.defragmenter().fragment(d, p)
	case d.L4 == 0:
		return packet.DropUnsupported
	case d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP:
		return h.transport(d, p)
	case d.Proto == wire.ProtoICMP && d.Flags.Has(packet.FlagIPv4), d.Proto == wire.ProtoICMPv6 && d.Flags.Has(packet.FlagIPv6):
		return h.responder().icmp(d, p)
	}
	return packet.DropUnsupported // tunnels too: they would pass the source lists and limits
}

// transport decides a TCP segment or UDP datagram. A wrong transport checksum is forwarded unless
// `checksum: drop` is set: incremental updates keep it wrong, so the receiver drops it (RFC 1624).
func (h *Handler) transport(d *packet.Desc, p []byte) packet.Verdict {
	switch {
	case wire.Ethernet(p).Dst() != h.snap.Devices[d.Port].MAC: // for another host of the link
		return packet.DropUnsupported
	case h.snap.DropL4 && d.Flags&(packet.FlagL4ChecksumOK|packet.FlagL4NoChecksum) == 0:
		var v view
		v.read(d, p)
		return h.tracker().dropTo(&v, packet.DropL4Checksum)
	}
	if h.looked.known { // its view has been read
		return h.route(&h.looked.view)
	}
	var v view
	v.read(d, p)
	return h.route(&v)
}

// route decides a packet whose addresses and ports are known: to a service address, or anything else.
func (h *Handler) route(v *view) packet.Verdict {
	if v.hopsLeft() <= 1 { // RFC 1812 5.3.1, RFC 8200 3
		return h.responder().ttlExpired(v)
	}
	if front, ok := h.lookups().serviceAddress(v); ok {
		if to := h.inboundLoop(v); to != h.loop {
			return h.handOver(v.d, to)
		}
		return h.tracker().inbound(v, front)
	}
	return h.tracker().outbound(v)
}

// Local reports whether the gateway answers ARP and neighbour solicitations for a.
func (s *Snapshot) Local(a netip.Addr) bool { return s.local(addrOf(a)) }

// local reports whether the gateway answers ARP and neighbour solicitations for a.
func (s *Snapshot) local(a addr) bool {
	_, ok := s.keys.find(a, tagOf(kindLocal, 0, 0))
	return ok
}

// DropReasons are the reasons for which a Handler drops packets.
var DropReasons = []packet.Verdict{
	packet.DropMalformed, packet.DropTruncated, packet.DropIPChecksum, packet.DropL4Checksum,
	packet.DropUnsupported, packet.DropFragment, packet.DropNoService, packet.DropNoFlow,
	packet.DropNoBackend, packet.DropNoRoute, packet.DropNoNeighbor, packet.DropTTL,
	packet.DropPortsFull, packet.DropTooBig, packet.DropNoFrame, packet.DropDenied, packet.DropRateLimit,
	packet.DropBackendFull, packet.DropRule, packet.DropInspection, packet.DropInspectionFull, packet.DropSequence,
	packet.DropMartian,
}
