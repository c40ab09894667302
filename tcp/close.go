package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// CloseWrite sends a FIN after all that was written. Reading goes on.
func (c *Conn) CloseWrite(now clock.Time) {
	if c.has(flagFIN) {
		return
	}
	switch c.state {
	case StateSynSent, StateSynReceived: // the FIN follows the handshake
	case StateEstablished:
		c.state = StateFinWait1
	case StateCloseWait:
		c.state = StateLastAck
	default:
		return
	}
	c.flags |= flagFIN
	c.flags &^= flagMore | flagWantWrite
	c.m.markDirty(c)
}

// CloseRead throws away what waits to be read and what comes later.
func (c *Conn) CloseRead(now clock.Time) {
	c.ensureActive()
	c.flags |= flagReadShutdown
	c.dropReceived()
	c.windowOpened()
}

// dropReceived frees what was received and not read.
func (c *Conn) dropReceived() {
	if r := c.rcv; r != nil {
		c.rcv = nil
		c.m.putRing(r)
	}
}

// Close ends both directions in order and gives the Conn back. What was written is still sent, by the
// Mux alone; unread data makes it a reset (RFC 9293 3.6, MAY-1), as does data that arrives later.
func (c *Conn) Close(now clock.Time) {
	c.ensureActive()
	unread := c.Readable() > 0
	switch {
	case c.state == StateClosed, c.state == StateTimeWait:
	case c.state == StateSynSent:
		c.enterClosed(aborted)
	case unread:
		c.sendReset()
		c.enterClosed(aborted)
	default:
		c.CloseWrite(now)
		if c.state == StateFinWait2 {
			c.probeAt = now.Add(orphanTime)
		}
	}
	c.orphan()
}

// Abort drops all that is queued, sends a RST and gives the Conn back.
func (c *Conn) Abort(now clock.Time) {
	c.ensureActive()
	switch c.state {
	case StateClosed, StateTimeWait:
	case StateSynSent:
		c.enterClosed(aborted) // RFC 9293 3.10.5: nobody knows of it
	default:
		c.sendReset()
		c.enterClosed(aborted)
	}
	c.orphan()
}

// orphan takes the connection back from the application.
func (c *Conn) orphan() {
	c.owner, c.events = nil, 0
	c.flags |= flagOrphaned
	c.dropReceived()
	c.m.markDirty(c)
}

// enterClosed ends the connection at once, and keeps what can still be read.
func (c *Conn) enterClosed(why reason) {
	if c.state == StateClosed {
		return
	}
	c.state, c.reason = StateClosed, why
	c.detach()
	c.flags &^= flagAckNow
	c.reportClosed()
}

// detach takes the connection out of the table and frees what it needed to send.
func (c *Conn) detach() {
	m := c.m
	if c.has(flagTable) {
		c.flags &^= flagTable
		m.table.remove(m.table.hashTuple(&c.tuple), c.id)
	}
	if q := c.snd; q != nil {
		c.snd = nil
		m.putQueue(q)
	}
	c.sender.release()
	m.passive.untrackFastOpen(c)
	c.ackAt, c.probeAt = never, never
	if c.rcv != nil {
		c.rcv.Prune()
		c.freeRing()
	}
}

// reportClosed tells the owner that nothing more will happen.
func (c *Conn) reportClosed() {
	c.flags |= flagClosedReported
	c.report(Closed | Readable | Writable)
}

// enterTimeWait leaves a record in the connection's place that answers what comes late (RFC 9293 3.6.1).
// What was received can still be read.
func (c *Conn) enterTimeWait(now clock.Time) {
	c.state = StateTimeWait
	c.m.timeWait(now, c)
	c.detach()
	c.reportClosed()
}

// sendReset has a RST leave with the next Poll.
func (c *Conn) sendReset() {
	c.flags |= flagReset
	c.m.markDirty(c)
}

// resetPeer sends the RST (RFC 9293 3.10.5).
func (c *Conn) resetPeer(now clock.Time) bool {
	c.m.out.Payload = [2][]byte{}
	c.m.out.Header.Urgent = 0
	if !c.transmit(now, c.nxt, wire.FlagRST|wire.FlagACK, 0, false) {
		return false
	}
	c.flags &^= flagReset
	c.m.stats.ResetsOut++
	return true
}
