package stack

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// Dispatcher is the Handler of a loop that serves several: it passes each packet to the
// handler that an AddressTable names. Packets of one flow stay in order; packets for
// different handlers do not.
//
// A batch whose packets are all for one handler is passed on as it is. A mixed one
// costs a copy of 32 bytes a packet there and back, so that each handler sees a whole
// burst, which GRO needs.
//
// What a handler drops as DropNoService or DropNoFlow, untouched, is offered once more:
// to the handler of the next claim. So an address moves from an L4 service to a host
// and back without the loss of a connection: the service keeps its port as long as it
// has connections there, and the host gets the others. What that one drops likewise
// returns to the first handler if it is a Refuser.
type Dispatcher struct {
	table    *AddressTable
	handlers []Handler
	refusers []Refuser // those of handlers that are one, by their places; all nil where there is one handler
	fallback []Target  // by device: of packets that no claim names; 0 is none
	loopback Target    // of packets of the loopback queue; 0: as claimed

	placer     PayloadPlacer // the first handler that places payload; nil is none
	placing    Target        // names it
	forwarding Target        // names the first ExternalForwarder; 0 is none

	targets []Target        // of the batch, by descriptor
	parts   []packet.Batch  // of a mixed batch, by handler
	again   packet.Batch    // of packets that are offered to a second handler
	places  []int           // of again, in the first handler's batch
	recent  recentTarget    // of the packet before
	frags   fragmentTargets // of datagrams whose first fragment has passed

	early bool // the batch has a fragment whose first has not come,
	late  bool // and a first behind it
}

// NewDispatcher returns the handler of one loop over handlers; ToHandler(i) names
// handlers[i]. All dispatchers of a process share the table.
func NewDispatcher(table *AddressTable, handlers ...Handler) (*Dispatcher, error) {
	if table == nil || len(handlers) == 0 {
		return nil, errors.New("dispatcher: a table and a handler are required")
	}
	if len(handlers) > maxHandlers {
		return nil, fmt.Errorf("dispatcher: %d handlers, at most %d", len(handlers), maxHandlers)
	}
	d := &Dispatcher{table: table, handlers: handlers, refusers: make([]Refuser, len(handlers)), parts: make([]packet.Batch, len(handlers))}
	for i, h := range handlers {
		if r, ok := h.(Refuser); ok && len(handlers) > 1 {
			d.refusers[i] = r
		}
		if p, ok := h.(PayloadPlacer); ok && d.placer == nil {
			d.placer, d.placing = p, ToHandler(i)
		}
		if _, ok := h.(ExternalForwarder); ok && d.forwarding == 0 {
			d.forwarding = ToHandler(i)
		}
	}
	return d, nil
}

// PlacePayload implements PayloadPlacer for packets that a claim assigns to a handler that is one, or to an
// ExternalForwarder. From then on such a packet is that handler's, whatever the table has meanwhile, since no other could
// read its payload. So payload stays with the driver only where no second handler claims the packet.
func (d *Dispatcher) PlacePayload(head []byte, size int) (how pmd.Placement, headers int, pieces [][]byte) {
	s, ok := selectorOf(head)
	if !ok || d.placer == nil && d.forwarding == 0 {
		return pmd.PlaceInFrames, 0, nil
	}
	table := d.table.current.Load()
	switch to := table.target(&s, 0); {
	case to == 0:
	case to == d.placing:
		return d.placer.PlacePayload(head, size)
	case to == d.forwarding:
		if _, other := table.target(&s, to).handler(); !other {
			return pmd.PlaceExternal, 0, nil
		}
	}
	return pmd.PlaceInFrames, 0, nil
}

// SetFallback assigns the packets of a device that no claim names to a target: for a device
// whose every packet a handler wants, multicast included. It is called before the loop
// runs.
func (d *Dispatcher) SetFallback(dev uint8, to Target) {
	for len(d.fallback) <= int(dev) {
		d.fallback = append(d.fallback, 0)
	}
	d.fallback[dev] = to
}

// SetLoopback names the handler that sends packets to itself (Output.Loopback): it gets them whatever
// the claims, as they do not come from outside. It is called before the loop runs.
func (d *Dispatcher) SetLoopback(to Target) { d.loopback = to }

// Tick implements Handler.
func (d *Dispatcher) Tick(now clock.Time) clock.Time {
	next := clock.Never
	for _, h := range d.handlers {
		next = min(next, h.Tick(now))
	}
	return next
}

// Handle implements Handler.
func (d *Dispatcher) Handle(now clock.Time, b *packet.Batch) {
	first, mixed := d.classify(now, b)
	if i, ok := first.handler(); ok && !mixed {
		d.offer(now, b, i)
		d.offerNext(now, b, first)
		return
	}
	d.split(b)
	n := d.reject(b)
	for i := range d.parts {
		p := &d.parts[i]
		if len(p.D) == 0 {
			continue
		}
		p.Arena, p.Base, p.Searched = b.Arena, b.Base, b.Searched
		d.offer(now, p, i)
		d.offerNext(now, p, ToHandler(i))
		n += copy(b.D[n:], p.D)
		p.D, p.Matches = p.D[:0], p.Matches[:0]
	}
}

