package datapath

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// part says how much of a datagram a packet is.
type part uint8

const (
	whole part = iota
	first      // the fragment with the transport header
	later      // any other: addresses only
)

// fragmentLife is the time that a datagram's fragments are expected: what the first says is forgotten then
// (RFC 791 3.2: reassembly timers of 15 s and more; RFC 8200 4.5: 60 s; Linux: 30 s).
const fragmentLife = 30 * time.Second

// fragmentKey names a datagram: RFC 791 3.2, RFC 8200 4.5.
type fragmentKey struct {
	src, dst addr
	id       uint32
	proto    uint8 // of IPv4; in IPv6 the identification does without
}

// sender returns the source as bounds count it: an IPv4 address or an IPv6 /64.
func (k *fragmentKey) sender() addr {
	src := k.src
	if !src.is4() {
		src.lo = 0
	}
	return src
}

// datagram records the first fragment of a datagram. Later ones then find their connection as it
// did.
type datagram struct {
	key      fragmentKey
	proto    uint8
	rejected bool   // its fragments contradict each other: none passes any more
	declined bool   // another handler of the loop may have its flow, so all go there
	end      uint16 // of the first fragment's data; 0 where none has come
	came     coverage
	pieces   uint16 // that count as unfinished
	entire   bool   // all of it was held until it had come
	ports    uint32 // source << 16 | destination; of an echo request type, code and checksum
	id       uint32 // the identification that takes the place of the sender's, where addresses change
	until    ticks  // 0 in an entry that is free
}

// fragments remembers datagrams of one loop: sets of fragmentWays entries, selected by a keyed hash, in which
// the oldest is replaced. Memory is fixed: no payload is kept and nothing is reassembled, so a flood of
// fragments costs other datagrams their entry at worst.
type fragments struct {
	list []datagram
	sets uint64
	key  hashKey
	next uint32 // identification

	unfinished unfinished
}

// echo reports whether the datagram is an echo request, the only message of ICMP that is answered in fragments.
func (e *datagram) echo() bool { return e.proto == wire.ProtoICMP || e.proto == wire.ProtoICMPv6 }

// passed notes the data that has come of a datagram, a fragment of which has passed. One that is whole is forgotten: what
// comes with its identification from now on is of another datagram, for the receiver as well.
func (f *fragments) passed(e *datagram, c *coverage, now ticks) {
	e.came = *c
	if !e.came.whole() {
		return
	}
	if !e.echo() {
		f.unfinished.finish(e, now)
	}
	e.until = 0
}

const fragmentWays = 8

// newFragments returns room for about n datagrams, at most n but at least one set.
func newFragments(n int, seed *random.Source) *fragments {
	sets := max(1, n/fragmentWays)
	return &fragments{
		list: make([]datagram, sets*fragmentWays), sets: uint64(sets), next: uint32(seed.Uint64()),
		key: newHashKey(seed), unfinished: unfinished{shown: new(atomic.Int32)},
	}
}

// nextID returns the identification of a datagram that the gateway sends: loops do not meet. The 16 bits that IPv4 has of it
// are never 0, which captures show as of a packet that no one may cut (RFC 6864 4.1).
func (f *fragments) nextID(loop, loops int) uint32 {
	for {
		f.next++
		if id := f.next*uint32(loops) + uint32(loop); uint16(id) != 0 {
			return id
		}
	}
}

// set returns where a datagram may be.
func (f *fragments) set(k *fragmentKey) []datagram {
	i := f.hash(k) >> 32 * f.sets >> 32 * fragmentWays
	return f.list[i : i+fragmentWays]
}

// hash returns the keyed hash of a datagram.
func (f *fragments) hash(k *fragmentKey) uint64 {
	return f.key.sum(k.src, uint64(k.id)<<8|uint64(k.proto)) ^ f.key.sum(k.dst, 0)
}

// find returns the datagram, nil when its first fragment is not known.
func (f *fragments) find(k *fragmentKey, now ticks) *datagram {
	set := f.set(k)
	for i := range set {
		if e := &set[i]; e.until != 0 && e.key == *k && !e.until.expired(now) {
			return e
		}
	}
	return nil
}

// add remembers a datagram in the place of the one whose time is, or will be, over first.
func (f *fragments) add(e datagram, now ticks) {
	set := f.set(&e.key)
	oldest := &set[0]
	for i := range set {
		if set[i].until == 0 {
			oldest = &set[i]
			break
		}
		if int32(set[i].until-oldest.until) < 0 {
			oldest = &set[i]
		}
	}
	e.until = max(now+ticksIn(fragmentLife), 1)
	*oldest = e
}

