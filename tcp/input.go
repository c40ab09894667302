package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// input handles a segment for the connection (RFC 9293 3.10.7). Signatures come first: an
// unsigned segment must not change anything (RFC 5925 7.5).
func (c *Conn) input(now clock.Time, s *Segment) packet.Verdict {
	if s.TTL < c.opt.MinTTL {
		return packet.DropTTL
	}
	if c.auth != nil && !c.auth.Verify(s.Raw) {
		c.m.stats.AuthFailed++
		return packet.DropAuth
	}
	c.counts.noteInput(now, s)
	switch c.state {
	case StateClosed:
		return packet.DropState
	case StateSynSent:
		return c.inputSynSent(now, s)
	}
	return c.inputSynchronized(now, s)
}

// inputSynchronized is RFC 9293 3.10.7.4: all states but CLOSED, LISTEN and SYN-SENT. The
// order of the checks is that of the RFC, with PAWS before the sequence number (RFC 7323
// 5.3).
func (c *Conn) inputSynchronized(now clock.Time, s *Segment) packet.Verdict {
	if !c.passesPAWS(now, s) {
		return packet.DropSequence
	}
	if !c.acceptable(s) {
		return c.rejectUnacceptable(now, s)
	}
	switch {
	case s.Flags.Has(wire.FlagRST):
		return c.inputRST(now, s)
	case s.Flags.Has(wire.FlagSYN):
		return c.inputSYN(now, s)
	case !s.Flags.Has(wire.FlagACK):
		return packet.DropState
	}
	if v := c.inputACK(now, s); v != packet.Deliver || c.ended() {
		return v
	}
	c.markAlive(now) // not before the ACK was found right: timestamps of forged segments would have all that follow look old
	c.noteTimestamp(s)
	if s.Flags.Has(wire.FlagURG) && !c.has(flagPeerFIN) { // behind the FIN there is no urgent data
		c.inputURG(s)
	}
	return c.inputData(now, s)
}

// markAlive notes a sign of life. While the peer's window is being probed, unansweredProbes
// counts those probes and is reset elsewhere.
func (c *Conn) markAlive(now clock.Time) {
	c.aliveAt = now
	if c.probeAt == never {
		c.unansweredProbes = 0 // of keepalive
	}
}

// acceptable is the test of RFC 9293 3.10.7.4, first: some of the segment lies in the
// window, or it is an empty one at its left edge. With a zero window a segment at the edge
// is still accepted, for its ACK, URG and RST.
func (c *Conn) acceptable(s *Segment) bool {
	wnd := c.rcvAdv - c.rcvNxt
	off := s.Seq - c.rcvNxt
	if off == 0 || off < wnd {
		return true
	}
	n := segmentLen(s)
	if n == 0 && off == wnd {
		return true // at the right edge: a peer whose data filled the window acknowledges from there
	}
	return int32(off) < 0 && int32(off+n) > 0 // begins before, and ends in or behind the window
}

// rejectUnacceptable answers an unacceptable segment by an ACK, except a RST. With data it
// is a retransmission whose sender waits for the ACK; otherwise it may be one half of a
// loop of ACKs, so the answer has a rate limit (RFC 5961 7).
func (c *Conn) rejectUnacceptable(now clock.Time, s *Segment) packet.Verdict {
	if s.Flags.Has(wire.FlagRST) {
		return packet.DropSequence
	}
	if s.Flags.Has(wire.FlagSYN) && c.inputSYNAgain(s) {
		return packet.DropSequence
	}
	if s.Flags.Has(wire.FlagSYN) && c.state == StateSynReceived {
		return c.inputSYN(now, s)
	}
	if s.Len > 0 && !s.Flags.Has(wire.FlagSYN) {
		if seqnum.Before(s.Seq, c.rcvNxt) { // what PAWS refuses, or lies beyond the window, is no duplicate
			c.noteDuplicate(s.Seq, seqnum.Earliest(s.Seq+s.Len, c.rcvNxt), s.Packets)
		}
		c.ackNow()
	} else {
		c.challenge(now)
	}
	return packet.DropSequence
}

// inputRST is RFC 9293 3.10.7.4, second, with RFC 5961 3.2: only the exact number resets,
// others in the window are challenged. A blind attacker would otherwise need one guess per
// window instead of one per number.
func (c *Conn) inputRST(now clock.Time, s *Segment) packet.Verdict {
	if s.Seq != c.rcvNxt {
		if s.Seq-c.rcvNxt < c.rcvAdv-c.rcvNxt { // outside of the window nothing is answered
			c.challenge(now)
		}
		return packet.DropSequence
	}
	why := reset
	switch {
	case c.state == StateSynReceived && !c.has(flagPassive):
		why = refused // a passive one is Fast Open's: the application has it, and perhaps data of it
	case c.state >= StateClosing:
		why = closedInOrder
	}
	c.m.stats.Resets++
	c.enterClosed(why)
	return packet.Deliver
}

// challengeEvery is the least time between two challenge ACKs of a connection, in ticks of
// our timestamps (milliseconds).
const challengeEvery = 50

// challenge sends an ACK in answer to what may be forged (RFC 5961), at a bounded rate
// (section 7). The bound is the connection's own: a shared one would let an attacker
// measure other connections (CVE-2016-5696).
func (c *Conn) challenge(now clock.Time) {
	t := timestamp(now)
	k := c.ensureRare()
	if k.challengedAt != 0 && t+1-k.challengedAt <= challengeEvery { // it may be one ahead, to be none of 0
		return
	}
	k.challengedAt = t | 1
	c.m.stats.ChallengeAcks++
	c.ackNow()
}

// ackNow makes an ACK leave with the next Poll.
func (c *Conn) ackNow() {
	c.flags |= flagAckNow
	c.m.markDirty(c)
}
