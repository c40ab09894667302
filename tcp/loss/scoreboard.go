// Package loss keeps what a TCP sender has in flight: what was sent and when, what has
// arrived, what is lost and to be sent again, and when to stop waiting.
//
// A Scoreboard joins the retransmission timer (RFC 6298), the SACK scoreboard (RFC 6675;
// NewReno's duplicate ACKs, RFC 6582, where the peer has no SACK), loss by time and tail
// loss probes (RACK-TLP, RFC 8985), proportional rate reduction (RFC 9937, which replaces
// RFC 6937), the undoing of what was no loss (DSACK, RFC 3708; timestamps, RFC 3522 and
// 4015; F-RTO, RFC 5682) and delivery rate samples for congestion control (package tcp/cc).
//
// It is pure, and knows no segments: sequence ranges go in as they are sent (Sent, Resent),
// ACKs come back (Ack), and Lost, Probe and Timer return what to do. Sequence numbers here
// cover SYN and FIN.
package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// Options are the properties of the connection that a Scoreboard depends on.
type Options struct {
	MSS  uint32        // payload of a full segment, bytes, above 0
	SACK bool          // the peer sends SACK
	Tick time.Duration // of the timestamps in Ack.Echo; 0 where there are none
}

// Scoreboard is the retransmission state of one connection. The zero value becomes usable
// by Init.
//
// What a connection has to remember while nothing is in flight is here; the rest is in its
// flight, which returns to the Pool once all is acknowledged. So an idle connection costs
// little.
//
// Invariant: the records of the flight cover [una, next) without gaps or overlaps.
type Scoreboard struct {
	pool            *Pool
	f               *flight // nil: nothing in flight
	una, next       uint32  // SND.UNA, SND.NXT
	opts            Options
	rtt             estimator
	delivered, lost uint64
	reorder         reorder
	probe           probe

	// recover of RFC 6582 3.2, one above: SND.NXT when the last recovery began; once that is
	// passed it stays just below SND.UNA. It outlives the flight.
	recover uint32
}

// flight is the state that lives as long as something is in flight.
type flight struct {
	head, tail     uint32 // records in order of sequence
	oldest, newest uint32 // outstanding records in order of transmission, which is the order in which RACK finds losses
	cursor         uint32 // where SACK was last applied: the next search starts there
	firstLost      uint32 // no record before it is missing; 0: none is
	records        int    // at most maxRecords, and what retransmissions split
	index          *index // nil: there are few records

	pipe, missing, sacked uint32 // bytes of the records in each state; their sum is next - una

	rate    rate
	rack    rack
	episode episode
	prr     prr
	reno    reno

	rtoTimer, ptoTimer, reoTimer clock.Time // deadlines: retransmission, tail loss probe, reordering; 0: not set
}

// Init makes the scoreboard ready to send from sequence number seq on, with nothing in
// flight and no round-trip time known.
func (b *Scoreboard) Init(p *Pool, seq uint32, o Options) {
	*b = Scoreboard{pool: p, una: seq, next: seq, opts: o, recover: seq - 1}
	b.reorder.mult = 1
}

// SetOptions takes what the handshake, or path MTU discovery, has changed.
func (b *Scoreboard) SetOptions(o Options) { b.opts = o }

// SetMSS sets the segment size of what is sent from now on, without other options: for a
// segment that is longer than the others.
func (b *Scoreboard) SetMSS(n uint32) { b.opts.MSS = n }

// Release frees all memory when the connection ends. What was in flight is forgotten.
func (b *Scoreboard) Release() {
	if b.f == nil {
		return
	}
	for i := b.f.head; i != 0; {
		next := b.record(i).next
		b.pool.put(i)
		i = next
	}
	b.freeFlight()
}

// freeFlight returns the flight, which has no records any more, to the pool.
func (b *Scoreboard) freeFlight() {
	b.pool.putFlight(b.f)
	b.f = nil
}

func (b *Scoreboard) record(i uint32) *record {
	if counting {
		b.pool.touched++
	}
	return &b.pool.records[i]
}

// MeasuredRTT takes a round-trip time that the scoreboard has not measured itself, such as
// a handshake's.
func (b *Scoreboard) MeasuredRTT(now clock.Time, rtt time.Duration) {
	b.rtt.sample(now, rtt)
	b.rtt.updateMin(now, rtt)
}

