package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// inputACK is RFC 9293 3.10.7.4, fifth.
func (c *Conn) inputACK(now clock.Time, s *Segment) packet.Verdict {
	if c.has(flagWindowProbe) && s.Ack == c.nxt+1 {
		c.windowProbeAccepted(now)
	}
	// SYN-RECEIVED: only an ACK of our SYN counts, others are of an earlier connection. RFC
	// 9293 3.10.7.4 resets them, because their sender would otherwise keep a connection
	// that we do not have.
	if c.state == StateSynReceived {
		if !c.acknowledgesSYN(s) {
			c.m.reset(now, &c.tuple, s)
			return packet.DropSequence
		}
		if !c.has(flagPassive) {
			c.opened(now, s, uint32(s.Window)<<c.sndScale)
			return packet.Deliver
		}
		c.establish(now)
	}
	switch {
	case seqnum.Before(c.nxt, s.Ack): // of something not sent yet
		c.challenge(now)
		return packet.DropSequence
	case seqnum.Before(s.Ack, c.una-c.maxWnd): // RFC 5961 5.2
		c.challenge(now)
		return packet.DropSequence
	case seqnum.Before(s.Ack, c.una): // overtaken by a newer one: nothing but its data counts
		return packet.Deliver
	}
	a := loss.Ack{Una: s.Ack, Echo: c.echo(now, s), Packets: s.Packets}
	if c.has(flagSACK) {
		a.SACK = s.Options.SACK[:s.Options.SACKs]
	}
	changed := c.updateWindow(s)
	// An ACK of nothing new is a duplicate only if it changes nothing else (RFC 5681 2): a
	// window update must not trigger fast retransmit.
	a.Duplicate = !changed && segmentLen(s) == 0
	c.advance(now, &a, s)
	c.afterACK(now)
	return packet.Deliver
}

// advance applies an acknowledgment between SND.UNA and SND.NXT, both included.
func (c *Conn) advance(now clock.Time, a *loss.Ack, s *Segment) {
	progress := a.Una != c.una
	var f ecn.Feedback
	if c.ecn.mode != ecn.None {
		f = c.feedback(now, s, progress)
	}
	if !progress && !c.outstanding() && len(a.SACK) == 0 {
		return // with a block it is a DSACK, which shows reordering or a needless probe
	}
	ev := c.sender.ack(now, a, &f)
	c.counts.noteACK(ev, &c.sender)
	if progress {
		c.counts.noteProgress(now)
		if c.has(flagStamps) && c.rare.stamps.Acknowledged(now, a.Una) {
			c.report(Stamped)
		}
		c.una = a.Una
		c.progressAt, c.reason = now, closedInOrder
		c.flags &^= flagWindowProbe
		c.releaseSent()
		if c.rare != nil {
			c.pathProbeAcked(now)
		}
	} else if len(a.SACK) > 0 {
		c.reportWritable() // what is SACKed does not count against the send buffer
	}
	c.m.markDirty(c)
}

// later reports whether a segment that acknowledges nothing new was surely sent after all
// others, by its timestamp. Only then its ECN counters are newer than those that are known,
// unless it SACKs something new (RFC 9768 A.1).
func (c *Conn) later(s *Segment) bool {
	return c.has(flagTimestamps) && int32(s.Options.TSVal-c.tsRecent) > 0
}

// releaseSent frees the data that was acknowledged, and the queue when it is empty: idle
// connections have none.
func (c *Conn) releaseSent() {
	if c.snd == nil {
		return
	}
	c.snd.Release(&c.m.buffers, seqnum.Earliest(c.una, c.end))
	c.flags &^= flagStarved // what was released may be written again
	if c.snd.Empty() {
		c.m.putQueue(c.snd)
		c.snd = nil
	}
	c.reportWritable()
}

// reportWritable reports that there is room again, once it is a third of the buffer: a
// wakeup per ACK would cost the application more than it could write.
func (c *Conn) reportWritable() {
	if c.has(flagWantWrite) && c.WriteReady() {
		c.flags &^= flagWantWrite
		c.report(Writable)
	}
}

// updateWindow takes the peer's window from a segment that is not older than the last that
// set it: SND.WL1 and SND.WL2 order them, because segments can be reordered (RFC 9293
// 3.10.7.4). It reports whether the window changed.
func (c *Conn) updateWindow(s *Segment) bool {
	if !seqnum.Before(c.wl1, s.Seq) && (c.wl1 != s.Seq || !seqnum.AtOrBefore(c.wl2, s.Ack)) {
		return false
	}
	wnd := uint32(s.Window) << c.sndScale
	old := c.sndEdge - c.wl2
	c.wl1, c.wl2 = s.Seq, s.Ack
	c.sndEdge = s.Ack + wnd
	c.maxWnd = max(c.maxWnd, wnd)
	if wnd == old {
		return false
	}
	c.m.markDirty(c)
	c.reportWritable() // what may be queued can depend on it (sendMinimum)
	return true
}

