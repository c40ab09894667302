package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/tcp/stamp"
	"github.com/millrace/millrace/wire"
)

// inputData handles payload and FIN (RFC 9293 3.10.7.4, seventh and eighth).
func (c *Conn) inputData(now clock.Time, s *Segment) packet.Verdict {
	if c.ecn.mode == ecn.Accurate {
		c.countMarks(now, s)
	}
	if s.Len == 0 && !s.Flags.Has(wire.FlagFIN) {
		return packet.Deliver
	}
	switch c.state {
	case StateEstablished, StateFinWait1, StateFinWait2:
	default:
		return c.inputAfterFIN(now, s)
	}
	if s.Len > 0 && c.has(flagOrphaned) && seqnum.Before(c.rcvNxt, s.Seq+s.Len) {
		return c.inputOrphaned(now) // RFC 9293 3.6, MAY-1
	}
	if c.ecn.mode == ecn.Classic {
		c.inputECN(now, s)
	}
	return c.inputText(now, s)
}

// inputText takes the text of a segment and the FIN behind it. The FIN counts even
// where the text is dropped: a peer that got no ACK sends it behind text that is already here,
// and nothing else will ever bring it (RFC 9293 3.10.7.4, eighth).
func (c *Conn) inputText(now clock.Time, s *Segment) packet.Verdict {
	v := c.acceptData(now, s)
	if s.Flags.Has(wire.FlagFIN) {
		if c.noteFIN(s.Seq + s.Len) {
			v = packet.Deliver
		}
		if !c.delaysFINAck() {
			c.ackNow() // also where it lies behind a hole (RFC 5681 4.2) or cannot be the end
		}
	}
	c.processFIN(now)
	return v
}

// inputAfterFIN handles data after the peer's FIN: only retransmissions are right there.
func (c *Conn) inputAfterFIN(now clock.Time, s *Segment) packet.Verdict {
	if seqnum.Before(c.rcvNxt, s.Seq+s.Len) {
		return packet.DropState
	}
	c.ackNow()
	return packet.Deliver
}

// inputOrphaned resets a peer that sends data after Close: it must learn that the data will
// not be read (RFC 9293 3.6, MAY-1; RFC 1122 4.2.2.13).
func (c *Conn) inputOrphaned(now clock.Time) packet.Verdict {
	c.sendReset()
	c.enterClosed(aborted)
	return packet.DropState
}

// acceptData stores the part of the payload that lies in the window and is not there yet.
// Everything else is acknowledged at once, so that a peer with an old view of the window
// gets the new one.
func (c *Conn) acceptData(now clock.Time, s *Segment) packet.Verdict {
	if s.Len == 0 {
		return packet.Deliver
	}
	left, right := s.Seq, s.Seq+s.Len
	// Data behind the FIN is from a broken or forging peer: the stream ends where the FIN
	// says.
	if c.has(flagPeerFIN) {
		right = seqnum.Earliest(right, c.peerFIN)
	}
	if seqnum.AtOrBefore(right, c.rcvNxt) {
		c.noteDuplicate(left, right, s.Packets)
		c.ackNow()
		return packet.DropSequence
	}
	if seqnum.Before(left, c.rcvNxt) {
		c.noteDuplicate(left, c.rcvNxt, 1)
		left = c.rcvNxt
	}
	if right = seqnum.Earliest(right, c.rcvAdv); !seqnum.Before(left, right) {
		c.ackNow()
		return packet.DropSequence
	}
	// What arrives in one segment shows the peer's segment size; merged ones are divided by
	// their number.
	c.largestIn = max(c.largestIn, uint16(s.Len/uint32(s.Packets)))
	if c.has(flagReadShutdown) {
		return c.discardData(now, left, right)
	}
	return c.takeData(now, s, left, right)
}