// Sent notes n new bytes of sequence space from seq, which is where the last ended. They
// become one record, which may hold many segments: a super-segment of 64 KiB costs what one
// segment does.
func (b *Scoreboard) Sent(now clock.Time, seq, n uint32) {
	if n == 0 {
		return
	}
	if seq != b.next {
		panic("loss: data sent out of sequence")
	}
	f := b.f
	if f == nil {
		f = b.pool.getFlight()
		b.f = f
		f.rate.restart(now, b.delivered)
		f.rack.fack = seq
	}
	b.next += n
	f.pipe += n
	if f.episode.phase == recovery {
		f.prr.noteSent(n)
	}
	if !b.extend(now, n) {
		b.append(now, seq, n)
	}
	if f.rtoTimer == 0 {
		f.rtoTimer = now.Add(b.rtt.rto()) // RFC 6298 5.1
	}
	b.armProbe(now)
}

// extend makes the last record longer, if it was sent at the same time. Records sent apart
// must stay apart: RACK compares their times.
func (b *Scoreboard) extend(now clock.Time, n uint32) bool {
	f := b.f
	if f.tail == 0 {
		return false
	}
	r := b.record(f.tail)
	if r.sent != now || r.state&^appLimited != 0 || r.mss != b.opts.MSS || r.len()%r.mss != 0 {
		return false
	}
	r.end += n
	b.noteTransmission(now, r)
	return true
}

// append adds a record behind all others.
func (b *Scoreboard) append(now clock.Time, seq, n uint32) {
	f, i := b.f, b.pool.get()
	r := b.record(i)
	r.seq, r.end = seq, seq+n
	if r.prev = f.tail; r.prev != 0 {
		b.record(r.prev).next = i
	} else {
		f.head = i
	}
	f.tail = i
	b.noteTransmission(now, r)
	b.appendOutstanding(i)
	b.noteAdded(i)
}

// noteTransmission notes in r what its transmission has to remember: its time, and the
// delivery state from which the rate sample of its ACK is computed.
func (b *Scoreboard) noteTransmission(now clock.Time, r *record) {
	f := b.f
	r.sent, r.mss, r.flight = now, b.opts.MSS, f.pipe
	r.delivered, r.lost = b.delivered, b.lost
	r.deliveredAt, r.firstSent = f.rate.deliveredAt, f.rate.firstSent
	r.state &^= appLimited
	if f.rate.appLimited != 0 {
		r.state |= appLimited
	}
}

// Resent notes that n bytes from seq, at most what Lost or Probe returned, were sent again.
// The record is split where only a part was sent. An ACK may have SACKed it meanwhile; then
// nothing changes.
func (b *Scoreboard) Resent(now clock.Time, seq, n uint32) {
	i := b.find(seq)
	if i == 0 || n == 0 || b.record(i).state&sacked != 0 {
		return
	}
	i = b.cut(i, seq, n)
	f := b.f
	r := b.record(i)
	size := min(n, r.len())
	if r.state&missing != 0 {
		b.clearMissing(i)
		f.pipe += r.len()
	} else {
		b.removeOutstanding(i)
	}
	r.state |= resent
	b.noteTransmission(now, r)
	b.appendOutstanding(i)
	f.episode.noteResent(now, size)
	f.prr.noteSent(size)
	if seq == b.una || f.rtoTimer == 0 {
		f.rtoTimer = now.Add(b.rtt.rto())
	}
}

// cut makes a record of n bytes from seq on, which lie in record i, and returns it. In a
// full flight, what is lost joins the retransmission before it instead: a record then has
// the time of the last part, so that its loss is found later, but is found.
func (b *Scoreboard) cut(i, seq, n uint32) uint32 {
	if r := b.record(i); r.seq != seq {
		i = b.split(i, seq)
	}
	r := b.record(i)
	if !seqnum.Before(seq+n, r.end) {
		return i
	}
	p := r.prev
	if !b.Full() || p == 0 || r.state&missing == 0 || !b.mayJoin(b.record(p)) {
		b.split(i, seq+n)
		return i
	}
	b.f.missing -= n
	b.f.pipe += n
	r.seq += n
	b.record(p).end += n
	return p
}

