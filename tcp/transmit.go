package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// sendRange sends sequence numbers [seq, seq+n), data and perhaps the FIN; less where they
// lie in more chunks than an Outgoing has pieces. PSH marks the end of what was written
// (RFC 9293 3.9.1.2, MUST-61).
func (c *Conn) sendRange(now clock.Time, seq, n uint32) (uint32, bool) {
	flags := wire.FlagACK
	size := seqnum.Earliest(seq+n, c.end) - seq // bytes of payload
	if c.has(flagRecords) {
		size = min(size, c.toRecordEnd(seq))
	}
	fin := size < n && seq+size == c.end
	o := &c.m.out
	o.Payload = [2][]byte{}
	if size > 0 {
		pieces, total := c.snd.Slice(seq, int(size))
		if uint32(total) < size {
			size, fin = c.roundToSegments(uint32(total)), false
			pieces = truncatePieces(pieces, int(size))
		}
		o.Payload = pieces
		if seq+size == c.end || c.endsRecord(seq+size) {
			flags |= wire.FlagPSH
		}
	}
	if fin {
		flags |= wire.FlagFIN
	}
	c.markUrgent(&o.Header, seq, &flags)
	// A window probe is not ECN-capable, and what sends its byte again is not (RFC 3168
	// 6.1.5 and 6.1.6).
	fresh := seq == c.nxt && c.window() > 0 && !c.has(flagWindowProbe)
	if !c.transmit(now, seq, flags, int(size), fresh) {
		return 0, false
	}
	return size + seqLen(fin), true
}

// roundToSegments rounds the bytes of two chunks down to full segments, if there is one: a
// partial segment in the middle of a stream would waste a packet.
func (c *Conn) roundToSegments(n uint32) uint32 {
	if mss := uint32(c.mss()); n > mss {
		n -= n % mss
	}
	return n
}

// truncatePieces returns the first n bytes of both pieces.
func truncatePieces(p [2][]byte, n int) [2][]byte {
	first := min(n, len(p[0]))
	return [2][]byte{p[0][:first], p[1][:n-first]}
}

// sendACK sends an ACK without data.
func (c *Conn) sendACK(now clock.Time) bool {
	c.m.out.Payload = [2][]byte{}
	c.m.out.Header.Urgent = 0
	return c.transmit(now, c.nxt, wire.FlagACK, 0, false)
}

// transmit hands one Outgoing to the Output: m.out.Payload, n bytes at seq. fresh is
// whether the data is new, which decides on ECN. False is no room: nothing has changed
// then.
func (c *Conn) transmit(now clock.Time, seq uint32, flags wire.TCPFlags, n int, fresh bool) bool {
	m := c.m
	o := &m.out
	h := &o.Header
	o.Tuple, o.RouteCache = &c.tuple, &c.routeCache
	o.setHeader(c.opt)
	h.SrcPort, h.DstPort = c.tuple.LocalPort, c.tuple.RemotePort
	h.Seq, h.Ack, h.Flags = seq, c.rcvNxt, flags
	// Every segment carries the newest window and ACK, so that it replaces a delayed ACK.
	right := c.receiveEdge()
	h.Window = c.scaledWindow(&right)
	options, layout := c.appendOptions(m.options[:0], now, n)
	h.Options = options
	// SACK blocks and signatures shorten this Outgoing's segments: options and payload
	// together must fit (RFC 6691 3).
	o.SegmentSize = max(int(max(c.segment, m.probeSize))-len(h.Options), 1)
	o.ECN, o.AE, o.ACE = wire.NotECT, false, false
	c.markSegment(o, n, fresh)
	if c.auth != nil {
		o.Sign = c.auth.Sign
	} else {
		o.Sign = nil
	}
	if !m.cfg.Output.Send(now, o) {
		return false
	}
	segments := o.Segments()
	c.counts.noteOutput(segments, n, seqnum.Before(seq, c.nxt))
	m.stats.SegmentsOut += uint64(segments)
	m.stats.BytesOut += uint64(n)
	c.segmentSent(o, n, layout)
	c.acknowledged(right, n > 0)
	return true
}

// setHeader takes the options that concern the IP header.
func (o *Outgoing) setHeader(p *Options) {
	o.TTL, o.TOS, o.Fragment = p.TTL, p.TOS&^3, p.PathMTU == FragmentPackets
}

// acknowledged notes the window and ACK of the segment that was just sent.
func (c *Conn) acknowledged(right uint32, data bool) {
	if data && c.ackAt != never {
		c.flags |= flagInteractive
	}
	c.rcvAdv = right
	c.lastAcked = c.rcvNxt
	c.promise()
	c.ackAt = never
	c.flags &^= flagAckNow
	c.dsack = byteRange{}
}