// targetShift is where the upper byte of Desc.Flow begins. In a packet that has been handed over it is the
// target that did so, whose part on the other loop gets the packet without a look-up: the table may have
// changed since, and a second handler may have its flows on other loops than the first.
const targetShift = 24

// offered marks a target that got a packet because another one had declined it.
const offered = 1 << 7

// handedBy returns the upper byte of Flow; 0 is none. Flow means something else in packets that have not
// been handed over.
func handedBy(d *packet.Desc) Target {
	if !d.Flags.Has(packet.FlagHanded) {
		return 0
	}
	return Target(d.Flow >> targetShift)
}

// markHandover writes the target into packets that its handler hands over.
func markHandover(list []packet.Desc, by Target) {
	for i := range list {
		if d := &list[i]; d.Verdict == packet.Handover {
			d.Flow = d.Flow&loopMask | uint32(by)<<targetShift
		}
	}
}

// classify finds the target of each packet. It returns that of the first one, and
// whether another packet has a different target. Where a first fragment comes behind others
// of a batch that belong to it perhaps, all are looked at once more: they follow it.
func (d *Dispatcher) classify(now clock.Time, b *packet.Batch) (first Target, mixed bool) {
	d.early, d.late = false, false
	first, mixed = d.classifyOnce(now, b)
	if d.late {
		first, mixed = d.classifyOnce(now, b)
	}
	return first, mixed
}

// classifyOnce is classify for packets in the order in which they came.
func (d *Dispatcher) classifyOnce(now clock.Time, b *packet.Batch) (first Target, mixed bool) {
	table := d.table.current.Load()
	d.recent = recentTarget{} // of another table, perhaps
	d.targets = d.targets[:0]
	more := false // the packet before goes on in this descriptor
	for i := range b.D {
		desc := &b.D[i]
		to := first
		switch {
		case more:
			to = d.targets[i-1]
		case isPlaced(b, i):
			if to = d.placing; b.Arena.External(desc) != nil {
				to = d.forwarding
			}
		case desc.Port == LoopbackDev || desc.Flags.Has(packet.FlagHanded):
			to = d.innerTarget(table, now, desc, b.Arena.Bytes(desc))
		default:
			to = d.target(table, now, desc, b.Arena.Bytes(desc))
		}
		if i == 0 {
			first = to
		}
		mixed = mixed || to != first
		d.targets = append(d.targets, to)
		more = desc.Flags.Has(packet.FlagMore)
	}
	return first, mixed
}

// isPlaced reports whether the payload of packet i is not in its frame, but where a handler has placed it.
func isPlaced(b *packet.Batch, i int) bool {
	d := &b.D[i]
	return d.Flags.Has(packet.FlagOffload) && b.Arena.Placed(d) > 0
}

// innerTarget is target for packets that do not come from a device: the loopback queue's, and those of
// other loops.
func (d *Dispatcher) innerTarget(t *lookup, now clock.Time, desc *packet.Desc, frame []byte) Target {
	if desc.Port == LoopbackDev && d.loopback != 0 {
		return d.loopback
	}
	by := handedBy(desc) &^ offered
	if i, ok := by.handler(); ok && i < len(d.handlers) {
		return by
	}
	return d.target(t, now, desc, frame)
}

// split copies the packets of each handler into a batch of its own, with their literal
// matches.
func (d *Dispatcher) split(b *packet.Batch) {
	matches := b.Matches
	for at := range b.D {
		i, ok := d.targets[at].handler()
		n := 0
		for n < len(matches) && int(matches[n].D) == at {
			n++
		}
		if ok {
			p := &d.parts[i]
			for _, m := range matches[:n] {
				m.D = uint32(len(p.D))
				p.Matches = append(p.Matches, m)
			}
			p.D = append(p.D, b.D[at])
		}
		matches = matches[n:]
	}
}

// reject moves the packets without a handler to the front of b, with the reason why
// they are dropped, and returns how many descriptors they have. A packet for the kernel
// comes here only while steering changes, or from a device that takes every packet:
// nothing can return it.
func (d *Dispatcher) reject(b *packet.Batch) (n int) {
	for at, to := range d.targets {
		if _, ok := to.handler(); ok {
			continue
		}
		desc := b.D[at]
		desc.Verdict = packet.DropNotOurs
		if to == ToDrop {
			desc.Verdict = packet.DropRule
		}
		b.D[n] = desc // n <= at: split has copied what stood there
		n++
	}
	return n
}

// recentTarget is the result of the last look-up by destination port, for the packets
// of one flow that follow each other in a burst.
type recentTarget struct {
	key portKey
	to  Target
}

// notFast are the findings of the header pass that need the whole selector.
const notFast = packet.FlagFragment | packet.FlagFragmentRest | packet.FlagMalformed | packet.FlagTruncated | packet.FlagTunnel

