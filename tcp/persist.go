package tcp

import (
	"github.com/millrace/millrace/clock"
)

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
