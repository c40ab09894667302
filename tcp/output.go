package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/seqnum"
)

// output sends what may be sent now: lost data, new data, and an ACK where nothing else
// carried it. False is that the Output had no room; the caller then blocks the connection
// until the next Poll.
func (c *Conn) output(now clock.Time) bool {
	if c.has(flagReset) {
		return c.resetPeer(now)
	}
	if c.state == StateSynSent || c.state == StateSynReceived {
		if !c.outputSYN(now) || !c.outputFastOpenData(now) {
			return false
		}
	} else if c.state != StateClosed && c.state != StateTimeWait {
		if !c.outputHandshakeACK(now) || !c.outputData(now) {
			return false
		}
	}
	if c.has(flagAckNow) && c.state != StateSynSent && c.state != StateClosed {
		return c.sendACK(now)
	}
	return true
}

// outputData sends lost ranges first, then new data (RFC 6675 5, NextSeg). F-RTO turns the
// order around for one step: new data shows whether a timeout was spurious (RFC 5682 2.1).
func (c *Conn) outputData(now clock.Time) bool {
	if c.has(flagTailProbe) && !c.tailProbe(now) {
		return false
	}
	if !c.outstanding() && c.unsent() == 0 && (!c.has(flagFIN) || c.finSent()) {
		return true
	}
	// F-RTO asks for new data first, and falls back to retransmission where there is none
	// (RFC 5682 2.1 step 2b).
	if c.sender.scoreboard.WantsNewData() {
		sent, ok := c.sendNew(now)
		if !ok {
			return false
		}
		c.sender.scoreboard.NewDataSent(sent > 0)
	}
	return c.outputLost(now) && c.outputNew(now)
}

// outputLost retransmits as far as the congestion window allows.
func (c *Conn) outputLost(now clock.Time) bool {
	for {
		seq, n := c.sender.lost()
		if n == 0 {
			return true
		}
		room, wait := c.room(now)
		if room == 0 {
			c.armPacing(wait)
			return true
		}
		sent, ok := c.sendRange(now, seq, min(n, room, c.maxOutgoing()))
		if !ok {
			return false
		}
		if c.rare != nil {
			c.pathProbeLost(now, seq)
		}
		c.sender.resent(now, seq, sent)
		c.countRetransmit(sent)
	}
}

// maxOutgoing is the most payload of one Outgoing, bytes.
func (c *Conn) maxOutgoing() uint32 {
	return uint32(max(c.m.cfg.Output.Offload(), c.mss()))
}

// outputNew sends new data, and the FIN behind it.
func (c *Conn) outputNew(now clock.Time) bool {
	for c.unsent() > 0 || c.has(flagFIN) && !c.finSent() {
		if n, ok := c.sendNew(now); n == 0 || !ok {
			return ok
		}
	}
	return true
}

// sendNew sends as much new data as one Outgoing and all windows allow, and returns how
// much sequence space it took.
func (c *Conn) sendNew(now clock.Time) (uint32, bool) {
	n, fin := c.nextNew(now)
	if n == 0 && !fin {
		return 0, true
	}
	if !c.outstanding() {
		c.progressAt = now
	}
	cut := false
	if c.ecn.mode == ecn.Accurate {
		n, fin, cut = c.firstWithOption(n, fin)
	}
	seq := c.nxt
	// A probe of the path MTU is one segment of ordinary data that is longer than the
	// others: no byte is sent only to probe (RFC 4821 7).
	probe := uint16(0)
	if c.rare != nil || c.opt.PathProbe {
		probe = c.pathProbeSize(now)
	}
	if probe != 0 {
		n, fin = uint32(int(probe)-c.optionsLen()), false
		c.m.probeSize = probe
	}
	sent, ok := c.sendRange(now, seq, n+seqLen(fin))
	if probe != 0 {
		c.m.probeSize = 0
	}
	if !ok {
		return 0, false
	}
	c.nxt += sent
	if c.has(flagStamps) {
		c.stampSent(now)
	}
	c.flags &^= flagWindowProbe
	c.probeAt = never
	// All data is sent and the window has room: the application limits, so this flight shows
	// nothing about the path.
	limited := c.nxt == c.end+seqLen(c.has(flagFIN)) && c.window() > 0
	if probe != 0 && sent == n {
		c.pathProbeSent(probe, c.nxt)
		c.sender.sentProbe(now, seq, sent, limited)
	} else {
		c.sender.sent(now, seq, sent, limited)
	}
	if sent%uint32(c.mss()) != 0 && !cut {
		c.partialEnd = c.nxt
	}
	return sent, true
}