// takeData takes [left, right) of a segment, which is new and inside of the window: to the reader that waits, where the
// driver has placed it, or to the ring.
func (c *Conn) takeData(now clock.Time, s *Segment, left, right uint32) packet.Verdict {
	var direct uint32
	if s.Placed {
		var ok bool
		if direct, ok = c.acceptPlaced(s, left, right); !ok {
			c.ackNow()
			return packet.DropMemory
		}
		left += direct
		c.inOrder(now, right-left, s)
		c.readDirect(now, direct)
		return packet.Deliver
	}
	if left == c.rcvNxt {
		direct = c.fillReader(s, right-left)
		if left += direct; left == right {
			c.inOrder(now, 0, s)
			c.readDirect(now, direct)
			return packet.Deliver
		}
	}
	whole := right
	right = c.store(now, left, right, s)
	if left == c.rcvNxt && right != whole {
		c.refuse()
	}
	if left == right && direct == 0 {
		c.ackNow()
		return packet.DropMemory
	}
	if left == c.rcvNxt {
		if dup := c.firstOverlap(right); dup.Left != dup.Right && left == s.Seq {
			c.noteDuplicate(dup.Left, dup.Right, 1) // the first duplicate of a segment is reported (RFC 2883 4)
		}
		c.inOrder(now, right-left, s)
		c.readDirect(now, direct)
	} else {
		c.outOfOrder(now, left, right, uint32(s.Packets))
	}
	return packet.Deliver
}

// store copies [left, right) of the segment to its place in the ring. It returns the right
// edge of what the budget had room for: left where that is nothing, and less than right only
// in order.
func (c *Conn) store(now clock.Time, left, right uint32, s *Segment) uint32 {
	r := c.rcv
	if r == nil {
		r = c.m.rings.get()
		c.rcv = r
		r.Reset(c.rcvNxt)
		r.Holder = c.id
	}
	if right = c.reserve(now, r, left, right); left == right {
		c.freeRing()
		return left
	}
	r.Store(left, s.Payload, left-s.Seq, right-left)
	return right
}

// firstOverlap is that of the ring, which may not exist where a reader has the data.
func (c *Conn) firstOverlap(right uint32) buffer.Span {
	if c.rcv == nil {
		return buffer.Span{}
	}
	return c.rcv.FirstOverlap(right)
}

// inOrder makes n stored bytes readable, and the ranges that they reach.
func (c *Conn) inOrder(now clock.Time, n uint32, s *Segment) {
	filled, next := false, c.rcvNxt
	if c.ecn.mode == ecn.Accurate {
		c.rare.accurate.in.Progressed()
	}
	if r := c.rcv; r != nil { // nil where a reader has all
		filled = len(r.OutOfOrder()) > 0
		r.Advance(&c.m.buffers, n)
		next = r.Next()
	}
	c.counts.received += uint64(next - c.rcvNxt)
	c.rcvNxt = next
	if c.opt.Stamps&stamp.Received != 0 {
		c.ensureStamps(c.end).Arrived(now, c.rcvNxt)
	}
	if filled {
		c.tuning.hole = true
	} else {
		c.measureReceive(now, s)
	}
	if c.owner != nil {
		c.report(Readable)
		if c.has(flagRcvUrgent) && c.UrgentReady() {
			c.report(Urgent)
		}
	}
	if c.has(flagDeferred) {
		c.m.passive.acceptDeferred(c)
	}
	c.scheduleACK(now, s, filled)
}

// outOfOrder keeps data behind a hole and acknowledges at once: duplicate ACKs and SACK
// blocks drive the peer's loss recovery (RFC 5681 4.2).
func (c *Conn) outOfOrder(now clock.Time, left, right, packets uint32) {
	c.m.stats.OutOfOrder++
	c.counts.outOfOrder += packets
	dup, ok := c.rcv.AddRange(int64(now), &c.m.buffers, left, right)
	if ok && dup.Left != dup.Right {
		c.noteDuplicate(dup.Left, dup.Right, 1)
	}
	c.ackNow()
}