// fragmentHeader holds the fields of a packet about the datagram that it is a part of.
type fragmentHeader struct {
	key   fragmentKey
	at    int // where the data begins in the datagram, bytes
	end   int // and where it ends
	more  bool
	proto uint8
	idAt  uint16 // offset of the identification in the frame
}

// fragmentOf reads the fragment header of a packet of which the engine says that it is a fragment.
func fragmentOf(d *packet.Desc, p []byte) fragmentHeader {
	if d.Flags.Has(packet.FlagIPv4) {
		ip := wire.IPv4(p[d.L3:])
		f := fragmentHeader{
			key:  fragmentKey{addr4(ip[12:16]), addr4(ip[16:20]), uint32(ip.ID()), ip.Proto()},
			at:   ip.FragmentOffset(),
			more: ip.MoreFragments(), proto: ip.Proto(), idAt: uint16(d.L3) + 4,
		}
		f.end = f.at + int(ip.TotalLen()) - ip.HeaderLen()
		return f
	}
	ip := wire.IPv6(p[d.L3:])
	it := wire.ExtHeaders(ip)
	for !it.Fragment().Present() && it.Next() {
	}
	h := it.Fragment()
	f := fragmentHeader{
		key: fragmentKey{wireAddr6(ip[8:24]), wireAddr6(ip[24:40]), h.ID, 0},
		at:  int(h.Offset), more: h.More, proto: d.Proto, idAt: uint16(d.L3) + h.At + 4,
	}
	f.end = f.at + wire.IPv6Len + int(ip.PayloadLen()) - int(h.At) - wire.FragmentHeaderLen
	return f
}

// malformed reports whether a fragment cannot be one: only the last may have another length than a
// multiple of 8, and none may reach beyond the longest datagram (RFC 791 3.2, RFC 8200 4.5).
func (f *fragmentHeader) malformed() bool {
	return f.end <= f.at || f.more && f.end&7 != 0 || f.end > 65535
}

// atomic reports whether a fragment is all of its datagram, which RFC 6946 4 has receivers process alone. The engine does
// not take it for a fragment, so there is another fragment header behind this one, which no sender makes.
func (f *fragmentHeader) atomic() bool { return f.at == 0 && !f.more }

// fragment decides a fragment. Later ones go where the first went, which said the ports; those
// whose first is not known wait for it (hold). All of a datagram whose fragments overlap or
// contradict each other are dropped (RFC 1858, RFC 3128, RFC 5722); a copy passes, and counts once. All of a datagram whose first goes to another handler of the
// loop follow it there.
func (h defragmenter) fragment(d *packet.Desc, p []byte) packet.Verdict {
	if wire.Ethernet(p).Dst() != h.snap.Devices[d.Port].MAC {
		return packet.DropUnsupported
	}
	f := fragmentOf(d, p)
	if h.snap.martian(f.key.src) { // it would be held, and take the place of another
		return packet.DropMartian
	}
	if to := h.fragmentLoop(d, &f.key); to != h.loop {
		if f.at > 0 {
			h.early.add(h.fragments.hash(&f.key))
		}
		return h.handOver(d, to)
	}
	e := h.fragments.find(&f.key, h.now)
	switch {
	case f.malformed():
		return h.rejectDatagram(d, p)
	case e != nil && e.rejected:
		return packet.DropFragment
	case f.at == 0 && e == nil && f.more && (h.holdsUnfinished(&f) || h.answersWhole(d, p, &f)):
		return h.holdWhole(&f)
	case f.at == 0:
		verdict := h.firstFragment(d, p, &f, e)
		h.firstCame(&f.key, h.declines(verdict))
		return verdict
	case e != nil && e.declined:
		if h.offered == toFirst {
			return packet.DropNoFlow
		}
		return packet.DropFragment // no other handler has taken it
	case e == nil:
		return h.holdWhole(&f)
	}
	return h.laterFragment(d, p, &f, e)
}

