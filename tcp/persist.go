package tcp

import (
	"slices"
	"time"

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

// A peer can make a connection hold memory for nothing: it asks for data and never opens
// its window, or leaves a hole before what it sends. A window may stay closed for ever (RFC
// 9293 3.8.6.1), but not at the cost of all others (RFC 6429 4). So while the budget is
// nearly used up, the Mux checks every second which connections do not move, and takes
// their memory back.
const (
	stalledInterval = time.Second // between checks
	stalledDrain    = 60          // checks within which a queue at its pace would be empty; slower ones count as stalled
)

// stalledPeers is the result of the last check.
type stalledPeers struct {
	next  clock.Time        // check
	seen  map[uint32]uint32 // SND.UNA by Conn.id of connections that had data queued
	still []uint32          // those that did not move, in this check
}

// checkStalled makes the check where it is due, and returns when it must be called next. It
// resets the stalled connections with the longest queues, until half the budget is free.
func (m *Mux) checkStalled(now clock.Time) clock.Time {
	h := &m.passive.stalled
	if !m.buffers.Critical() {
		h.seen = nil
		return clock.Never
	}
	if now < h.next {
		return h.next
	}
	h.next = now.Add(stalledInterval)
	m.findStalled()
	slices.SortFunc(h.still, func(a, b uint32) int { return m.conn(b).snd.Len() - m.conn(a).snd.Len() })
	for _, id := range h.still {
		if m.buffers.Used() <= m.buffers.Budget/2 {
			break
		}
		c := m.conn(id)
		m.stats.StalledPeers++
		c.sendReset()
		c.enterClosed(outOfMemory)
	}
	return h.next
}

// findStalled lists the connections whose queue has hardly moved since the last check. It
// also drops data received out of order, which the sender keeps until it is acknowledged
// (RFC 2018 8).
func (m *Mux) findStalled() {
	h := &m.passive.stalled
	seen := h.seen
	h.seen, h.still = make(map[uint32]uint32, len(seen)), h.still[:0]
	for id := range m.slab.used {
		c := m.conn(id)
		if c.ended() || c.active == nil {
			continue
		}
		if c.rcv != nil && len(c.rcv.OutOfOrder()) > 0 {
			m.stats.Pruned += uint64(c.rcv.Prune())
			c.freeRing()
		}
		if c.snd == nil || c.snd.Len() == 0 {
			continue
		}
		h.seen[id] = c.una
		if una, ok := seen[id]; ok && c.una-una < uint32(c.snd.Len()/stalledDrain)+1 {
			h.still = append(h.still, id)
		}
	}
}
