package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// halfOpen is a connection in SYN-RECEIVED that its listener has not got yet. A flood of
// SYNs costs these 64 bytes for each, up to the limit of the table, and gives the garbage
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

// live reports whether the slot is in use: no connection has a tuple of zeros.
func (h *halfOpen) live() bool { return h.tuple != wire.Tuple{} }

// When SYN-ACKs are sent again (RFC 6298 2.1, RFC 9293 3.8.3): after 1, 2, 4, ... seconds.
const (
	synAckTimeout       = time.Second
	synAckRetries       = 5
	synAckRetriesScarce = 1 // once the queue is three quarters full: most of a flood never answers, and its records should not live a minute
	halfOpenTick        = 8 * time.Millisecond
)

// synQueue holds the half-open connections of a Mux with their retransmission timers.
type synQueue struct {
	records[halfOpen, *halfOpen]
	wheel *clock.Wheel // timers by slot; made anew when the table grows
	armed int          // slots that wheel has
}

// add makes a record for t, whose first timer runs from now; nil is no room.
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

// rebuildTimers moves the timers to a wheel as large as the table. Each record but the
// newest has one.
func (h *synQueue) rebuildTimers(now clock.Time) {
	h.wheel, h.armed = clock.NewWheel(len(h.slots), halfOpenTick, now), len(h.slots)
	for _, n := range h.buckets {
		for ; n != 0; n = h.slots[n-1].next {
			h.wheel.Arm(n-1, h.slots[n-1].due(now))
		}
	}
}

// drop removes the record and its timer. An empty table that was large gives its memory
// back, and the wheel with it.
func (h *synQueue) drop(slot uint32) {
	h.wheel.Stop(slot)
	h.remove(slot)
	if h.slots == nil {
		h.wheel, h.armed = nil, 0
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

func microseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Microsecond)) }

// halfOpenTimeout sends the SYN-ACK again, or gives up after the last retry (RFC 9293
// 3.8.3). No RST is sent: a peer that answers later gets one for its ACK.
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
