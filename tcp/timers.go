package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/wire"
)

// A connection has many deadlines and one entry in the timer wheel, armed for the earliest.
// An entry that fires before any deadline, because that was moved, is armed anew. So moving
// a deadline, which every ACK does, costs nothing.

const (
	delayedAck         = 40 * time.Millisecond  // RFC 9293 3.8.6.3: below 0.5 s
	maxProbeInterval   = 60 * time.Second       // between window probes
	retransmitLimit    = 15 * time.Minute       // R2 of RFC 9293 3.8.3: at least 100 s
	synRetransmitLimit = 180 * time.Second      // R2 for a SYN: at least 3 minutes
	corkTime           = 200 * time.Millisecond // that a partial segment is held back for more
)

// arm makes the timer fire at t at the latest.
func (c *Conn) arm(t clock.Time) {
	if t < c.armedAt {
		c.armedAt = t
		c.m.wheel.Arm(c.id, t)
	}
}

// nextTimer returns the earliest deadline.
func (c *Conn) nextTimer() clock.Time {
	if c.active == nil {
		return c.keepAliveAt()
	}
	t := min(c.ackAt, c.probeAt, c.sender.timer())
	if c.outstanding() || c.windowProbing() {
		t = min(t, c.timeoutAt())
	}
	if c.opt.KeepAlive.Idle != 0 {
		t = min(t, c.keepAliveAt())
	}
	if c.rare != nil {
		t = min(t, c.rare.corkAt)
	}
	if c.has(flagDeferred) {
		t = min(t, c.rare.deferUntil)
	}
	if c.idle() {
		t = min(t, c.compactAt())
	}
	return t
}

// expire is called by the wheel. A compacted connection has only keepalive to look after,
// and stays compacted while that is not due.
func (m *Mux) expire(id uint32) {
	c := m.conn(id)
	c.armedAt = never
	if c.active == nil {
		if t := c.keepAliveAt(); t > m.now {
			c.arm(t)
			return
		}
		c.restore()
	}
	if !c.ended() {
		c.onTimer(m.now)
	}
	m.markDirty(c)
}

// onTimer handles every deadline that has passed. Giving up comes first: nothing else
// matters then.
func (c *Conn) onTimer(now clock.Time) {
	if c.timeoutAt() <= now {
		c.timeOutConn()
		return
	}
	if c.has(flagDeferred) && c.rare.deferUntil <= now {
		c.m.passive.acceptDeferred(c)
	}
	if c.ackAt <= now {
		c.ackAt = never
		c.flags |= flagAckNow
	}
	if c.sender.timer() <= now {
		c.retransmission(c.sender.onTimer(now))
	}
	if c.probeAt <= now {
		c.onProbeTimer(now)
	}
	if c.keepAliveAt() <= now {
		c.keepAlive(now)
	}
}

// retransmission handles what the timer of the loss detector reports.
func (c *Conn) retransmission(ev loss.Events) {
	if ev&loss.Probe != 0 {
		c.flags |= flagTailProbe
		c.m.stats.Probes++
	}
	if ev&(loss.Timeout|loss.Backoff) != 0 {
		c.m.stats.Timeouts++
		c.counts.noteTimeout(c.m.now)
		c.quickACKs = initialQuickACKs
		c.detectBlackHole()
	}
}

// timeoutAt is when the connection is given up: nothing that was sent was acknowledged, or
// a closed window was not acknowledged, for too long (RFC 9293 3.8.3, RFC 5482). A peer
// that keeps acknowledging probes of a zero window may do so for ever (RFC 9293 3.8.6.1),
// unless a user timeout is set or no application is left that waits.
func (c *Conn) timeoutAt() clock.Time {
	t := never
	limit := c.opt.UserTimeout
	switch {
	case c.outstanding():
		if limit == 0 {
			limit = retransmitLimit
			if c.state == StateSynSent || c.state == StateSynReceived {
				limit = synRetransmitLimit
				if n := c.opt.SYNRetries; n != 0 && c.state == StateSynSent {
					limit = timeOfSYNs(n)
				}
			}
		}
		t = c.progressAt.Add(limit)
	case c.windowProbing():
		t = c.aliveAt.Add(retransmitLimit)
		if limit != 0 {
			t = min(t, c.progressAt.Add(limit))
		}
		if c.has(flagOrphaned) { // no application is left that would wait for the window to open
			t = min(t, c.progressAt.Add(orphanTime))
		}
	}
	return t
}

// timeOfSYNs is the time until the timeout of a SYN that was sent again n times.
func timeOfSYNs(n int) time.Duration {
	sum, each := time.Duration(0), loss.InitialRTO
	for range n + 1 {
		sum += each
		each = min(2*each, loss.MaxRTO)
	}
	return sum
}

