package tcp

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Segmenter turns an Outgoing into segments, each with its header, payload and checksum
// (generic segmentation offload). It is for Outputs: the connection above decides once for
// many segments.
//
//	for c.Begin(o, pseudo); c.Size() > 0; {
//		n := c.Next(frame[headers:])
//	}
//
// The header is built once. Segments differ in SEQ, length, some flags and the urgent
// pointer, so their checksum starts from the sum of what they have in common.
type Segmenter struct {
	o         *Outgoing
	at        int // payload that has been cut off
	total     int // payload in all
	size      int // payload of the next segment
	headerLen int // bytes, with options
	done      bool
	flags     wire.TCPFlags // of every segment
	pseudo    uint32        // sum of the pseudo header without the length
	sum       uint32        // of pseudo header and header, as far as all segments have them in common
	header    [wire.TCPMaxLen]byte
}

// perSegmentFlags are the flags that not every segment has.
const perSegmentFlags = wire.FlagFIN | wire.FlagPSH | wire.FlagCWR | wire.FlagURG

// Begin stands c before the first segment of o. pseudo is the sum of the pseudo header for
// a segment of no length.
func (c *Segmenter) Begin(o *Outgoing, pseudo uint32) {
	c.o, c.at, c.done = o, 0, false
	c.total = len(o.Payload[0]) + len(o.Payload[1])
	c.flags, c.pseudo = o.Header.Flags&^perSegmentFlags, pseudo
	if o.ACE {
		c.flags |= o.Header.Flags & wire.FlagCWR
	}
	b := wire.TCP(wire.AppendTCP(c.header[:0], &o.Header))
	b.SetAE(o.AE)
	b.SetSeq(0)
	b.SetFlags(c.flags)
	b.SetUrgent(0)
	c.headerLen = len(b)
	c.sum = wire.Sum(b, pseudo)
	c.planNext()
}

// planNext chooses the payload of the next segment.
func (c *Segmenter) planNext() {
	c.size = c.total - c.at
	if c.o.SegmentSize > 0 {
		c.size = min(c.size, c.o.SegmentSize)
	}
}

// Segments returns how many segments an Outgoing is cut into: at least one.
func (o *Outgoing) Segments() int {
	return packet.Segments(len(o.Payload[0])+len(o.Payload[1]), o.SegmentSize)
}

// HeaderLen returns the length of each segment's header, bytes.
func (c *Segmenter) HeaderLen() int { return c.headerLen }

// Size returns the length of the next segment with its header, 0 after the last.
func (c *Segmenter) Size() int {
	if c.done {
		return 0
	}
	return c.headerLen + c.size
}

// LastSize returns the length of the last segment with its header.
func (c *Segmenter) LastSize() int {
	return c.headerLen + c.total - (c.o.Segments()-1)*c.o.SegmentSize
}

// Next writes the next segment to the start of b, which has room for it, and returns its
// length.
func (c *Segmenter) Next(b []byte) int {
	n := c.headerLen + c.size
	seg := wire.TCP(b[:n:n])
	acc := c.writeHeader(seg)
	c.copy(seg[c.headerLen:], c.at)
	// A signature covers the finished segment, and its bytes are part of the checksum: no
	// shortcut then.
	if c.o.Sign != nil {
		c.o.Sign(seg)
		seg.FillChecksum(c.pseudo + uint32(n))
	} else {
		seg.SetChecksum(wire.Fold(wire.Sum(seg[c.headerLen:], acc)))
	}
	c.advance()
	return n
}

// writeHeader writes the header of the next segment, and returns its running sum with
// pseudo header and length.
func (c *Segmenter) writeHeader(seg wire.TCP) uint32 {
	copy(seg, c.header[:c.headerLen])
	seq := c.o.Header.Seq + uint32(c.at)
	seg.SetSeq(seq)
	more := c.extraFlags()
	seg[13] |= byte(more)
	acc := c.sum + seq>>16 + seq&0xffff + uint32(more) + uint32(c.headerLen+c.size)
	if more.Has(wire.FlagURG) {
		urgent := c.o.Header.Urgent - uint16(c.at)
		seg.SetUrgent(urgent)
		acc += uint32(urgent)
	}
	return acc
}

// extraFlags returns the flags of the next segment beside those of all. CWR goes with the
// first (RFC 3168 6.1.2), FIN and PSH with the last, and URG with all before the end of
// urgent data, whose pointer counts from each segment's own first byte (RFC 9293 3.8.5).
func (c *Segmenter) extraFlags() wire.TCPFlags {
	f := c.o.Header.Flags & perSegmentFlags &^ c.flags
	if c.at > 0 {
		f &^= wire.FlagCWR
	}
	if c.at+c.size < c.total {
		f &^= wire.FlagFIN | wire.FlagPSH
	}
	if c.at > 0 && c.at >= int(c.o.Header.Urgent) {
		f &^= wire.FlagURG
	}
	return f
}

// copy copies the payload from offset at on to b.
func (c *Segmenter) copy(b []byte, at int) {
	first := c.o.Payload[0]
	if at >= len(first) {
		copy(b, c.o.Payload[1][at-len(first):])
		return
	}
	n := copy(b, first[at:])
	copy(b[n:], c.o.Payload[1])
}

// advance goes to the next segment.
func (c *Segmenter) advance() {
	c.at += c.size
	c.done = c.at >= c.total
	c.planNext()
}

// WriteTSO writes the header of one segment with all of the payload, which a device cuts
// (TSO), to the start of b and returns its length. The checksum field is what such a device
// wants: the sum of the pseudo header with the whole length, not complemented (virtio 1.2,
// 5.1.6.2).
func (c *Segmenter) WriteTSO(b []byte) int {
	c.size = c.total
	seg := wire.TCP(b[:c.headerLen:c.headerLen])
	c.writeHeader(seg)
	n := uint32(c.headerLen + c.total)
	seg.SetChecksum(^wire.Fold(c.pseudo + n))
	c.done = true
	return c.headerLen
}

// Payload copies payload from offset at on to b, as much as there is, and returns how much.
func (c *Segmenter) Payload(b []byte, at int) int {
	n := min(len(b), c.total-at)
	c.copy(b[:n], at)
	return n
}

// ChecksumAt is the offset of the checksum in a segment's header, for devices that fill it
// in.
const ChecksumAt = 16
