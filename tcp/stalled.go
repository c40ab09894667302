package tcp

import (
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
)

// A peer can make a connection hold memory for nothing: it asks for data and never opens
// its window, or leaves a hole before what it sends. A window may stay closed for ever (RFC
// 9293 3.8.6.1), but not at the cost of all others (RFC 6429 4). So while the budget is
// nearly used up, the Mux checks every second which connections do not move, and takes
// their memory back.
const (
	stalledInterval = time.Second      // between checks
	stalledSilence  = 15 * time.Second // for which data may be unacknowledged: six timeouts of 200 ms with backoff
	stalledDrain    = 60               // checks within which a queue at its pace would be empty; slower ones count as stalled
)

// stalledPeers is the result of the last check.
type stalledPeers struct {
	next  clock.Time        // check
	seen  map[uint32]uint32 // SND.UNA by Conn.id of connections that had data queued
	still []uint32          // those that did not move, in this check
}

// checkStalled makes the check where it is due, and returns when it must be called next. It
// resets the stalled connections, orphans first and then those with the longest queues,
// until half the budget is free.
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
	m.findStalled(now)
	slices.SortFunc(h.still, func(a, b uint32) int { return m.conn(b).stalledRank() - m.conn(a).stalledRank() })
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
func (m *Mux) findStalled(now clock.Time) {
	h := &m.passive.stalled
	seen := h.seen
	h.seen, h.still = make(map[uint32]uint32, len(seen)), h.still[:0]
	for id := range m.slab.used {
		c := m.conn(id)
		if c.ended() || c.active == nil {
			continue
		}
		if c.rcv != nil && len(c.rcv.OutOfOrder()) > 0 {
			c.prune()
		}
		if c.snd == nil || c.snd.Len() == 0 {
			continue
		}
		h.seen[id] = c.una
		if una, ok := seen[id]; ok && c.una-una < uint32(c.snd.Len()/stalledDrain)+1 && !c.waitsForACK(now, una) {
			h.still = append(h.still, id)
		}
	}
}

// waitsForACK reports whether the connection stands still since una because what it sent, or
// the ACK, was lost, or refused by a peer that is short of memory itself. That passes, while
// a peer that keeps its window closed chooses to. No application waits for an orphan.
func (c *Conn) waitsForACK(now clock.Time, una uint32) bool {
	return c.outstanding() && c.una == una && !c.has(flagOrphaned) && now.Sub(c.progressAt) < stalledSilence
}

// stalledRank orders stalled connections, the first to be reset highest. Only its peer misses the
// data of an orphan.
func (c *Conn) stalledRank() int {
	n := c.snd.Len()
	if c.has(flagOrphaned) {
		n += math.MaxInt32
	}
	return n
}