// echo returns when the segment was sent whose timestamp s echoes (RFC 7323 4.1), 0 where
// that is not known. An echo of more than 2^30 ticks ago is one that was never sent.
func (c *Conn) echo(now clock.Time, s *Segment) clock.Time {
	if !c.has(flagTimestamps) || !s.Options.HasTimestamps {
		return 0
	}
	ago := timestamp(now) + c.tsOffset - s.Options.TSEcr
	if ago > 1<<30 {
		return 0
	}
	return (now/clock.Time(timestampTick) - clock.Time(ago)) * clock.Time(timestampTick)
}

// afterACK changes state where our FIN was acknowledged (RFC 9293 3.10.7.4, fifth).
func (c *Conn) afterACK(now clock.Time) {
	if !c.finAcked() {
		return
	}
	switch c.state {
	// FIN-WAIT-1 to FIN-WAIT-2, CLOSING to TIME-WAIT, LAST-ACK to CLOSED (RFC 9293 figure
	// 5). The other states have sent no FIN.
	case StateFinWait1:
		c.state = StateFinWait2
		c.probeAt = never // of a window that has let the FIN through since
		if c.has(flagOrphaned) {
			c.waitAsOrphan(now)
			return
		}
		c.m.markDirty(c)
	case StateClosing:
		c.enterTimeWait(now)
	case StateLastAck:
		c.enterClosed(closedInOrder)
	}
}

// orphanTime is the time that FIN-WAIT-2 lasts after Close without Options.OrphanTime: a peer that never closes would keep
// the connection for ever.
const orphanTime = 60 * time.Second

// waitAsOrphan begins the time that FIN-WAIT-2 lasts without an application.
func (c *Conn) waitAsOrphan(now clock.Time) {
	limit := c.opt.OrphanTime
	if limit == NoOrphans {
		c.sendReset()
		c.enterClosed(aborted)
		return
	}
	if limit == 0 {
		limit = orphanTime
	}
	c.probeAt = now.Add(limit)
	c.m.markDirty(c)
}

// passesPAWS is PAWS (RFC 7323 5.3): it rejects, and acknowledges, a segment whose
// timestamp is older than TS.Recent. Without it, a duplicate from 2^32 bytes ago could pass
// as new data; at 100 Gbit/s that is a third of a second.
func (c *Conn) passesPAWS(now clock.Time, s *Segment) bool {
	if !c.has(flagTimestamps) || s.Flags.Has(wire.FlagRST) {
		return true
	}
	if !s.Options.HasTimestamps {
		// RFC 7323 3.2. A SYN is of a new connection, which may have none: it is challenged, so that a
		// peer that has begun anew finds out (RFC 5961 4.2, RFC 9293 3.5.1).
		return s.Flags.Has(wire.FlagSYN)
	}
	if c.stampOrder(s) >= 0 || now.Sub(c.aliveAt) > timestampLife || c.overtaken(s) {
		return true
	}
	c.rejectUnacceptable(now, s)
	return false
}

// timestampLife is the time after which TS.Recent is invalid: by then a millisecond clock
// may have wrapped half-way, so that newer timestamps look older (RFC 7323 5.5).
const timestampLife = 24 * 24 * time.Hour

// stampOrder is negative where a segment's timestamp is older than TS.Recent, in ticks.
func (c *Conn) stampOrder(s *Segment) int32 { return int32(s.Options.TSVal - c.tsRecent) }

// reorderedTicks is by how many milliseconds an overtaken segment may be older than
// TS.Recent. A duplicate from before the sequence numbers wrapped is 34 ms old at 1 Tbit/s.
const reorderedTicks = 10

// overtaken reports whether a segment with an old timestamp was only overtaken. It is one of
// those behind a hole, or has no data.
//
// A retransmission that fills a hole moves TS.Recent beyond the originals behind it that are
// still on their way. RFC 7323 5.3 discards them, so that they would be sent again too, and
// move TS.Recent again.
func (c *Conn) overtaken(s *Segment) bool {
	if c.stampOrder(s) < -reorderedTicks {
		return false
	}
	return segmentLen(s) == 0 || c.rcv != nil && len(c.rcv.OutOfOrder()) > 0
}

// noteTimestamp sets TS.Recent from a segment that covers what the last ACK asked for (RFC
// 7323 4.3), unless it was overtaken. Later ones do not count: with delayed ACKs the echo
// must show the first segment's time, or the peer would measure too short a RTT.
func (c *Conn) noteTimestamp(s *Segment) {
	if !c.has(flagTimestamps) || !s.Options.HasTimestamps || !seqnum.AtOrBefore(s.Seq, c.lastAcked) {
		return
	}
	if order := c.stampOrder(s); order >= 0 || order < -reorderedTicks { // older only after timestampLife
		c.tsRecent = s.Options.TSVal
	}
}
