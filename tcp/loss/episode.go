package loss

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// phase is where a connection is with respect to losses.
type phase uint8

const (
	open     phase = iota // no loss is being repaired
	recovery              // fast recovery
	timeout               // repair after a retransmission timeout
)

// The states of F-RTO (RFC 5682 3).
const (
	frtoOff     = iota
	frtoFirst   // step 2: the first ACK after the timeout is awaited
	frtoSendNew // step 2b: new data is to be sent
	frtoSecond  // step 3: the ACK of that is awaited
)

// episode is a loss episode: from the first loss to the acknowledgment of all that was in
// flight then (RecoveryPoint, RFC 6675 5). Losses within it belong to one congestion event
// and reduce the window once.
//
// What was sent again is known beyond its end, until the next begins: DSACKs arrive a round
// trip after the retransmissions that they report, and the originals may end it before.
type episode struct {
	phase         phase
	frto          uint8
	recoveryPoint uint32     // SND.NXT when it began
	startUna      uint32     // SND.UNA when it began
	firstResend   clock.Time // time of the first retransmission, with resentAny
	resentAny     bool
	fast          bool  // fast recovery: what it sent again needlessly was overtaken, not delayed by a queue
	unconfirmed   int64 // bytes sent again that no DSACK has reported as duplicates
}

// noteResent notes a retransmission of n bytes.
func (e *episode) noteResent(now clock.Time, n uint32) {
	if e.phase == open {
		return
	}
	if !e.resentAny {
		e.resentAny, e.firstResend = true, now
	}
	e.unconfirmed += int64(n)
}

// beginEpisode begins an episode over everything in flight.
func (b *Scoreboard) beginEpisode(p phase) {
	b.f.episode = episode{phase: p, fast: p == recovery, recoveryPoint: b.next, startUna: b.una}
}

// enterRecovery begins fast recovery, unless an episode goes on. Tail loss probes stop:
// recovery has its own ACKs.
func (b *Scoreboard) enterRecovery(s *Sample) {
	if b.f.episode.phase != open {
		return
	}
	b.beginEpisode(recovery)
	b.f.ptoTimer = 0
	s.Events |= Recover
}

// exitRecovery ends the episode: all that was in flight when it began has arrived.
func (b *Scoreboard) exitRecovery(s *Sample) {
	b.recover = b.f.episode.recoveryPoint
	b.f.episode.phase, b.f.episode.frto = open, frtoOff
	b.reorder.noteRecovered()
	s.Events |= Recovered
}

// detectSpurious asks three detectors whether the episode was no loss at all, and if so
// undoes it.
func (b *Scoreboard) detectSpurious(now clock.Time, a *Ack, s *Sample, n *ackResult) {
	e := &b.f.episode
	switch {
	case n.advanced && n.resentAcked && e.resentAny && b.echoBefore(a.Echo, e.firstResend):
		// Eifel (RFC 3522 3.2): the ACK of data sent twice echoes the time of the first.
	case n.dsack && b.dsackCoversAll(n):
		// RFC 3708 3.3: DSACK has named all that was sent twice.
	case e.phase == timeout && b.frto(n):
		// F-RTO
	default:
		return
	}
	b.undo(s)
}

// forget forgets what was sent again: the episode was undone.
func (e *episode) forget() { e.resentAny, e.unconfirmed = false, 0 }

// dsackCoversAll counts a DSACK against what the episode has sent again (RFC 3708 3.3).
// When every retransmission was reported as a duplicate, no original was lost.
func (b *Scoreboard) dsackCoversAll(n *ackResult) bool {
	e := &b.f.episode
	if !e.resentAny || seqnum.Before(n.duplicate.Left, e.startUna) || seqnum.Before(e.recoveryPoint, n.duplicate.Right) {
		return false
	}
	size := n.duplicate.Right - n.duplicate.Left
	b.reorder.seen = b.reorder.seen || e.fast
	b.lost -= min(b.lost, uint64(size))
	e.unconfirmed -= int64(size)
	return e.unconfirmed <= 0
}

// frto is F-RTO (RFC 5682 3.1, and 2.1 without SACK): it reports whether the timeout was
// spurious. After a timeout it sends new data first; if ACKs then advance over data that
// was sent once, the originals were only late.
func (b *Scoreboard) frto(n *ackResult) bool {
	e := &b.f.episode
	switch e.frto {
	case frtoFirst:
		if !seqnum.Before(b.una, e.recoveryPoint) { // step 2a
			e.frto = frtoOff
		} else if n.advanced {
			e.frto = frtoSendNew // step 2b
		} else if !b.opts.SACK {
			e.frto = frtoOff // a duplicate ACK
		}
	case frtoSecond:
		e.frto = frtoOff
		// Step 3a: the loss was real. Whatever the window that this ACK announces, a segment
		// of the new data caused it and has left the network. Without that the new data would
		// fill the loss window, and nothing be sent again until the next timeout.
		n.answersNew = !n.advanced
		return n.originalArrived && (b.opts.SACK || n.advanced && !n.resentAcked) // step 3b
	}
	return false
}

// WantsNewData reports whether F-RTO asks for up to two segments of new data in place of
// what is lost, whatever the window (RFC 5682 2.1 step 2b). The caller calls NewDataSent
// after the attempt.
func (b *Scoreboard) WantsNewData() bool { return b.f != nil && b.f.episode.frto == frtoSendNew }

// NewDataSent ends the wait for new data. Without any, F-RTO cannot decide, and what is
// lost is sent again.
func (b *Scoreboard) NewDataSent(sent bool) {
	if !b.WantsNewData() {
		return
	}
	b.f.episode.frto = frtoOff
	if sent {
		b.f.episode.frto = frtoSecond
	}
}

// undo ends a spurious episode: everything that was marked lost waits for its ACK again
// (RFC 4015 3.2).
func (b *Scoreboard) undo(s *Sample) {
	b.restoreMissing()
	b.f.episode.phase, b.f.episode.frto = open, frtoOff
	b.f.episode.forget()
	b.rtt.backoff = 0
	b.reorder.noteRecovered()
	s.Events |= Undo
}

// restoreMissing makes what is lost outstanding again. What was found lost is nearly in the
// order of transmission, so the lists are sorted and merged: once for all records, as a
// search for the place of each would walk the list that often.
func (b *Scoreboard) restoreMissing() {
	f := b.f
	var lost, last uint32 // a list by later
	for i := f.firstLost; f.missing > 0; i = b.record(i).next {
		i = b.nextMissing(i)
		b.clearMissing(i)
		r := b.record(i)
		f.pipe += r.len()
		b.lost -= min(b.lost, uint64(r.len()))
		r.later = 0
		if lost == 0 {
			lost = i
		} else {
			b.record(last).later = i
		}
		last = i
	}
	f.firstLost = 0
	if lost == 0 {
		return
	}
	f.oldest = b.merge(f.oldest, b.sort(lost))
	f.newest = 0
	for i := f.oldest; i != 0; i = b.record(i).later {
		b.record(i).earlier = f.newest
		f.newest = i
	}
}

// InRecovery reports whether a loss episode goes on: fast recovery, or repair after a
// timeout.
func (b *Scoreboard) InRecovery() bool { return b.f != nil && b.f.episode.phase != open }

// InFastRecovery reports whether fast recovery goes on, in which PRR holds (Reduce).
func (b *Scoreboard) InFastRecovery() bool { return b.f != nil && b.f.episode.phase == recovery }
