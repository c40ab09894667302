package ip

import (
	"bytes"
	"slices"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Reassembly holds copies of fragments, never frames: a frame that waits 60 s for a lost fragment is missing from the pool
// of the driver. Memory is bounded in bytes, in datagrams, in datagrams of one source and in pieces of one datagram, each
// against a way to exhaust it with forged fragments. The oldest goes first, since its missing fragment is the least
// likely to come.

// Limits of reassembly beside those of Config.
const (
	reassembly4  = 30 * time.Second // RFC 791 3.2 has 15 s, RFC 1122 3.3.2 60 to 120 s; Linux has 30 s (ipfrag_time)
	reassembly6  = 60 * time.Second // RFC 8200 4.5
	maxPieces    = 128              // of one datagram: 65,535 bytes in fragments of 576
	pieceCost    = 64               // bytes that a piece costs beside its own
	assemblyCost = 256              // bytes that a datagram costs beside its pieces
	sourceShare  = 4                // a source may hold 1/sourceShare of all datagrams in reassembly
	maxDatagram  = 65535
)

// assemblyKey identifies the datagram of a fragment (RFC 791 3.2, RFC 8200 4.5). IPv6 has 32 bits of identification and
// no protocol. The device is part of the key, so that a host on one link cannot complete the datagrams of another.
type assemblyKey struct {
	src, dst wire.Addr
	id       uint32
	proto    uint8
	dev      uint8
}

// piece is a fragment's payload: bytes off to off+len(b) of the datagram's.
type piece struct {
	off int
	b   []byte
}

func (p *piece) end() int { return p.off + len(p.b) }

// assembly is a datagram of which fragments have come. Once broken it has none, and its entry stays until its time is over
// to drop the fragments that still come (RFC 5722 3). Without the entry they would begin a new datagram.
type assembly struct {
	key    assemblyKey
	used   bool
	broken bool
	pieces []piece // sorted, disjoint
	head   []byte  // all before the payload of the fragment with offset 0
	from   int     // IPv6: offset of the octet that names the fragment header
	total  int     // bytes of the whole payload; -1 unknown
	have   int     // bytes of payload
	held   int     // bytes that count against Config.MaxFragments
	ecn    uint8   // bit e: a fragment had ECN code point e

	older, newer uint16 // list by age, slot+1; 0 is none
}

// reassembly holds the fragments of all devices: a fixed slab, and a list by age. Slot i has timer i of the fragments.
type reassembly struct {
	slot           []assembly
	index          map[assemblyKey]uint16
	bySource       map[wire.Addr]uint16
	oldest, newest uint16 // slot+1; 0 is none
	held           int
	whole          []byte // the datagram that was completed last; reused, so a Datagram borrows it until the next Input
}

func newReassembly(slots int) reassembly {
	return reassembly{slot: make([]assembly, slots), index: map[assemblyKey]uint16{}, bySource: map[wire.Addr]uint16{}}
}

// fragment is one fragment, read from the headers of either version. It borrows the frame.
type fragment struct {
	key  assemblyKey
	head []byte // of its packet: all before b
	from int    // IPv6
	off  int
	more bool
	b    []byte
	ecn  uint8
}

// fragment4 takes an IPv4 fragment (RFC 791 3.2). An empty one, one of a length that no next one can follow, and one that
// would end beyond 65,535 bytes (the ping of death) are dropped before they create state. The header of the whole is that
// of the first fragment with length, flags, ECN and checksum set anew.
func (n *Node) fragment4(ip wire.IPv4, g *Datagram) packet.Verdict {
	f := fragment{
		key:  assemblyKey{g.Src, g.Dst, uint32(ip.ID()), ip.Proto(), g.Dev},
		head: ip[:ip.HeaderLen()], off: ip.FragmentOffset(), more: ip.MoreFragments(), b: ip.Payload(), ecn: g.TOS & 3,
	}
	if len(f.b) == 0 || f.more && len(f.b)%8 != 0 || f.off+len(f.b)+len(f.head) > maxDatagram {
		return packet.DropReassembly
	}
	a, v := n.addFragment(&f)
	if a == nil {
		return v
	}
	ecn, ok := a.reassembledECN()
	if !ok {
		n.release(a, len(a.pieces)-1)
		return packet.DropReassembly
	}
	g.Packets = uint16(len(a.pieces))
	n.stats.Reassembled++
	whole := wire.IPv4(n.join(a, len(a.head)))
	n.release(a, 0)
	whole.SetTotalLen(uint16(len(whole)))
	whole.SetMoreFragments(false)
	whole.SetECN(ecn)
	whole.FillChecksum()
	g.Packet, g.Payload, g.TOS, g.TTL = whole, whole.Payload(), whole.TOS(), whole.TTL()
	return n.deliver(nil, g, checksum4(g))
}

// checksum4 verifies the transport checksum of a reassembled datagram, which the header pass has not seen. Protocols other
// than TCP, UDP and ICMP have none that is verified here.
func checksum4(g *Datagram) bool {
	switch g.Proto {
	case wire.ProtoTCP:
		return wire.Fold(wire.Sum(g.Payload, wire.IPv4(g.Packet).Pseudo())) == 0
	case wire.ProtoUDP:
		u := wire.UDP(g.Payload)
		return u.Valid() && (u.Checksum() == 0 || u.ChecksumOK(wire.IPv4(g.Packet).Pseudo()))
	case wire.ProtoICMP:
		return wire.Fold(wire.Sum(g.Payload, 0)) == 0
	}
	return true
}

// fragment6 takes an IPv6 fragment, whose fragment header h is the current one of w (RFC 8200 4.5):
//
//	+---------------+---------------+-------------------------+---+-+
//	|  Next Header  |   Reserved    |  Offset, 8-byte units   |Res|M|
//	+---------------+---------------+-------------------------+---+-+
//	|                        Identification                         |
//	+---------------------------------------------------------------+
//
// Read as 16 bits without the low three, the offset is in bytes. A completed datagram goes on with the headers that follow.
func (n *Node) fragment6(w *walk6, g *Datagram, h []byte) packet.Verdict {
	off, more := int(h[2])<<8|int(h[3]&^7), h[3]&1 != 0
	f := fragment{
		key:  assemblyKey{g.Src, g.Dst, uint32(h[4])<<24 | uint32(h[5])<<16 | uint32(h[6])<<8 | uint32(h[7]), 0, g.Dev},
		head: w.pkt[:w.at+len(h)], from: w.from, off: off, more: more, b: w.pkt[w.at+len(h):], ecn: g.TOS & 3,
	}
	switch {
	case more && len(f.b)%8 != 0:
		n.parameterProblem(g, icmp6BadField, 4) // RFC 8200 4.5: points at the payload length
		return packet.DropReassembly
	case f.off+len(f.b)+w.at-wire.IPv6Len > maxDatagram:
		n.parameterProblem(g, icmp6BadField, w.at+2) // RFC 8200 4.5: points at the fragment offset
		return packet.DropReassembly
	case len(f.b) == 0:
		return packet.DropReassembly
	case off == 0 && !hasHeaderChain(h[0], f.b):
		n.parameterProblem(g, icmp6ShortFragment, w.from) // RFC 7112 5
		return packet.DropReassembly
	}
	a, v := n.addFragment(&f)
	if a == nil {
		return v
	}
	return n.complete6(a, w, g)
}

// hasHeaderChain reports whether a first fragment, of protocol next, has all headers up to and with the upper layer's (RFC
// 7112 5). Without this rule a sender hides the ports in the second fragment from every filter on the way.
func hasHeaderChain(next uint8, b []byte) bool {
	for extended(next) {
		if len(b) < 8 || len(b) < (int(b[1])+1)*8 {
			return false
		}
		next, b = b[0], b[(int(b[1])+1)*8:]
	}
	need := 1
	switch next {
	case wire.ProtoTCP:
		need = wire.TCPLen
	case wire.ProtoUDP, wire.ProtoICMPv6:
		need = 8
	case wire.ProtoNone:
		need = 0
	}
	return len(b) >= need
}

// complete6 makes the datagram of a the packet of w. The fragment header is left out, and the octet that named it names
// what followed it (RFC 8200 4.5). The headers before it are those of the first fragment.
func (n *Node) complete6(a *assembly, w *walk6, g *Datagram) packet.Verdict {
	ecn, ok := a.reassembledECN()
	if !ok {
		n.release(a, len(a.pieces)-1)
		return packet.DropReassembly
	}
	g.Packets = uint16(len(a.pieces))
	n.stats.Reassembled++
	cut := len(a.head) - wire.FragmentHeaderLen
	next, from := a.head[cut], a.from
	whole := wire.IPv6(n.join(a, cut))
	n.release(a, 0)
	whole[from] = next
	whole.SetPayloadLen(uint16(len(whole) - wire.IPv6Len))
	whole.SetECN(ecn)
	g.Packet, g.TOS, g.TTL = whole, whole.TrafficClass(), whole.HopLimit()
	// count goes on: fragments in fragments do not start the bound on headers again.
	*w = walk6{pkt: whole, at: cut, next: next, from: from, count: w.count}
	return packet.Undecided
}

// reassembledECN returns the ECN field of the datagram (RFC 3168 5.3): CE where a fragment had it, so that a congestion
// signal is not lost. With a fragment that was not ECN-capable beside one with CE the datagram is dropped: a drop is the
// signal that a sender without ECN understands.
func (a *assembly) reassembledECN() (wire.ECN, bool) {
	ce, not := a.ecn>>wire.CE&1 != 0, a.ecn>>wire.NotECT&1 != 0
	switch {
	case ce:
		return wire.CE, !not
	case not:
		return wire.NotECT, true
	case a.ecn>>wire.ECT0&1 != 0:
		return wire.ECT0, true
	}
	return wire.ECT1, true
}

// join returns the first head bytes of a's first packet with all pieces after them, in the buffer of the node.
func (n *Node) join(a *assembly, head int) []byte {
	b := append(n.frags.whole[:0], a.head[:head]...)
	for i := range a.pieces {
		b = append(b, a.pieces[i].b...)
	}
	n.frags.whole = b
	return b
}

// addFragment stores f, and returns the datagram that it completes. Otherwise the verdict is Deliver where f is kept, or a
// reason to drop it. A copy of a fragment that is there is dropped alone, since networks duplicate packets; any other
// overlap ends the datagram.
func (n *Node) addFragment(f *fragment) (*assembly, packet.Verdict) {
	t := &n.frags
	i, ok := t.index[f.key]
	if !ok {
		i = n.newAssembly(f)
	}
	a := &t.slot[i]
	if a.broken {
		return nil, packet.DropReassembly
	}
	at, v := a.place(f)
	if v == packet.Forward {
		return nil, packet.DropReassembly
	}
	if v != packet.Undecided || len(a.pieces) == maxPieces {
		n.markBroken(a)
		return nil, packet.DropReassembly
	}
	n.insertPiece(a, at, f)
	if a.have != a.total {
		return nil, packet.Deliver
	}
	return a, packet.Undecided
}

// place finds where f belongs: Undecided. It is Forward where the same bytes are there already, and DropReassembly where
// f overlaps another fragment or contradicts the end of the datagram. RFC 5722 3 forbids overlaps over IPv6, because hosts
// and filters that resolve them differently see different datagrams; IPv4 is treated alike, since no sender makes them
// (RFC 1858 describes the attack).
func (a *assembly) place(f *fragment) (int, packet.Verdict) {
	end := f.off + len(f.b)
	// The last fragment has come: nothing lies beyond its end, and there is no second end.
	if a.total >= 0 && (end > a.total || !f.more && end != a.total) {
		return 0, packet.DropReassembly
	}
	// This is the last fragment, and one that is there lies beyond it.
	if k := len(a.pieces); k > 0 && !f.more && a.pieces[k-1].end() > end {
		return 0, packet.DropReassembly
	}
	at, _ := slices.BinarySearchFunc(a.pieces, f.off, func(p piece, off int) int { return p.off - off })
	if at < len(a.pieces) && a.pieces[at].off == f.off && f.more == (a.total != end) && bytes.Equal(a.pieces[at].b, f.b) {
		return 0, packet.Forward
	}
	if at < len(a.pieces) && a.pieces[at].off < end || at > 0 && a.pieces[at-1].end() > f.off {
		return 0, packet.DropReassembly
	}
	return at, packet.Undecided
}

// insertPiece stores a copy of f as piece at of a. Other datagrams are released, the oldest first, where the bytes exceed
// the budget.
func (n *Node) insertPiece(a *assembly, at int, f *fragment) {
	cost := len(f.b) + pieceCost
	for n.frags.held+cost > n.cfg.MaxFragments && n.frags.oldest != 0 {
		victim := &n.frags.slot[n.frags.oldest-1]
		if victim == a {
			if a.newer == 0 {
				break // alone, and no larger than one datagram can be
			}
			victim = &n.frags.slot[a.newer-1]
		}
		n.release(victim, len(victim.pieces))
	}
	a.pieces = slices.Insert(a.pieces, at, piece{f.off, bytes.Clone(f.b)})
	a.have += len(f.b)
	a.ecn |= 1 << f.ecn
	if !f.more {
		a.total = f.off + len(f.b)
	}
	if f.off == 0 {
		a.head, a.from = bytes.Clone(f.head), f.from
	}
	a.held += cost
	n.frags.held += cost
}

// newAssembly returns a slot for the datagram of f, for which the oldest may be released: that of the same source, where
// it holds its share. So one source does not evict the datagrams of all others.
func (n *Node) newAssembly(f *fragment) uint16 {
	t := &n.frags
	if int(t.bySource[f.key.src]) >= max(len(t.slot)/sourceShare, 1) {
		n.releaseOldest(func(a *assembly) bool { return a.key.src == f.key.src })
	} else if len(t.index) == len(t.slot) {
		n.releaseOldest(func(*assembly) bool { return true })
	}
	i := uint16(slices.IndexFunc(t.slot, func(a assembly) bool { return !a.used }))
	age := reassembly4
	if !f.key.src.Is4() {
		age = reassembly6
	}
	t.slot[i] = assembly{key: f.key, used: true, total: -1, held: assemblyCost, older: t.newest}
	t.held += assemblyCost
	if t.newest != 0 {
		t.slot[t.newest-1].newer = i + 1
	} else {
		t.oldest = i + 1
	}
	t.newest = i + 1
	t.index[f.key] = i
	t.bySource[f.key.src]++
	n.wheel.Arm(n.base.frags+uint32(i), n.now.Add(age))
	return i
}

// releaseOldest releases the oldest datagram that matches.
func (n *Node) releaseOldest(matches func(*assembly) bool) {
	for at := n.frags.oldest; at != 0; {
		a := &n.frags.slot[at-1]
		if matches(a) {
			n.release(a, len(a.pieces))
			return
		}
		at = a.newer
	}
}

// release frees a. lost is the number of its fragments that were accepted (Deliver) and are dropped now; each packet is
// counted once.
func (n *Node) release(a *assembly, lost int) {
	t := &n.frags
	i := t.index[a.key]
	n.stats.Drops[packet.DropReassembly] += uint64(lost)
	n.wheel.Stop(n.base.frags + uint32(i))
	t.held -= a.held
	if a.older != 0 {
		t.slot[a.older-1].newer = a.newer
	} else {
		t.oldest = a.newer
	}
	if a.newer != 0 {
		t.slot[a.newer-1].older = a.older
	} else {
		t.newest = a.older
	}
	delete(t.index, a.key)
	if t.bySource[a.key.src]--; t.bySource[a.key.src] == 0 {
		delete(t.bySource, a.key.src)
	}
	*a = assembly{}
}

// markBroken drops the fragments of a, and those that will come, without an ICMP error (RFC 5722 3: silently).
func (n *Node) markBroken(a *assembly) {
	n.stats.Drops[packet.DropReassembly] += uint64(len(a.pieces))
	n.frags.held -= a.held - assemblyCost
	a.held, a.pieces, a.head, a.broken = assemblyCost, nil, nil, true
}

// assemblyExpired drops a datagram whose time is over. Where its first fragment had come, it sends Time Exceeded, code 1,
// which quotes that (RFC 792, RFC 8200 4.5). Without the first fragment no error may be sent (RFC 1122 3.3.2): the quote
// would have no ports.
func (n *Node) assemblyExpired(i int) {
	a := &n.frags.slot[i]
	key, m := a.key, TimeExceeded.Message(a.key.src.Is4())
	m.Code = 1 // fragment reassembly time exceeded, in both versions (RFC 792, RFC 4443 3.3)
	var first []byte
	if len(a.pieces) > 0 && a.pieces[0].off == 0 {
		first = append(append(n.frags.whole[:0], a.head...), a.pieces[0].b...)
		n.frags.whole = first
	}
	n.release(a, len(a.pieces))
	if first != nil {
		g := Datagram{Src: key.src, Dst: key.dst, Dev: key.dev, Kind: n.Local(key.dev, key.dst), Packet: first}
		n.sendICMPError(&g, m)
	}
}
