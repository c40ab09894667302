package tcp

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
)

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
	if !m.buffers.critical() {
		h.seen = nil
		return clock.Never
	}
	if now < h.next {
		return h.next
	}
	h.next = now.Add(stalledInterval)
	m.findStalled()
	slices.SortFunc(h.still, func(a, b uint32) int { return m.conn(b).snd.len() - m.conn(a).snd.len() })
	for _, id := range h.still {
		if m.buffers.used <= m.buffers.budget/2 {
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
		if c.rcv != nil && len(c.rcv.ooo) > 0 {
			m.stats.Pruned += uint64(c.rcv.prune())
			c.freeRing()
		}
		if c.snd == nil || c.snd.len() == 0 {
			continue
		}
		h.seen[id] = c.una
		if una, ok := seen[id]; ok && c.una-una < uint32(c.snd.len()/stalledDrain)+1 {
			h.still = append(h.still, id)
		}
	}
}