// seqLen is the sequence space of a flag: 1 where it is set.
func seqLen(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// nextNew returns how many new bytes may be sent now, and whether the FIN goes with them.
// The FIN takes a sequence number, which must lie in the peer's window too.
func (c *Conn) nextNew(now clock.Time) (n uint32, fin bool) {
	unsent := c.unsent()
	fin = c.has(flagFIN) && !c.finSent()
	if unsent == 0 && !fin {
		return 0, false
	}
	window := c.window()
	n = min(unsent, window)
	if n < unsent || window == n {
		fin = false // it has a number, too, and that lies behind the window
	}
	if n == 0 && !fin {
		c.startWindowProbes(now)
		return 0, false
	}
	if c.sender.scoreboard.Full() {
		return 0, false // until an ACK comes
	}
	room, wait := c.room(now)
	if room == 0 && !(unsent == 0 && fin) { // a FIN alone is no load that congestion control has to hold back
		c.armPacing(wait)
		return 0, false
	}
	if n > min(room, uint32(c.mss())) { // most segments need not ask the Output
		if most := min(room, c.maxOutgoing()); n > most {
			n, fin = most, false
		}
	}
	if c.has(flagRecords) {
		// A record with data behind it is complete: its last segment does not wait for more.
		if k := c.toRecordEnd(c.nxt); k <= n && k < unsent {
			return k, false
		}
	}
	return c.fullSegments(now, n, unsent, fin)
}

// fullSegments cuts n down to full segments where the rest has to wait: for more data
// (Nagle's algorithm, cork), or for a wider window (sender's silly window avoidance, RFC
// 9293 3.8.6.2.1). Half the largest window that the peer ever had is sent nevertheless,
// because a peer with a small buffer may never open it further.
func (c *Conn) fullSegments(now clock.Time, n, unsent uint32, fin bool) (uint32, bool) {
	mss := uint32(c.mss())
	rest := n % mss
	if rest == 0 && n > 0 || fin {
		return n, fin
	}
	if n == unsent {
		if c.maySendPartial(now) {
			return n, false
		}
	} else if n < mss && !c.outstanding() && n >= c.maxWnd/2 {
		return n, false
	}
	n -= rest
	if n == 0 && !c.outstanding() && c.window() < unsent {
		c.startWindowProbes(now)
	}
	return n, false
}

// maySendPartial reports whether a last segment that is not full may leave (RFC 9293
// 3.7.4). Nagle's algorithm in Minshall's form delays it only while another partial one is
// unacknowledged: a bulk sender's last segment need not wait for a delayed ACK.
func (c *Conn) maySendPartial(now clock.Time) bool {
	if c.opt.Cork || c.has(flagMore) {
		return c.corked(now)
	}
	return c.opt.NoDelay || !seqnum.Before(c.una, c.partialEnd)
}

// corked reports whether data that was held back for more has waited long enough.
func (c *Conn) corked(now clock.Time) bool {
	k := c.ensureRare()
	switch {
	case k.corkAt == never:
		k.corkAt = now.Add(corkTime)
		return false
	case k.corkAt <= now:
		k.corkAt = never
		c.flags &^= flagMore
		return true
	}
	return false
}

// uncork has what corked holds back leave now, once: TCP_NODELAY is a flush even while TCP_CORK is set (tcp(7)).
func (c *Conn) uncork(now clock.Time) {
	if c.opt.Cork || c.has(flagMore) {
		c.ensureRare().corkAt = now
	}
}

// armPacing arms the timer where pacing, and not a window, delays what could be sent.
func (c *Conn) armPacing(t clock.Time) {
	if t != never {
		c.arm(t)
	}
}

// tailProbe sends one segment to elicit an ACK for the tail of a flight (RFC 8985 7.3): new
// data where there is some and the window allows it, else the last segment again. Without
// it a lost tail is only found by a timeout.
func (c *Conn) tailProbe(now clock.Time) bool {
	c.flags &^= flagTailProbe
	if n := min(c.unsent(), c.window(), uint32(c.mss())); n > 0 {
		seq := c.nxt
		sent, ok := c.sendRange(now, seq, n)
		if ok {
			c.nxt += sent
			c.stampSent(now)
			c.sender.sent(now, seq, sent, false)
			c.sender.scoreboard.Probed(c.nxt, true)
		}
		return ok
	}
	seq, n := c.sender.scoreboard.Probe()
	if n == 0 {
		return true
	}
	n = min(n, uint32(c.mss()))
	sent, ok := c.sendRange(now, seq, n)
	if ok {
		c.sender.resent(now, seq, sent)
		c.sender.scoreboard.Probed(seq+sent, false)
		c.countRetransmit(sent)
	}
	return ok
}