// timeOutConn ends the connection. An ICMP error that came before explains more than
// "timed out" (RFC 1122 4.2.3.9).
func (c *Conn) timeOutConn() {
	if c.state == StateSynSent || c.state == StateSynReceived {
		c.m.stats.Failed++
	} else {
		c.sendReset()
	}
	why := timedOut
	if c.reason != closedInOrder {
		why = c.reason // of an ICMP error
	}
	c.enterClosed(why)
}

// Keepalive without an interval or a count of its own. RFC 9293 3.8.4 asks for two hours
// before the first probe unless the application chooses: without Options.KeepAlive.Idle
// there is none at all.
const (
	keepAliveInterval = 75 * time.Second
	keepAliveCount    = 9
)

// keepAliveAt is when the next keepalive probe is due: only while nothing is in flight,
// since that has its own timeout.
func (c *Conn) keepAliveAt() clock.Time {
	k := &c.opt.KeepAlive
	if k.Idle == 0 || c.state < StateEstablished || c.ended() || c.outstanding() || c.active != nil && c.probeAt != never {
		return never
	}
	interval := k.Interval
	if interval == 0 {
		interval = keepAliveInterval
	}
	return c.aliveAt.Add(k.Idle + time.Duration(c.unansweredProbes)*interval)
}

// keepAlive sends a probe with the last acknowledged number, which the peer must answer as
// unacceptable (RFC 9293 3.8.4).
func (c *Conn) keepAlive(now clock.Time) {
	k := &c.opt.KeepAlive
	count := k.Count
	if count == 0 {
		count = keepAliveCount
	}
	unheard := c.opt.UserTimeout != 0 && c.unansweredProbes > 0 && now.Sub(c.aliveAt) >= c.opt.UserTimeout
	if int(c.unansweredProbes) >= count || unheard {
		c.timeOutConn()
		return
	}
	c.unansweredProbes++
	c.m.stats.KeepAlive++
	c.m.out.Payload = [2][]byte{}
	c.m.out.Header.Urgent = 0
	c.transmit(now, c.nxt-1, wire.FlagACK, 0, false)
}

// windowProbing reports whether a window of the peer is being probed. In FIN-WAIT-2 the
// same deadline ends an orphan.
func (c *Conn) windowProbing() bool { return c.probeAt != never && c.state != StateFinWait2 }

// startWindowProbes begins to probe a window that has no room for what is to be sent (RFC
// 9293 3.8.6.1). Where something is in flight its ACK will report the window. Without
// probes a lost window update would stop the connection for ever.
func (c *Conn) startWindowProbes(now clock.Time) {
	if c.probeAt != never || c.outstanding() {
		return
	}
	c.unansweredProbes = 0
	c.progressAt, c.aliveAt = now, now
	c.probeAt = now.Add(c.sender.rto())
}

// onProbeTimer sends a probe of the window, with exponential backoff, or ends an orphan in
// FIN-WAIT-2.
func (c *Conn) onProbeTimer(now clock.Time) {
	if c.state == StateFinWait2 {
		c.sendReset()
		c.enterClosed(timedOut)
		return
	}
	if c.outstanding() || c.unsent() == 0 && (!c.has(flagFIN) || c.finSent()) {
		c.probeAt = never
		return
	}
	c.unansweredProbes = min(c.unansweredProbes+1, 16)
	c.probeAt = now.Add(min(c.sender.rto()<<c.unansweredProbes, maxProbeInterval))
	c.probeWindow(now)
}

// probeWindow sends what the window has room for though it is little (RFC 9293 3.8.6.2.1,
// the override timeout), or the byte behind a closed window.
func (c *Conn) probeWindow(now clock.Time) {
	c.m.stats.ZeroWindowProbes++
	// The window has room for less than silly window avoidance sends: after the override
	// timeout it is sent anyway.
	if n := min(c.unsent(), c.window(), uint32(c.mss())); n > 0 {
		seq := c.nxt
		if sent, ok := c.sendRange(now, seq, n); ok {
			c.nxt += sent
			c.flags &^= flagWindowProbe
			c.probeAt = never
			c.sender.sent(now, seq, sent, false)
		}
		return
	}
	if _, ok := c.sendRange(now, c.nxt, 1); ok {
		c.flags |= flagWindowProbe
	}
}

// windowProbeAccepted handles the ACK of a window probe's byte: it counts as sent, but as a
// retransmission, since which of the probes was acknowledged is not known (RFC 6298 3).
func (c *Conn) windowProbeAccepted(now clock.Time) {
	c.flags &^= flagWindowProbe
	c.sender.sent(now, c.nxt, 1, false)
	c.sender.resent(now, c.nxt, 1)
	c.nxt++
}