// laterFragment decides a fragment of a datagram whose first has passed.
func (h defragmenter) laterFragment(d *packet.Desc, p []byte, f *fragmentHeader, e *datagram) packet.Verdict {
	came := e.came
	switch came.add(f) {
	case overlaps: // also TCP at offset 8: a first fragment has the whole header
		e.rejected = true
		return packet.DropFragment
	case scattered:
		return packet.DropFragment
	}
	if !e.entire && !e.echo() && h.pieces(&f.key) >= mostPieces {
		e.rejected = true
		return packet.DropFragment
	}
	d.Proto = e.proto
	var v view
	v.read(d, p)
	v.sport, v.dport = uint16(e.ports>>16), uint16(e.ports)
	v.part, v.id, v.idAt = later, e.id, f.idAt
	verdict := h.routeFragment(&v)
	if !verdict.Dropped() {
		if !e.echo() && came != e.came && h.meetingLoop(&f.key) == h.loop {
			h.fragments.unfinished.addPiece(e, h.now)
		}
		h.fragments.passed(e, &came, h.now)
	}
	return verdict
}

// pieces returns how many fragments of unfinished datagrams have passed, of all loops where those of this one have many: 0 at a
// loop that is handed them by the one where they meet.
func (h defragmenter) pieces(k *fragmentKey) int {
	u := &h.fragments.unfinished
	if u.pieces < manyPieces/h.loops || h.out == nil || h.meetingLoop(k) != h.loop {
		return 0
	}
	u.advance(h.now)
	n := u.pieces
	for i, o := range h.others {
		if i != h.loop {
			n += int(o.fragments.unfinished.shown.Load())
		}
	}
	return n
}

// routeFragment decides a fragment of which the protocol and the ports are known.
func (h defragmenter) routeFragment(v *view) packet.Verdict {
	if v.d.Proto == wire.ProtoICMP || v.d.Proto == wire.ProtoICMPv6 {
		return h.responder().echoFragment(v)
	}
	return h.route(v)
}

// holdsUnfinished reports whether a datagram has to wait until all of it has come. The loop that is handed fragments by the
// one where they meet lets them pass, for that has held them.
func (h defragmenter) holdsUnfinished(f *fragmentHeader) bool {
	u := &h.fragments.unfinished
	switch most := max(mostUnfinished/h.loops, 1); {
	case u.n < most && u.pieces < manyPieces/h.loops, h.held.deciding, h.out == nil, h.meetingLoop(&f.key) != h.loop:
		return false
	default:
		u.advance(h.now)
		return u.n >= most || h.pieces(&f.key) >= manyPieces
	}
}

// answersWhole reports whether a datagram is answered once all of it has come: it is to a closed port of a service address.
// Its host would put it together first, and of a datagram that never becomes whole nothing is said.
func (h defragmenter) answersWhole(d *packet.Desc, p []byte, f *fragmentHeader) bool {
	if h.held.deciding || h.out == nil || h.offered != toThis || h.meetingLoop(&f.key) != h.loop {
		return false
	}
	return h.toClosed(d, p)
}

// toClosed reports whether a first fragment is to a closed port that is answered.
func (h defragmenter) toClosed(d *packet.Desc, p []byte) bool {
	if d.L4 == 0 || d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP {
		return false
	}
	var v view
	v.read(d, p)
	v.part = first
	return h.responder().toClosedPort(&v)
}

// firstFragment decides the first fragment of a datagram, which is e when it has come before, and
// remembers what it says if it passes.
func (h defragmenter) firstFragment(d *packet.Desc, p []byte, f *fragmentHeader, e *datagram) packet.Verdict {
	switch {
	case f.atomic(), d.L4 == 0, !isEcho(d, p, f) && d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP:
		return packet.DropFragment
	case e != nil && e.end == 0: // declined without a first
		e.until, e = 0, nil
	}
	is := datagram{key: f.key, proto: d.Proto, end: uint16(f.end), entire: h.held.deciding, ports: binary.BigEndian.Uint32(p[d.L4:])}
	is.came.add(f)
	switch {
	case e == nil && h.held.overlaps(&f.key, f.end):
		is.rejected = true
		h.fragments.add(is, h.now)
		return packet.DropFragment
	case e == nil && h.held.deciding && h.toClosed(d, p): // all of it has come, and none of it goes on
		return h.routeFirst(d, p, f, &is)
	case e == nil:
		is.id = h.fragments.nextID(h.loop, h.loops)
		return h.newDatagram(d, p, f, &is)
	case is.end != e.end || is.ports != e.ports || is.proto != e.proto:
		e.rejected = true
		return packet.DropFragment
	}
	is.id = e.id
	verdict := h.routeFirst(d, p, f, &is)
	switch declined := h.declines(verdict); {
	case !e.declined: // a copy
		e.declined = declined
	case declined:
	case verdict.Dropped(): // no other handler has taken it
		e.until = 0
	default:
		e.until = 0
		h.fragments.add(is, h.now)
		h.countUnfinished(&is)
	}
	return verdict
}