// discardData acknowledges data in order after CloseRead. Out of order it is not kept: the
// peer sends it again.
func (c *Conn) discardData(now clock.Time, left, right uint32) packet.Verdict {
	if left == c.rcvNxt {
		c.rcvNxt = right
		c.counts.received += uint64(right - left)
	}
	c.ackNow()
	return packet.Deliver
}

// initialQuickACKs is the number of segments that are acknowledged at once at the start, when the
// peer is in slow start and each ACK opens its window, and again after a local timeout,
// when the path has lost segments.
const initialQuickACKs = 16

// scheduleACK decides when data is acknowledged (RFC 9293 3.8.6.3): at once for more than
// one full segment, for a filled hole (RFC 5681 4.2), and at the start; else with the next
// data that is sent, or after a delay.
func (c *Conn) scheduleACK(now clock.Time, s *Segment, filled bool) {
	switch {
	case filled || c.opt.NoDelayedAck || c.rcvNxt-c.lastAcked > uint32(c.largestIn):
		c.ackNow()
	case c.quickACKs > 0 && !c.has(flagInteractive):
		c.quickACKs--
		c.ackNow()
	default:
		c.delayACK(now)
	}
}

// delayACK makes the next segment carry the ACK, or a segment of its own after a delay.
func (c *Conn) delayACK(now clock.Time) {
	if c.ackAt == never {
		c.ackAt = now.Add(delayedAck)
		c.m.markDirty(c)
	}
}

// noteDuplicate keeps a range that arrived twice, for the next ACK to report (DSACK, RFC
// 2883 4), and counts the segments with it.
func (c *Conn) noteDuplicate(left, right uint32, segments uint16) {
	c.m.stats.Duplicate += uint64(segments)
	c.dsack = byteRange{left, right}
	if c.ecn.mode == ecn.Accurate && right == c.rcvNxt {
		c.rare.accurate.in.Repeated()
	}
}

// noteFIN records where the peer's stream ends, and reports whether seq is that. The first
// FIN counts: a second one elsewhere is forged or broken, and so is one before data that
// was received. A FIN at the right edge of the window counts, since it needs no buffer: a
// peer whose text has filled the window could not close otherwise.
func (c *Conn) noteFIN(seq uint32) bool {
	switch {
	case c.has(flagPeerFIN):
		return seq == c.peerFIN
	case seqnum.Before(c.rcvAdv, seq), seqnum.Before(seq, c.rcvNxt):
		return false
	case c.rcv != nil && seqnum.Before(seq, c.rcv.End()):
		return false // data was received behind it
	}
	c.flags |= flagPeerFIN
	c.peerFIN = seq
	return true
}

// delaysFINAck reports whether the ACK of the peer's FIN, which is next in the stream, may wait for our own FIN. Behind ours
// nothing follows that would carry it.
func (c *Conn) delaysFINAck() bool {
	return c.opt.DelayFINAck && c.state == StateEstablished && c.has(flagPeerFIN) && c.rcvNxt == c.peerFIN
}

// processFIN handles the peer's FIN once all data before it has arrived (RFC 9293 3.10.7.4,
// eighth).
func (c *Conn) processFIN(now clock.Time) {
	if !c.has(flagPeerFIN) || c.rcvNxt != c.peerFIN {
		return
	}
	delay := c.delaysFINAck()
	c.rcvNxt++
	c.rcvAdv = seqnum.Latest(c.rcvAdv, c.rcvNxt)
	if delay {
		c.delayACK(now)
	} else {
		c.ackNow()
	}
	c.report(Readable)
	if c.has(flagDeferred) {
		c.m.passive.acceptDeferred(c)
	}
	switch c.state {
	case StateEstablished:
		c.state = StateCloseWait
	case StateFinWait1:
		c.state = StateClosing // an ACK of the local FIN would have made this FIN-WAIT-2
	case StateFinWait2:
		c.enterTimeWait(now)
	}
}
