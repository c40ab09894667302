package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// halfOpen is a connection in SYN-RECEIVED that its listener has not got yet. A flood of
// SYNs costs these 64 bytes for each, up to the limit of the table, and leaves the garbage
// collector nothing to scan.
type halfOpen struct {
	tuple      wire.Tuple
	iss, irs   uint32
	tsRecent   uint32
	sent       uint32 // when the first SYN-ACK left, microseconds, low bits
	next       uint32 // link of the table
	peerMSS    uint16
	listenerID uint16
	terms      synTerms
	keyIndex   uint8 // the listener's key that signs
	resent     uint8 // SYN-ACKs after the first
}

func (h *halfOpen) key() *wire.Tuple { return &h.tuple }

func (h *halfOpen) link() *uint32 { return &h.next }

// When SYN-ACKs are sent again (RFC 6298 2.1, RFC 9293 3.8.3): after 1, 2, 4, ... seconds.
const (
	synAckTimeout       = time.Second
	synAckRetries       = 5
	synAckRetriesScarce = 1                      // once the queue is three quarters full: most of a flood never answers, and its records should not live a minute
	unsentSynAckWait    = 100 * time.Millisecond // after the Output had no room for one; not less, since there may be 65 536 of them
	halfOpenTick        = 8 * time.Millisecond
)

// synQueue holds the half-open connections of a Mux with their retransmission timers.
type synQueue struct {
	records[halfOpen, *halfOpen]
	wheel *clock.Wheel    // timers by slot; made anew when the table grows
	armed int             // slots that wheel and links have
	links []halfOpenLinks // by slot
}

// halfOpenLinks join the records of a listener in a list: slot+1, 0 ends. They are not in halfOpen, which fills a
// cache line.
type halfOpenLinks struct{ next, prev uint32 }

// add makes a record for t and returns its slot, noSlot where there is no room. Its first
// timer is armed by sendHalfOpen.
func (h *synQueue) add(now clock.Time, t *wire.Tuple) uint32 {
	slot := h.insert(t)
	if slot == noSlot {
		return noSlot
	}
	if h.armed != len(h.slots) {
		h.rebuildTimers(now)
	}
	h.at(slot).sent = microseconds(now)
	return slot
}

// link makes the record of a slot one of l, so that Close finds those of l and no others: a walk through a table that
// a flood has filled would take milliseconds for each listener.
func (h *synQueue) link(l *Listener, slot uint32) {
	h.at(slot).listenerID = l.id
	h.links[slot] = halfOpenLinks{next: l.firstHalfOpen}
	if l.firstHalfOpen != 0 {
		h.links[l.firstHalfOpen-1].prev = slot + 1
	}
	l.firstHalfOpen = slot + 1
	l.halfOpen++
}

// unlink undoes link.
func (h *synQueue) unlink(l *Listener, slot uint32) {
	x := h.links[slot]
	if x.next != 0 {
		h.links[x.next-1].prev = x.prev
	}
	if x.prev != 0 {
		h.links[x.prev-1].next = x.next
	} else {
		l.firstHalfOpen = x.next
	}
	l.halfOpen--
}

// end takes the record of a slot from its listener, and drops it.
func (h *synQueue) end(l *Listener, slot uint32) {
	h.unlink(l, slot)
	h.drop(slot)
}

// rebuildTimers moves the timers to a wheel as large as the table, and makes as many links. Each record but the
// newest has a timer.
func (h *synQueue) rebuildTimers(now clock.Time) {
	h.wheel, h.armed = clock.NewWheel(len(h.slots), halfOpenTick, now), len(h.slots)
	h.links = append(h.links, make([]halfOpenLinks, len(h.slots)-len(h.links))...)
	for _, n := range h.buckets {
		for ; n != 0; n = h.slots[n-1].next {
			h.wheel.Arm(n-1, h.slots[n-1].timer(now))
		}
	}
}

// drop removes the record and its timer. An empty table that was large returns its memory
// back, and the wheel with it.
func (h *synQueue) drop(slot uint32) {
	h.wheel.Stop(slot)
	h.remove(slot)
	if h.slots == nil {
		h.wheel, h.armed, h.links = nil, 0, nil
	}
}

// scarce reports whether the queue is three quarters full. From then on cookies serve new
// SYNs, so that the rest of the queue remains for SYNs whose options a cookie cannot carry.
func (h *synQueue) scarce() bool { return h.used >= h.limit-h.limit/4 }

// nextTimer returns when a timer expires.
func (h *synQueue) nextTimer() clock.Time {
	if h.wheel == nil || h.used == 0 {
		return clock.Never
	}
	return h.wheel.Next()
}

// sentAt is when the first SYN-ACK left. The record is younger than 2^32 microseconds (71
// minutes), so its low bits do.
func (h *halfOpen) sentAt(now clock.Time) clock.Time {
	return now.Add(-time.Duration(microseconds(now)-h.sent) * time.Microsecond)
}

// due is when the newest SYN-ACK times out: 2^n - 1 timeouts after the first.
func (h *halfOpen) due(now clock.Time) clock.Time {
	return h.sentAt(now).Add(synAckTimeout * (1<<(h.resent+1) - 1))
}

// timer is when the record has something to do: the newest SYN-ACK times out, or is tried
// again because the Output had no room for it.
func (h *halfOpen) timer(now clock.Time) clock.Time {
	if h.terms&termsUnsent != 0 {
		return min(h.due(now), now.Add(unsentSynAckWait))
	}
	return h.due(now)
}

func microseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Microsecond)) }

// halfOpenTimeout sends the SYN-ACK again, or drops the record after the last retry (RFC 9293
// 3.8.3). No RST is sent: a peer that answers later gets one for its ACK.
func (m *Mux) halfOpenTimeout(slot uint32) {
	f := &m.passive
	h := f.synQueue.at(slot)
	l := f.listeners[h.listenerID]
	if h.terms&termsUnsent == 0 || h.due(f.now) <= f.now {
		if h.resent >= synAckRetries || f.synQueue.scarce() && h.resent >= synAckRetriesScarce {
			f.synQueue.end(l, slot)
			m.stats.Failed++
			return
		}
		h.resent++
	}
	if m.sendHalfOpen(f.now, l, slot, f.authOf(l, h)) && h.resent > 0 {
		m.stats.Retransmits++
	}
}

// sendHalfOpen sends the SYN-ACK of a record, arms the timer, and reports whether the Output
// had room. A SYN-ACK that found none was not lost on the path: it leaves soon, and does not
// move the timeouts behind it, so that a record lives no longer.
func (m *Mux) sendHalfOpen(now clock.Time, l *Listener, slot uint32, a *auth.State) (sent bool) {
	q := &m.passive.synQueue
	h := q.at(slot)
	if sent = m.sendSynAck(now, l, h, a, nil); !sent {
		h.terms |= termsUnsent
	} else if h.terms&termsUnsent != 0 {
		h.terms &^= termsUnsent
		if h.resent == 0 {
			h.sent = microseconds(now) // the round trip of the first begins only here
		}
	}
	q.wheel.Arm(slot, h.timer(now))
	return sent
}
