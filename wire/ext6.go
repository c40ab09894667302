package wire

// MaxExtHeaders is the number of IPv6 extension headers that a packet may have to be walked. RFC 8200
// 4.1 names six kinds in its recommended order, one of them twice; whoever has a limit may refuse longer
// chains (RFC 8883).
const MaxExtHeaders = 8

// FragmentHeaderLen is the length of the IPv6 fragment header.
const FragmentHeaderLen = 8

// Fragment6 holds the fields of the IPv6 fragment header; zero where the packet has none.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Next Header  |   Reserved    |      Fragment Offset    |Res|M|
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                         Identification                        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 8200 4.5.
type Fragment6 struct {
	ID     uint32 // identification shared by the fragments of a packet
	Offset uint16 // of the fragment in the fragmentable part, in bytes
	More   bool   // fragments follow
	At     uint16 // offset of the fragment header from the start of the packet; 0 where there is none
}

// Present reports whether the packet has a fragment header. RFC 6946 calls one with offset 0 and no
// more to come atomic: it is a whole packet.
func (f Fragment6) Present() bool { return f.At != 0 }

// First reports whether the packet begins with the first byte of the fragmentable part: it is whole,
// or the fragment that has the transport header.
func (f Fragment6) First() bool { return f.Offset == 0 }

// Unfragmented reports whether the packet is no fragment, or an atomic one.
func (f Fragment6) Unfragmented() bool { return f.Offset == 0 && !f.More }

// ExtIter walks the extension headers of an IPv6 packet.
//
//	for it := wire.ExtHeaders(b); it.Next(); {
//		switch it.Proto() { ... it.Header() ... }
//	}
//
// The walk ends at what is no extension header; Upper and Offset are its protocol and place. It ends
// early, with Malformed set, where the packet ends inside of a header, where the chain is longer than
// MaxExtHeaders, and where hop-by-hop options come anywhere but first (RFC 8200 4.1).
type ExtIter struct {
	b    []byte // the packet up to its payload length
	next uint8  // protocol of what lies at off
	kind uint8  // of the current header
	n    uint8  // headers passed
	bad  bool
	at   int // offset of the current header
	off  int // offset of what comes next
	frag Fragment6
}

// ExtHeaders returns a walk over the extension headers of the IPv6 packet b, which it borrows. The walk of
// a view that has no valid header is malformed. Bytes after the payload length do not count; bytes that a
// capture has cut off are missing as any others.
func ExtHeaders(b []byte) ExtIter {
	ip := IPv6(b)
	if !ip.ValidHeader() {
		return ExtIter{bad: true, next: ProtoNone}
	}
	return ExtIter{b: b[:min(len(b), IPv6Len+int(ip.PayloadLen()))], next: ip.NextHeader(), off: IPv6Len}
}

// Next goes to the next extension header and reports whether there is one.
func (it *ExtIter) Next() bool {
	if it.bad || it.frag.Offset != 0 || !extension(it.next) {
		return false
	}
	size := extLen(it.next, it.b[it.off:])
	if size == 0 || it.n == MaxExtHeaders || it.next == ProtoHopByHop && it.n > 0 {
		it.bad = true
		return false
	}
	if it.next == ProtoFragment {
		it.frag = fragment6(it.b[it.off:], it.off)
	}
	it.kind, it.next = it.next, it.b[it.off]
	it.at, it.off = it.off, it.off+size
	it.n++
	return true
}

// Proto returns the protocol number of the current header.
func (it *ExtIter) Proto() uint8 { return it.kind }

// Header borrows the current header.
func (it *ExtIter) Header() []byte { return it.b[it.at:it.off] }

// OptionIter returns a walk over the options in the current header, which is ProtoHopByHop or
// ProtoDestOpts.
func (it *ExtIter) OptionIter() Option6Iter { return Option6Iter{rest: it.Header()[2:]} }

// Upper returns the protocol of what follows the headers that were walked.
func (it *ExtIter) Upper() uint8 { return it.next }

// Offset returns the offset of what follows the headers that were walked, from the start of the packet.
func (it *ExtIter) Offset() int { return it.off }

// Fragment returns the fields of the fragment header, if one was walked.
func (it *ExtIter) Fragment() Fragment6 { return it.frag }

// Malformed reports whether the walk ended early.
func (it *ExtIter) Malformed() bool { return it.bad }

// Upper6 walks the extension headers of the IPv6 packet b and returns the protocol and the offset of
// what lies behind them. It stops at a fragment other than the first, whose bytes at off are the middle
// of something of protocol proto, at ESP, which is encrypted, and at "no next header". It reports
// false where the walk of ExtIter is malformed.
func Upper6(b []byte) (proto uint8, off int, frag Fragment6, ok bool) {
	if ip := IPv6(b); ip.ValidHeader() && !extension(ip.NextHeader()) {
		return ip.NextHeader(), IPv6Len, frag, true
	}
	it := ExtHeaders(b)
	for it.Next() {
	}
	if it.bad {
		return 0, 0, frag, false
	}
	return it.next, it.off, it.frag, true
}

// extension reports whether proto is an extension header that Upper6 walks over (RFC 8200 4).
func extension(proto uint8) bool {
	switch proto {
	case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoDestOpts, ProtoAH, ProtoMobility:
		return true
	}
	return false
}

// extLen returns the length of the extension header at the start of b, 0 where b is too short for it.
// All but two kinds count units of 8 bytes after the first (RFC 8200 4.3); AH counts units of 4 after
// the first two (RFC 4302 2.2); the fragment header has one length.
func extLen(proto uint8, b []byte) int {
	if len(b) < 8 {
		return 0
	}
	n := (int(b[1]) + 1) * 8
	switch proto {
	case ProtoFragment:
		n = FragmentHeaderLen
	case ProtoAH:
		n = (int(b[1]) + 2) * 4
	}
	if n > len(b) {
		return 0
	}
	return n
}

func fragment6(b []byte, at int) Fragment6 {
	return Fragment6{ID: u32(b, 4), Offset: u16(b, 2) &^ 7, More: b[3]&1 != 0, At: uint16(at)}
}