// countRetransmit counts n bytes sent again, in segments.
func (c *Conn) countRetransmit(n uint32) {
	mss := uint32(c.mss())
	segments := uint64((n + mss - 1) / mss)
	c.ensureRare().retransmits += segments
	c.m.stats.Retransmits += segments
}

// timestampsLen is the length of the timestamps option with the two NOPs that align it (RFC
// 7323 Appendix A).
const timestampsLen = 12 // with the two bytes that align them

// optionsLen returns the length of the options in every segment, bytes.
func (c *Conn) optionsLen() (n int) {
	if c.has(flagTimestamps) {
		n = timestampsLen
	}
	if c.auth != nil {
		n += (c.auth.OptionLen() + 3) &^ 3
	}
	return n
}

// appendOptions appends the options of a segment without SYN and with n bytes of data:
// signature, timestamps, accurate ECN, and SACK as far as there is room. The signature comes
// first because only it must not be left out.
func (c *Conn) appendOptions(b []byte, now clock.Time, n int) ([]byte, ecn.Layout) {
	if c.auth != nil {
		b = c.auth.AppendOption(b)
		b = wire.AppendNOP(b, -len(b)&3)
	}
	if c.has(flagTimestamps) {
		b = wire.AppendNOP(b, 2)
		b = wire.AppendTimestamps(b, timestamp(now)+c.tsOffset, c.tsRecent)
	}
	layout := ecn.NoOption
	if c.ecn.mode == ecn.Accurate {
		if layout = c.accECNLayout(len(b), n); layout != ecn.NoOption {
			b = c.rare.accurate.in.AppendOption(b, layout)
			b = wire.AppendNOP(b, -len(b)&3)
		}
		if c.withoutSACK(n) {
			return b, layout
		}
	}
	if c.sackBlocks() > 0 {
		b = c.appendSACK(b)
	}
	return b, layout
}

// sackBlocks returns how many SACK blocks there are to send.
func (c *Conn) sackBlocks() (n int) {
	if !c.has(flagSACK) {
		return 0
	}
	if c.dsack.left != c.dsack.right {
		n = 1
	}
	if c.rcv != nil {
		n += len(c.rcv.OutOfOrder())
	}
	return n
}

// appendSACK appends the ranges received out of order, newest first (RFC 2018 4), and
// before them a duplicate, which is reported once (RFC 2883 4).
func (c *Conn) appendSACK(b []byte) []byte {
	most := min((wire.TCPMaxOptions-len(b)-4)/8, wire.MaxSACKBlocks)
	if most <= 0 {
		return b
	}
	var blocks [wire.MaxSACKBlocks]wire.SACKBlock
	n := 0
	if c.dsack.left != c.dsack.right {
		blocks[0] = wire.SACKBlock{Left: c.dsack.left, Right: c.dsack.right}
		n = 1
	}
	if c.rcv != nil {
		var ranges [wire.MaxSACKBlocks]buffer.Span
		for _, g := range ranges[:c.rcv.NewestRanges(ranges[:most-n])] {
			blocks[n] = wire.SACKBlock{Left: g.Left, Right: g.Right}
			n++
		}
	}
	if n == 0 {
		return b
	}
	return wire.AppendSACK(wire.AppendNOP(b, 2), blocks[:n]...)
}

// appendSynOptions appends the options of a SYN, or of a SYN-ACK, which has only what the
// SYN offered (RFC 7323 3.2).
func (c *Conn) appendSynOptions(b []byte, now clock.Time) []byte {
	answer := c.state == StateSynReceived
	b = wire.AppendMSS(b, c.m.announcedMSS(&c.tuple, c.opt))
	scaling := !c.opt.NoScaling
	stamps, sack := !c.opt.NoTimestamps, !c.opt.NoSACK
	if answer {
		scaling, stamps, sack = c.has(flagScaling), c.has(flagTimestamps), c.has(flagSACK)
	}
	switch {
	case sack && stamps:
		b = wire.AppendSACKPermitted(b)
		b = wire.AppendTimestamps(b, timestamp(now)+c.tsOffset, c.tsRecent)
	case sack:
		b = wire.AppendSACKPermitted(wire.AppendNOP(b, 2))
	case stamps:
		b = wire.AppendTimestamps(wire.AppendNOP(b, 2), timestamp(now)+c.tsOffset, c.tsRecent)
	}
	if scaling {
		b = wire.AppendWindowScale(wire.AppendNOP(b, 1), c.rcvScale)
	}
	if c.auth != nil {
		b = c.auth.AppendOption(b)
	}
	return b
}
