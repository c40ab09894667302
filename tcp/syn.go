package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// outputSYN sends the SYN, or the SYN-ACK of a simultaneous or fast open: once, and again
// when its timer expired or the peer sent its SYN again.
func (c *Conn) outputSYN(now clock.Time) bool {
	if c.holdsSYN() {
		return true
	}
	first := !c.outstanding()
	seq, lost := c.sender.lost()
	again := lost > 0 && seq == c.una
	if !first && !again && !c.has(flagSynAck) {
		return true
	}
	n, ok := c.sendSYN(now, first)
	if !ok {
		return false
	}
	c.flags &^= flagSynAck
	if first {
		c.nxt += 1 + n
		c.progressAt = now
		c.sender.sent(now, c.una, 1+n, false)
		return true
	}
	if c.has(flagTriedFastOpen) && c.state == StateSynSent && c.sender.scoreboard.Backoff() > 0 { // not for its size alone (ICMP)
		c.flags &^= flagTriedFastOpen
		c.m.passive.fastOpenCache.markLost(now, &c.tuple.Remote)
	}
	c.sender.resent(now, c.una, 1)
	c.countRetransmit(1)
	return true
}

// sendSYN hands the SYN to the Output, the first one with Fast Open where that is possible.
// It returns how much data the SYN carries, and false where there was no room.
func (c *Conn) sendSYN(now clock.Time, first bool) (uint32, bool) {
	m := c.m
	o := &m.out
	h := &o.Header
	*o = Outgoing{Tuple: &c.tuple, RouteCache: &c.routeCache}
	o.setHeader(c.opt)
	h.SrcPort, h.DstPort = c.tuple.LocalPort, c.tuple.RemotePort
	h.Seq, h.Flags = c.una, wire.FlagSYN
	if c.state == StateSynReceived {
		h.Ack, h.Flags = c.rcvNxt, wire.FlagSYN|wire.FlagACK
		c.acknowledged(c.rcvAdv, false)
	}
	h.Window = uint16(c.synWindow())
	h.Options = c.appendSynOptions(m.options[:0], now)
	if first {
		c.pauseECN(now)
	}
	c.markSYN(o)
	n := c.addFastOpenOption(now, o, first)
	if c.state == StateSynReceived {
		h.Options = c.appendSynAckECN(h.Options)
	}
	if c.auth != nil {
		o.Sign = c.auth.Sign
	}
	if !m.cfg.Output.Send(now, o) {
		return 0, false
	}
	m.stats.SegmentsOut++
	c.counts.noteOutput(1, int(n), false)
	return n, true
}

// inputSynSent is RFC 9293 3.10.7.3: ACK, RST, SYN, in this order. A RST counts only with
// an acceptable ACK.
func (c *Conn) inputSynSent(now clock.Time, s *Segment) packet.Verdict {
	ack := s.Flags.Has(wire.FlagACK)
	// An ACK of anything but our SYN is of an earlier connection; RST makes its sender
	// forget it (half-open recovery, RFC 9293 3.5.1).
	if ack && !c.acknowledgesSYN(s) {
		if !s.Flags.Has(wire.FlagRST) {
			c.m.reset(now, &c.tuple, s)
		}
		return packet.DropSequence
	}
	if s.Flags.Has(wire.FlagRST) {
		if !ack {
			return packet.DropSequence
		}
		c.m.stats.Failed++
		c.enterClosed(refused)
		return packet.Deliver
	}
	if !s.Flags.Has(wire.FlagSYN) {
		return packet.DropState
	}
	if ack && s.Options.HasTimestamps && !c.opt.NoTimestamps && !c.echoesOurTimestamp(now, s) {
		c.m.reset(now, &c.tuple, s) // as for a wrong ACK
		return packet.DropSequence
	}
	c.acceptSYN(now, s)
	if ack {
		c.connected(now, s)
	} else {
		c.simultaneousOpen(now)
	}
	return packet.Deliver
}

// echoesOurTimestamp reports whether a SYN-ACK echoes a timestamp that was sent within 2^20
// ms: one that does not answers another connection. An echo of 0 is of a peer that echoes
// nothing.
func (c *Conn) echoesOurTimestamp(now clock.Time, s *Segment) bool {
	if s.Options.TSEcr == 0 {
		return true
	}
	sent := timestamp(now) + c.tsOffset - s.Options.TSEcr
	return sent < 1<<20
}