// target returns the target of one packet; 0 is none.
func (d *Dispatcher) target(t *lookup, now clock.Time, desc *packet.Desc, frame []byte) Target {
	var to Target
	if desc.Flags&notFast == 0 && desc.L4 != 0 && (desc.Proto == wire.ProtoTCP || desc.Proto == wire.ProtoUDP) {
		to = d.fastTarget(t, desc, frame)
	} else if s, ok := selectorOf(frame); ok {
		to = d.slowTarget(t, now, &s)
		if s.fragment && !s.rest {
			d.elsewhere(to, desc, frame)
		}
	}
	if h, ok := to.handler(); ok && h >= len(d.handlers) {
		return 0 // the table names a handler that this loop does not have
	}
	if to == 0 && int(desc.Port) < len(d.fallback) {
		return d.fallback[desc.Port]
	}
	return to
}

// fastTarget is for whole TCP and UDP packets, whose headers the engine has found.
func (d *Dispatcher) fastTarget(t *lookup, desc *packet.Desc, frame []byte) Target {
	l3, l4 := frame[desc.L3:], frame[desc.L4:]
	k := portKey{proto: desc.Proto, port: wire.UDP(l4).DstPort()} // TCP has its ports in the same place
	v4 := desc.Flags.Has(packet.FlagIPv4)
	if v4 {
		k.addr = mapped(wire.IPv4(l3).Dst())
	} else {
		k.addr = wire.IPv6(l3).Dst()
	}
	if d.recent.to != 0 && d.recent.key == k {
		return d.recent.to
	}
	if to := t.find(k.addr, sideTo, k.proto, k.port, true, false, 0); to != 0 {
		d.recent = recentTarget{k, to}
		return to
	}
	if to := t.findPrefix(k.addr, k.proto, 0); to != 0 {
		return to
	}
	src := addrKey{}
	if v4 {
		src = mapped(wire.IPv4(l3).Src())
	} else {
		src = wire.IPv6(l3).Src()
	}
	return t.find(src, sideFrom, k.proto, wire.UDP(l4).SrcPort(), true, false, 0)
}

// slowTarget is for all other packets. Fragments after the first have no ports, so they
// follow the first fragment of their datagram where that has passed this loop.
func (d *Dispatcher) slowTarget(t *lookup, now clock.Time, s *selector) Target {
	if s.fragment && s.rest {
		if to := d.frags.find(now, s); to != 0 {
			return to
		}
		d.early = true
	}
	to := t.target(s, 0)
	if s.fragment && !s.rest && to != 0 {
		d.frags.store(now, s, to)
		d.late = d.early
	}
	return to
}

// target applies the order of precedence that AddressTable describes. See find for not.
func (t *lookup) target(s *selector, not Target) Target {
	if s.neighbor {
		if to := t.findNeighbor(s.about); to != not {
			return to
		}
		return 0
	}
	if s.quoted { // an ICMP error belongs to the sender of the packet that it is about
		if to := t.find(s.about, sideTo, s.quotedProto, s.quotedPort, s.quotedHasPort, false, not); to != 0 {
			return to
		}
	}
	if to := t.find(s.dst, sideTo, s.proto, s.dport, s.hasPorts, s.rest, not); to != 0 {
		return to
	}
	if to := t.findPrefix(s.dst, s.proto, not); to != 0 {
		return to
	}
	return t.find(s.src, sideFrom, s.proto, s.sport, s.hasPorts, s.rest, not)
}

// fragmentTargets remembers where first fragments went, for the others of the same
// datagram. Two datagrams may share a place; the later first fragment takes it, and
// what is left of the earlier one is dropped or claimed by its address alone.
type fragmentTargets struct {
	entry [256]struct {
		datagram
		to    Target
		until clock.Time
	}
}

// datagram identifies the fragments of one datagram (RFC 791 3.2, RFC 8200 4.5).
type datagram struct {
	src, dst addrKey
	id       uint32
	proto    uint8
}

// fragmentLife is the time in which fragments may follow the first: as long as ip keeps an
// incomplete datagram.
const fragmentLife = 30e9

// slot returns the place of a datagram. Its addresses are mixed in by their last bytes:
// a burst of fragments comes from few hosts, whose identifications differ.
func (d *datagram) slot() uint8 {
	h := d.id*0x9e3779b1 ^ uint32(d.src[15])<<8 ^ uint32(d.dst[15])<<16 ^ uint32(d.proto)
	return uint8(h>>24 ^ h>>8)
}

func (f *fragmentTargets) store(now clock.Time, s *selector, to Target) {
	e := &f.entry[s.datagram.slot()]
	e.datagram, e.to, e.until = s.datagram, to, now+fragmentLife
}

func (f *fragmentTargets) find(now clock.Time, s *selector) Target {
	e := &f.entry[s.datagram.slot()]
	if e.to == 0 || e.datagram != s.datagram || now > e.until {
		return 0
	}
	return e.to
}
