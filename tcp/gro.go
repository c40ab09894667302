package tcp

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// MaxCoalesced is the most segments that are merged into one.
const MaxCoalesced = 64

// maxCoalescedLen is the most payload of merged segments, bytes: what the largest
// super-segment has.
const maxCoalescedLen = 1<<16 - 1

// Coalescer merges neighbouring segments of one flow, as they arrive, into one Segment
// (generic receive offload). A burst then costs its connection about as much as one
// segment. The zero value is ready for Begin.
//
// The Segment is valid until the next Begin, and as long as the bytes of what was merged.
type Coalescer struct {
	Segment
	next   uint32 // sequence number that must follow
	layout layout
	option []byte // of accurate ECN, borrowed
	open   bool   // more may join
	pieces [MaxCoalesced][]byte
}

// maxCoalescedCE is the number of segments that are merged that all arrived marked: more could not be
// distinguished in the three bits of accurate ECN (RFC 9768 3.2.2.5.1).
const maxCoalescedCE = 6

// layout classifies the options of a segment, as far as merging needs it.
type layout uint8

const (
	layoutNone          layout = iota // no options
	layoutTimestamps                  // timestamps alone, as RFC 7323 Appendix A aligns them
	layoutECN                         // accurate ECN alone, which segments of one burst have the same
	layoutTimestampsECN               // both, in this order
	layoutOther                       // nothing may join: SACK blocks, signatures and the like belong to one segment
)

// neverCoalesced are the flags of segments that stay alone. The last of merged ones may
// have FIN.
const neverCoalesced = wire.FlagSYN | wire.FlagRST | wire.FlagURG

// Begin starts anew with one segment, which is Valid: its header and behind it its payload
// as far as that is contiguous. Extend takes the rest.
func (g *Coalescer) Begin(b wire.TCP, ecn wire.ECN) {
	g.Seq, g.Ack, g.Window, g.Urgent = b.Seq(), b.Ack(), b.Window(), b.Urgent()
	g.Flags, g.AE, g.ECN, g.Packets = b.Flags(), b.AE(), ecn, 1
	b.ParseOptions(&g.Options)
	g.Raw, g.Len, g.Placed = b, 0, false
	g.Payload = g.pieces[:0]
	if p := b.Payload(); len(p) > 0 {
		g.Payload, g.Len = append(g.Payload, p), uint32(len(p))
	}
	g.layout = layoutOf(b)
	g.option = ecnOption(b, g.layout)
	g.next = g.Seq + g.Len
	g.open = g.Len > 0 && g.layout != layoutOther && !g.Flags.Any(neverCoalesced|wire.FlagFIN) && g.Flags.Has(wire.FlagACK)
}

// Extend adds a further piece of the payload of the segment that Begin was given. Nothing
// joins it after. The segment has at most MaxCoalesced pieces without a memory allocation.
func (g *Coalescer) Extend(piece []byte) {
	g.Payload = append(g.Payload, piece)
	g.Len += uint32(len(piece))
	g.Raw, g.open = nil, false
}

// ExtendPlaced adds n bytes of payload that are where Mux.Place said. Nothing joins the segment after.
func (g *Coalescer) ExtendPlaced(n int) {
	g.Len += uint32(n)
	g.Raw, g.open, g.Placed = nil, false, true
}

// Join adds a segment of the same flow, which is Valid and contiguous, and reports whether
// it could. It must follow what there is, have the same flags (but PSH, and FIN, which ends
// it), the same ECN bits, and options that differ by nothing but later timestamps. So the
// merged segment has the effect of its parts, received in a row.
func (g *Coalescer) Join(b wire.TCP, ecn wire.ECN) bool {
	p := b.Payload()
	if !g.open || len(p) == 0 || b.Seq() != g.next || ecn != g.ECN || b.AE() != g.AE ||
		len(g.Payload) == len(g.pieces) || ecn == wire.CE && len(g.Payload) == maxCoalescedCE || g.Len+uint32(len(p)) > maxCoalescedLen {
		return false
	}
	// PSH and FIN may differ: both apply to the end of the merged segment.
	const free = wire.FlagPSH | wire.FlagFIN
	flags := b.Flags()
	if (flags^g.Flags)&^free != 0 || int32(b.Ack()-g.Ack) < 0 || layoutOf(b) != g.layout {
		return false
	}
	if g.layout >= layoutECN && string(ecnOption(b, g.layout)) != string(g.option) {
		return false
	}
	if g.layout == layoutTimestamps || g.layout == layoutTimestampsECN {
		val := binary.BigEndian.Uint32(b[24:])
		if int32(val-g.Options.TSVal) < 0 { // PAWS judges each alone (RFC 7323 5.3)
			return false
		}
		g.Options.TSVal, g.Options.TSEcr = val, binary.BigEndian.Uint32(b[28:])
	}
	g.Flags |= flags
	g.Ack, g.Window = b.Ack(), b.Window()
	g.Payload = append(g.Payload, p)
	g.Len += uint32(len(p))
	g.next += uint32(len(p))
	g.Packets++
	g.Raw = nil
	g.open = !flags.Has(wire.FlagFIN)
	return true
}

// layoutOf classifies the options of b. Nearly all segments have none, or timestamps
// aligned by two NOPs.
func layoutOf(b wire.TCP) layout {
	switch b.DataOffset() {
	case wire.TCPLen:
		return layoutNone
	case wire.TCPLen + 12:
		if binary.BigEndian.Uint32(b[wire.TCPLen:]) == 0x0101080a { // NOP, NOP, timestamps, 10 bytes
			return layoutTimestamps
		}
	}
	return layoutWithECN(b)
}

// layoutWithECN classifies options of which the last is that of accurate ECN (RFC 9768
// 3.2.3), with NOPs behind it up to the next word.
func layoutWithECN(b wire.TCP) layout {
	n, at, l := b.DataOffset(), wire.TCPLen, layoutECN
	if n >= wire.TCPLen+timestampsLen && binary.BigEndian.Uint32(b[wire.TCPLen:]) == 0x0101080a {
		at, l = at+timestampsLen, layoutTimestampsECN
	}
	if n < at+4 || b[at+1] < 2 || b[at] != wire.TCPOptAccECN0 && b[at] != wire.TCPOptAccECN1 || at+(int(b[at+1])+3)&^3 != n {
		return layoutOther
	}
	for _, pad := range b[at+int(b[at+1]) : n] {
		if pad != wire.OptionNOP {
			return layoutOther
		}
	}
	return l
}

// ecnOption returns the option of accurate ECN of a segment with the layout, nil where it
// has none.
func ecnOption(b wire.TCP, l layout) []byte {
	switch l {
	case layoutECN:
		return b[wire.TCPLen:b.DataOffset()]
	case layoutTimestampsECN:
		return b[wire.TCPLen+timestampsLen : b.DataOffset()]
	}
	return nil
}
