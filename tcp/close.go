package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// CloseWrite sends a FIN after all that was written (RFC 9293 3.10.4). Reading goes on.
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
	c.stopWaiting()
	c.flags |= flagFIN
	c.flags &^= flagMore | flagWantWrite
	c.m.markDirty(c)
}

// CloseRead discards what waits to be read and what arrives later. The peer is not notified:
// TCP has no way to.
func (c *Conn) CloseRead(now clock.Time) {
	c.ensureActive()
	c.flags |= flagReadShutdown
	unread := c.Readable() > 0
	c.dropReceived()
	c.promise()
	if unread {
		c.windowOpened()
	}
}

// dropReceived frees what was received and not read.
func (c *Conn) dropReceived() {
	if r := c.rcv; r != nil {
		c.rcv = nil
		c.m.putRing(r)
	}
}

// Close ends both directions in order and returns the Conn to the Mux, which still sends
// what was written. Unread data makes it a reset (RFC 9293 3.6, MAY-1; RFC 2525 2.17), as
// does data that arrives later: the peer must know that it was lost.
func (c *Conn) Close(now clock.Time) {
	c.ensureActive()
	unread := c.Readable() > 0
	switch {
	case c.state == StateClosed, c.state == StateTimeWait:
	// In SYN-SENT the peer has no connection that a FIN or RST would end (RFC 9293 3.10.4). Data for
	// the SYN was written as to an open connection, and arrives as on one.
	case c.state == StateSynSent && (!c.has(flagDataInSYN) || c.snd == nil):
		c.enterClosed(aborted)
	case unread:
		c.sendReset()
		c.enterClosed(aborted)
	default:
		c.CloseWrite(now)
		if c.state == StateFinWait2 {
			c.waitAsOrphan(now)
		}
	}
	c.orphan()
}

// Abort drops all that is queued, sends a RST and returns the Conn to the Mux (RFC 9293
// 3.10.5).
func (c *Conn) Abort(now clock.Time) {
	c.ensureActive()
	switch c.state {
	case StateClosed, StateTimeWait:
	case StateSynSent:
		c.enterClosed(aborted) // RFC 9293 3.10.5: no peer knows of it
	default:
		c.sendReset()
		c.enterClosed(aborted)
	}
	c.orphan()
}

// ResetAll ends all connections with a RST, also those that the application has closed: their
// peers must not take what did not arrive for the end.
func (m *Mux) ResetAll() {
	for id := range m.slab.used {
		c := m.conn(id)
		if c.ended() {
			continue
		}
		c.ensureActive()
		if c.state != StateSynSent {
			c.sendReset()
		}
		c.enterClosed(aborted)
	}
}

// orphan takes the connection back from the application: no events, nothing to read.
func (c *Conn) orphan() {
	c.owner, c.events = nil, 0
	c.flags |= flagOrphaned
	if c.m.reserved.c == c {
		c.m.unreserve()
	}
	c.dropReceived()
	if c.active != nil {
		c.promise()
	}
	c.m.markDirty(c)
}

// enterClosed ends the connection at once. What was received in order can still be read.
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
		if !c.has(flagPassive) {
			m.active.remove(c.tuple.LocalPort)
		}
		m.table.remove(m.table.hashTuple(&c.tuple), c.id)
		m.passive.searches.Release(&c.tuple)
	}
	c.stopWaiting()
	if m.reserved.c == c {
		m.unreserve()
	}
	if q := c.snd; q != nil {
		c.snd = nil
		m.putQueue(q)
	}
	c.sender.release()
	m.passive.untrackFastOpen(c)
	if c.has(flagDeferred) {
		m.passive.dropDeferred(c)
	}
	c.ackAt, c.probeAt = never, never
	c.unpromise()
	// Data out of order can never become readable now.
	if c.rcv != nil {
		c.rcv.Prune(&m.buffers)
		c.freeRing()
	}
}

// reportClosed reports that nothing more will happen. Readable and Writable go with it, so
// that an owner that waits for either looks at Err.
func (c *Conn) reportClosed() {
	c.flags |= flagClosedReported
	c.report(Closed | Readable | Writable)
}

// enterTimeWait leaves a record in the connection's place, which answers what arrives late
// (RFC 9293 3.6.1). What was received can still be read.
func (c *Conn) enterTimeWait(now clock.Time) {
	c.state = StateTimeWait
	c.m.timeWait(now, c)
	c.detach()
	c.reportClosed()
}

// sendReset makes a RST leave with the next Poll.
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
