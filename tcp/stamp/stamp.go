// Package stamp keeps when the bytes of a connection were sent, acknowledged and received, for programs
// that ask for it (SO_TIMESTAMPING of Linux).
//
// A Queue belongs to one connection. Package tcp reports writes, transmissions and ACKs to it, and it
// has an Event for each write once its last byte got that far. From arrivals it knows when a byte came.
// Events and arrivals that the program does not take are bounded, and so is their memory.
package stamp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// Set selects the times to keep.
type Set uint8

// The bits of Set.
const (
	Sent     Set = 1 << iota // when the last byte of a write was given to the network layer (SOF_TIMESTAMPING_TX_SCHED)
	Acked                    // when it was acknowledged (SOF_TIMESTAMPING_TX_ACK)
	Received                 // when what a read returned arrived (SOF_TIMESTAMPING_RX_SOFTWARE)
)

// Event reports that the last byte of a write was sent or acknowledged, by its Kind.
type Event struct {
	Kind Set
	ID   uint32 // offset of that byte, from the first write that was to be stamped (SOF_TIMESTAMPING_OPT_ID)
	At   clock.Time
}

// Bounds of a Queue. What exceeds them is not stamped.
const (
	maxWrites   = 1024
	maxEvents   = 256
	maxArrivals = 64
)

// write is a write whose last byte is not acknowledged.
type write struct {
	end  uint32 // sequence number behind its last byte
	want Set
}

// arrival is that the bytes before end, which earlier arrivals had not, came at a time.
type arrival struct {
	end uint32
	at  clock.Time
}

// Queue keeps the times of one connection.
type Queue struct {
	base     uint32 // sequence number of the byte with the offset 0
	writes   []write
	sent     int // how many of writes were sent
	events   []Event
	arrivals []arrival
}

// New returns a Queue for a connection whose next byte to be written has a sequence number.
func New(next uint32) *Queue { return &Queue{base: next} }

// Written notes a write that ends before end.
func (q *Queue) Written(end uint32, want Set) {
	if want&(Sent|Acked) != 0 && len(q.writes) < maxWrites {
		q.writes = append(q.writes, write{end, want})
	}
}

// Transmitted notes that all before next was sent, and reports whether that made events.
func (q *Queue) Transmitted(now clock.Time, next uint32) (some bool) {
	for q.sent < len(q.writes) && seqnum.AtOrBefore(q.writes[q.sent].end, next) {
		some = q.add(Sent, &q.writes[q.sent], now) || some
		q.sent++
	}
	return some
}

// Acknowledged notes that all before una was acknowledged, and reports whether that made events.
func (q *Queue) Acknowledged(now clock.Time, una uint32) (some bool) {
	n := 0
	for n < len(q.writes) && seqnum.AtOrBefore(q.writes[n].end, una) {
		some = q.add(Acked, &q.writes[n], now) || some
		n++
	}
	q.writes = q.writes[:copy(q.writes, q.writes[n:])]
	q.sent -= min(n, q.sent)
	return some
}

// add makes an event of w if it is wanted and there is room.
func (q *Queue) add(kind Set, w *write, now clock.Time) bool {
	if w.want&kind == 0 || len(q.events) == maxEvents {
		return false
	}
	q.events = append(q.events, Event{kind, w.end - 1 - q.base, now})
	return true
}

// Len returns how many events wait.
func (q *Queue) Len() int { return len(q.events) }

// Next takes the oldest event.
func (q *Queue) Next() (e Event, ok bool) {
	if len(q.events) == 0 {
		return Event{}, false
	}
	e = q.events[0]
	q.events = q.events[:copy(q.events, q.events[1:])]
	return e, true
}

// Arrived notes that bytes before end have arrived in order. With too many arrivals that were not read, the
// newest has the time of the last.
func (q *Queue) Arrived(now clock.Time, end uint32) {
	n := len(q.arrivals)
	if n > 0 && (q.arrivals[n-1].at == now || n == maxArrivals) {
		q.arrivals[n-1] = arrival{end, now}
		return
	}
	q.arrivals = append(q.arrivals, arrival{end, now})
}

// ReceivedAt returns when the byte before next, which was read last, arrived, and forgets the arrivals
// before it. False is that this is not known.
func (q *Queue) ReceivedAt(next uint32) (clock.Time, bool) {
	n := 0
	for n < len(q.arrivals) && seqnum.Before(q.arrivals[n].end, next) {
		n++
	}
	q.arrivals = q.arrivals[:copy(q.arrivals, q.arrivals[n:])]
	if len(q.arrivals) == 0 {
		return 0, false
	}
	return q.arrivals[0].at, true
}