// newDatagram decides the first fragment of a datagram that is not known, and remembers it if it passes, or may do so to
// another handler.
func (h defragmenter) newDatagram(d *packet.Desc, p []byte, f *fragmentHeader, is *datagram) packet.Verdict {
	verdict := h.routeFirst(d, p, f, is)
	if is.declined = h.declines(verdict); is.declined || !verdict.Dropped() {
		h.fragments.add(*is, h.now)
	}
	if !is.declined && !verdict.Dropped() {
		h.countUnfinished(is)
	}
	return verdict
}

// countUnfinished counts a datagram of which the first fragment passes. Replies to echo requests fill no backend's memory.
func (h defragmenter) countUnfinished(e *datagram) {
	if !e.echo() {
		h.fragments.unfinished.add(h.now)
	}
}

// routeFirst decides a first fragment by what it says.
func (h defragmenter) routeFirst(d *packet.Desc, p []byte, f *fragmentHeader, is *datagram) packet.Verdict {
	var v view
	v.read(d, p)
	v.part, v.id, v.idAt = first, is.id, f.idAt
	return h.routeFragment(&v)
}

// Elsewhere implements stack.Refuser: what is held of a datagram follows the first fragment, which another handler gets. It
// is held by the loop where the datagram's fragments meet, or is on its way there.
func (h *Handler) Elsewhere(d *packet.Desc, frame []byte) {
	if d.Flags&(packet.FlagFragment|packet.FlagMalformed|packet.FlagTruncated) != packet.FlagFragment {
		return
	}
	f := fragmentOf(d, frame)
	if to := h.meetingLoop(&f.key); to != h.loop {
		h.defragmenter().elsewhereOn(to, f.key)
		return
	}
	h.defragmenter().firstCame(&f.key, true)
}

// elsewhereOn is Elsewhere for another loop, where fragments of the datagram may wait: this loop has handed some over, or
// that one holds some. They may not have arrived there yet, so that loop remembers it.
func (h defragmenter) elsewhereOn(loop int, k fragmentKey) {
	if len(h.others) == 0 || h.out == nil || !h.early.remove(h.fragments.hash(&k)) && h.others[loop].held.any.Load() == 0 {
		return
	}
	o := h.others[loop]
	h.out.On(loop, func(now clock.Time) { // if too many functions wait there, it decides after heldLife
		o.now = ticksAt(now)
		o.defragmenter().decline(&k)
		o.defragmenter().firstCame(&k, true)
	})
}

// earlyFragments remembers datagrams of which this loop has handed fragments over that came before the first. It is a hint: what
// it forgets waits for heldLife, what it confuses costs a message.
type earlyFragments [64]uint64 // hashes

func (e *earlyFragments) add(hash uint64) { e[hash%uint64(len(e))] = hash }

func (e *earlyFragments) remove(hash uint64) bool {
	at := &e[hash%uint64(len(e))]
	if *at != hash {
		return false
	}
	*at = 0
	return true
}

// Join makes the handlers of all loops of a mesh, in the order of these, known to each other, before the first packet.
func Join(handlers []*Handler) {
	for _, h := range handlers {
		h.others = handlers
	}
}

// declines reports whether a packet with this verdict is offered to another handler.
func (h defragmenter) declines(verdict packet.Verdict) bool {
	return h.offered == toFirst && (verdict == packet.DropNoService || verdict == packet.DropNoFlow)
}

// rejectDatagram drops a malformed fragment and has all fragments of its datagram dropped, if the first has
// been seen.
func (h defragmenter) rejectDatagram(d *packet.Desc, p []byte) packet.Verdict {
	if d.Flags&(packet.FlagIPv4|packet.FlagIPv6) == 0 {
		return packet.DropMalformed
	}
	f := fragmentOf(d, p)
	if to := h.fragmentLoop(d, &f.key); to != h.loop {
		return h.handOver(d, to)
	}
	if e := h.fragments.find(&f.key, h.now); e != nil {
		e.rejected = true
	}
	return packet.DropMalformed
}
