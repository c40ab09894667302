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
func (h *halfOpen) link() *uint32    { return &h.next }

// live reports whether the slot is in use: an address of zeros connects to nothing.
func (h *halfOpen) live() bool { return h.tuple != wire.Tuple{} }

// synTerms is what the SYN offered and we took:
//
//	 15       12  11  10  9   8 7   6  5   4  3       0
//	+-----------+----+---+-----+-----+----+----+-------+
//	|           | FO | A | SYN | ECN | TS | SA | scale |
//	+-----------+----+---+-----+-----+----+----+-------+
//
// scale is of the peer's windows, 15 is none; SA is SACK, TS timestamps; ECN is an ecnAgreed; SYN is the
// code point that the SYN came with; A says that the SYN came again; FO that it asked for a cookie of Fast Open.
type synTerms uint16

const (
	termsNoScale     synTerms = 15
	termsSACK        synTerms = 1 << 4
	termsTimestamps  synTerms = 1 << 5
	termsSYNRepeated synTerms = 1 << 10
	termsFastOpen    synTerms = 1 << 11
	termsECNShift             = 6
	termsSYNShift             = 8
)

func (t synTerms) scaling() bool    { return t&15 != termsNoScale }
func (t synTerms) scale() uint8     { return uint8(t & 15) }
func (t synTerms) sack() bool       { return t&termsSACK != 0 }
func (t synTerms) timestamps() bool { return t&termsTimestamps != 0 }
func (t synTerms) withECN(e ecnAgreed) synTerms {
	return t&^(3<<termsECNShift) | synTerms(e)<<termsECNShift
}

func (t synTerms) ecn() ecnAgreed   { return ecnAgreed(t >> termsECNShift & 3) }
func (t synTerms) synECN() wire.ECN { return wire.ECN(t >> termsSYNShift & 3) }

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

// memory is what the table takes, bytes.
func (h *synQueue) memory() int64 { return int64(len(h.slots))*(64+16) + int64(len(h.buckets))*4 }

// sentAt is when the first SYN-ACK left; the record is younger than 2^32 microseconds.
func (h *halfOpen) sentAt(now clock.Time) clock.Time {
	return now.Add(-time.Duration(microseconds(now)-h.sent) * time.Microsecond)
}

// due is when the SYN-ACK that was sent last is given up: 2^n - 1 timeouts after the first.
func (h *halfOpen) due(now clock.Time) clock.Time {
	return h.sentAt(now).Add(synAckTimeout * (1<<(h.resent+1) - 1))
}

func microseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Microsecond)) }