// acceptSYN takes what the peer's SYN announces.
func (c *Conn) acceptSYN(now clock.Time, s *Segment) {
	o := &s.Options
	h := handshake{
		peerMSS:     o.MSS,
		scaling:     o.HasWindowScale && !c.opt.NoScaling,
		sendScale:   o.WindowScale,
		sack:        o.SACKPermitted && !c.opt.NoSACK,
		timestamps:  o.HasTimestamps && !c.opt.NoTimestamps,
		ecn:         c.parseSynAck(s),
		synECN:      s.ECN,
		sendsSynAck: !s.Flags.Has(wire.FlagACK),
	}
	if h.peerMSS == 0 {
		h.peerMSS = defaultMSS(&c.tuple)
	}
	c.setNegotiated(&h)
	c.rcvNxt, c.lastAcked = s.Seq+1, s.Seq+1
	c.rcvAdv = c.rcvNxt + c.synWindow()
	c.tsRecent = o.TSVal
	c.sndEdge = c.una + uint32(s.Window) // of a SYN it is never scaled (RFC 7323 2.2)
	c.maxWnd = uint32(s.Window)
	c.wl1 = s.Seq
	c.aliveAt = now
	c.updateSegmentSize()
	if s.Flags.Has(wire.FlagACK) {
		c.noteECNAnswer(now, h.ecn)
		c.inputSynAckECN(now, s)
	} else if c.asksECN() == ecn.None {
		c.flags |= flagNotECT // the peer had a SYN without ECN from us
	}
	c.ackNow()
}

// inputSYN is RFC 9293 3.10.7.4, fourth, with RFC 5961 4.2: a SYN is challenged wherever
// its number lies. Only SYN-RECEIVED expects one, with the number that is known: the same
// SYN again, of a peer that lacks our SYN-ACK, or the SYN-ACK of a peer whose SYN crossed
// ours (3.5, figure 8, MUST-10).
func (c *Conn) inputSYN(now clock.Time, s *Segment) packet.Verdict {
	ack := s.Flags.Has(wire.FlagACK)
	if c.state != StateSynReceived || s.Seq != c.wl1 || ack && c.has(flagPassive) {
		c.challenge(now)
		return packet.DropState
	}
	if !ack {
		c.flags |= flagSynAck
		c.m.markDirty(c)
		return packet.Deliver
	}
	if !c.acknowledgesSYN(s) {
		c.m.reset(now, &c.tuple, s)
		return packet.DropSequence
	}
	c.markAlive(now)
	c.noteTimestamp(s)
	c.ackNow() // our SYN-ACK, which would be enough, may be lost
	c.connected(now, s)
	return packet.Deliver
}

// acknowledgesSYN reports whether s acknowledges our SYN and nothing that was not sent (RFC
// 9293 3.10.7.3 and 3.10.7.4, fifth).
func (c *Conn) acknowledgesSYN(s *Segment) bool {
	return seqnum.Before(c.una, s.Ack) && seqnum.AtOrBefore(s.Ack, c.nxt)
}

// connected enters ESTABLISHED by a SYN-ACK, and processes its text and other controls from
// the sixth step of RFC 9293 3.10.7.4 on.
func (c *Conn) connected(now clock.Time, s *Segment) {
	c.opened(now, s, uint32(s.Window)) // of a SYN it is never scaled (RFC 7323 2.2)
	if s.Flags.Has(wire.FlagURG) {
		c.inputURG(s) // the pointer counts from SEG.SEQ, which is the SYN's
	}
	x := behindSYN(s)
	c.inputData(now, &x)
}

// opened enters ESTABLISHED, after an active open, by a segment that acknowledges our SYN
// and has the window wnd.
func (c *Conn) opened(now clock.Time, s *Segment, wnd uint32) {
	c.wl1, c.wl2 = s.Seq, s.Ack
	c.sndEdge = s.Ack + wnd
	c.maxWnd = max(c.maxWnd, wnd)
	a := loss.Ack{Una: s.Ack, Echo: c.echo(now, s)}
	if c.has(flagTriedFastOpen) {
		c.inputFastOpenReply(s)
	}
	c.advance(now, &a, s)
	if c.outstanding() {
		c.sender.scoreboard.RetransmitAll() // the data of our SYN was not taken (RFC 7413 4.2.1)
	}
	c.establish(now)
}

// establish reports that the handshake is complete. A FIN that waited for it is sent now.
func (c *Conn) establish(now clock.Time) {
	c.state = StateEstablished
	c.sender.setOptions(c.lossOptions())
	c.m.passive.untrackFastOpen(c)
	c.report(Connected | Writable)
	if c.has(flagFIN) {
		c.state = StateFinWait1
	}
}

// simultaneousOpen answers a SYN that crossed ours (RFC 9293 3.5, figure 8). Its text and
// FIN are not acknowledged, so that the peer sends them again once the connection is open:
// RFC 9293 3.10.7.3 queues them until then, which would hold memory for a peer that has not
// shown that it receives at its address.
func (c *Conn) simultaneousOpen(now clock.Time) {
	c.state = StateSynReceived
	c.flags |= flagSynAck
	c.m.markDirty(c)
}
