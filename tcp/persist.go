package tcp

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
)

// windowProbing reports whether probes of the peer's window run.
func (c *Conn) windowProbing() bool { return c.probeAt != never && c.state != StateFinWait2 }

// startWindowProbes begins to probe the peer's window, which has no room for what is to be sent, unless something
// is in flight whose ACK will tell (RFC 9293 3.8.6.1).
func (c *Conn) startWindowProbes(now clock.Time) {
	if c.probeAt != never || c.outstanding() {
		return
	}
	c.unansweredProbes = 0
	c.progressAt, c.aliveAt = now, now
	c.probeAt = now.Add(c.sender.rto())
}

// onProbeTimer sends a probe of the window, or ends a FIN-WAIT-2 that nobody would read.
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

// probeWindow sends what the window has room for though it is little (RFC 9293 3.8.6.2.1, the override
// timeout), or the byte behind a closed window.
func (c *Conn) probeWindow(now clock.Time) {
	c.m.stats.ZeroWindowProbes++
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

// windowProbeAccepted notes that the peer has taken the byte of a window probe: it counts as sent, though when
// is not known.
func (c *Conn) windowProbeAccepted(now clock.Time) {
	c.flags &^= flagWindowProbe
	c.sender.sent(now, c.nxt, 1, false)
	c.sender.resent(now, c.nxt, 1)
	c.nxt++
}

// Memory is short when peers make others wait for it: such as take data and never open their window
// again, or leave a hole before what they send. While the budget is nearly spent the Mux looks every
// second for those that do not move, and takes the memory back. A window that stays closed is no
// reason else: the peer may keep it so for ever (RFC 9293 3.8.6.1), but not at the cost of all others (RFC 6429 4).
const (
	stalledInterval = time.Second
	stalledDrain    = 60 // looks in which what is queued would have to leave
)

// stalledPeers is what the last look has found.
type stalledPeers struct {
	next  clock.Time        // look
	seen  map[uint32]uint32 // SND.UNA by Conn.id, of those that had data queued
	still []uint32          // those that did not move, in the present look
}

// checkStalled looks, where it is time, and returns when it wants to be called next.
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

// findStalled lists connections whose queue did not move since the last look, and drops what came out of
// order: its sender keeps it until it is acknowledged (RFC 2018 8).
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