// mayJoin reports whether r is a retransmission of whole segments, which more of them may
// join.
func (b *Scoreboard) mayJoin(r *record) bool {
	return r.state&(sacked|missing|resent) == resent && r.mss == b.opts.MSS && r.len()%r.mss == 0
}

// SetAppLimited notes that the sender has nothing more to send though it might. Rate
// samples until what is now in flight is delivered measure the application, not the path
// (draft-cheng-iccrg-delivery-rate-estimation 3.4).
func (b *Scoreboard) SetAppLimited() {
	if b.f != nil {
		b.f.rate.appLimited = max(b.delivered+uint64(b.f.pipe), 1)
	}
}

// Lost returns the first range that is lost and was not sent again; n is 0 where there is
// none. It is also empty while F-RTO waits for new data to be sent (see NewDataSent).
func (b *Scoreboard) Lost() (seq, n uint32) {
	f := b.f
	if f == nil || f.missing == 0 || f.episode.frto == frtoSendNew {
		return 0, 0
	}
	f.firstLost = b.nextMissing(f.firstLost)
	r := b.record(f.firstLost)
	return r.seq, r.len()
}

// Flight is the pipe in bytes: sent, and neither acknowledged, SACKed nor lost (RFC 6675
// 4). Without SACK, duplicate ACKs stand for segments that have left the network.
func (b *Scoreboard) Flight() uint32 {
	if b.f == nil {
		return 0
	}
	return b.f.pipe - min(b.f.pipe, b.f.reno.arrived)
}

// SACKed is the number of bytes that have arrived behind a hole: the peer has them, and the sender
// must keep them all the same (RFC 2018 8).
func (b *Scoreboard) SACKed() uint32 {
	if b.f == nil {
		return 0
	}
	return b.f.sacked
}

// LastSACKed reports whether SACK has reported the last sequence number in flight.
func (b *Scoreboard) LastSACKed() bool {
	return b.f != nil && b.f.tail != 0 && b.record(b.f.tail).state&sacked != 0
}

// LostExactly reports whether n bytes are all that fast recovery has found lost, none of it
// sent again yet.
func (b *Scoreboard) LostExactly(n uint32) bool {
	return b.f != nil && b.f.episode.phase == recovery && !b.f.episode.resentAny && b.f.missing == n
}

// Outstanding is SND.NXT - SND.UNA, bytes of sequence space.
func (b *Scoreboard) Outstanding() uint32 { return b.next - b.una }

// MSS is the payload of a full segment, bytes.
func (b *Scoreboard) MSS() uint32 { return b.opts.MSS }

// Next is SND.NXT.
func (b *Scoreboard) Next() uint32 { return b.next }

// HasSACK reports whether the peer sends SACK.
func (b *Scoreboard) HasSACK() bool { return b.opts.SACK }

// SRTT is the smoothed round-trip time (RFC 6298 2); 0 while none was measured.
func (b *Scoreboard) SRTT() time.Duration { return b.rtt.srtt }

// RTTVar is the mean deviation of the round-trip time (RFC 6298 2).
func (b *Scoreboard) RTTVar() time.Duration { return b.rtt.rttvar }

// MinRTT is the least round-trip time of the last 30 seconds or so; 0 while none was
// measured.
func (b *Scoreboard) MinRTT() time.Duration { return b.rtt.min }

// RTO is the retransmission timeout with its backoff.
func (b *Scoreboard) RTO() time.Duration { return b.rtt.rto() }

// Backoff is the number of times in a row that the retransmission timer expired.
func (b *Scoreboard) Backoff() int { return int(b.rtt.backoff) }

// Unrepaired is the number of bytes that are lost and not sent again yet.
func (b *Scoreboard) Unrepaired() uint32 {
	if b.f == nil {
		return 0
	}
	return b.f.missing
}

// Reordering is by how many segments one was overtaken at most; 0 is none.
func (b *Scoreboard) Reordering() uint32 {
	if !b.reorder.seen {
		return 0
	}
	return b.reorder.maxDistance/b.opts.MSS + 1
}

// Delivered is the number of bytes that have arrived since Init.
func (b *Scoreboard) Delivered() uint64 { return b.delivered }

// TotalLost is the number of bytes that were marked lost since Init, less those that turned out not
// to be.
func (b *Scoreboard) TotalLost() uint64 { return b.lost }
