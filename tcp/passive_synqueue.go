package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// halfOpen is a connection in SYN-RECEIVED that a listener has not got yet. A flood of SYNs costs its
// 64 bytes for each, up to the limit of the table, and nothing for the garbage collector.
type halfOpen struct {
	tuple      wire.Tuple
	iss, irs   uint32
	tsRecent   uint32
	sent       uint32 // when the first SYN-ACK left, microseconds, low bits
	next       uint32
	peerMSS    uint16
	listenerID uint16
	terms      synTerms
	keyIndex   uint8 // which of the listener's keys signs
	resent     uint8 // SYN-ACKs after the first
}

func (h *halfOpen) key() *wire.Tuple { return &h.tuple }

func (h *halfOpen) link() *uint32 { return &h.next }

// live reports whether the slot is in use: an address of zeros connects to nothing.
func (h *halfOpen) live() bool { return h.tuple != wire.Tuple{} }

// How SYN-ACKs are sent again (RFC 6298 2.1, RFC 9293 3.8.3): after 1, 2, 4, ... seconds.
const (
	synAckTimeout       = time.Second
	synAckRetries       = 5
	synAckRetriesScarce = 1 // when room gets scarce
	halfOpenTick        = 8 * time.Millisecond
)

// synQueue are the half-open connections of a Mux with their timers.
type synQueue struct {
	records[halfOpen, *halfOpen]
	wheel *clock.Wheel // timers by slot; made anew as the table grows
	armed int          // slots that wheel has
}

// add makes a record for t whose first timer runs from now; nil says that there is no room.
func (h *synQueue) add(now clock.Time, t *wire.Tuple) *halfOpen {
	slot := h.insert(t)
	if slot == noSlot {
		return nil
	}
	if h.armed != len(h.slots) {
		h.rebuildTimers(now)
	}
	r := h.at(slot)
	r.sent = microseconds(now)
	h.wheel.Arm(slot, now.Add(synAckTimeout))
	return r
}

// rebuildTimers moves the timers to a wheel as large as the table. Each record but the newest has one.
func (h *synQueue) rebuildTimers(now clock.Time) {
	h.wheel, h.armed = clock.NewWheel(len(h.slots), halfOpenTick, now), len(h.slots)
	for _, n := range h.buckets {
		for ; n != 0; n = h.slots[n-1].next {
			h.wheel.Arm(n-1, h.slots[n-1].due(now))
		}
	}
}

// drop removes the record and its timer.
func (h *synQueue) drop(slot uint32) {
	h.wheel.Stop(slot)
	h.remove(slot)
	if h.slots == nil {
		h.wheel, h.armed = nil, 0
	}
}

// scarce reports whether room gets scarce: cookies serve then, and records live shorter.
func (h *synQueue) scarce() bool { return h.used >= h.limit-h.limit/4 }

// nextTimer is when a timer runs out.
func (h *synQueue) nextTimer() clock.Time {
	if h.wheel == nil || h.used == 0 {
		return clock.Never
	}
	return h.wheel.Next()
}

// sentAt is when the first SYN-ACK left; the record is younger than 2^32 microseconds.
func (h *halfOpen) sentAt(now clock.Time) clock.Time {
	return now.Add(-time.Duration(microseconds(now)-h.sent) * time.Microsecond)
}

// due is when the SYN-ACK that was sent last is given up: 2^n - 1 timeouts after the first.
func (h *halfOpen) due(now clock.Time) clock.Time {
	return h.sentAt(now).Add(synAckTimeout * (1<<(h.resent+1) - 1))
}

func microseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Microsecond)) }

// halfOpenTimeout sends a SYN-ACK again, or gives up (RFC 9293 3.8.3).
func (m *Mux) halfOpenTimeout(slot uint32) {
	f := &m.passive
	h := f.synQueue.at(slot)
	l := f.listeners[h.listenerID]
	if h.resent >= synAckRetries || f.synQueue.scarce() && h.resent >= synAckRetriesScarce {
		l.halfOpen--
		f.synQueue.drop(slot)
		m.stats.Failed++
		return
	}
	h.resent++
	f.synQueue.wheel.Arm(slot, h.due(f.now))
	m.stats.Retransmits++
	m.sendSynAck(f.now, l, h, f.authOf(l, h), nil)
}
