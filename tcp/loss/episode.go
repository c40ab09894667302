package loss

import "github.com/millrace/millrace/clock"

// phase is where a connection is with respect to losses.
type phase uint8

const (
	open     phase = iota
	recovery       // fast recovery
	timeout        // after a retransmission timeout
)

// The states of F-RTO (RFC 5682 3).
const (
	frtoOff    = iota
	frtoFirst  // step 2: the first ACK after the timeout is awaited
	frtoFresh  // step 2b: new data is to be sent
	frtoSecond // step 3: the ACK of that is awaited
)

// episode is a loss episode: from the first loss to the acknowledgment of all that was in flight then.
type episode struct {
	phase    phase
	frto     uint8
	high     uint32     // SND.NXT when it began: RecoveryPoint
	marker   uint32     // SND.UNA when it began
	resentAt clock.Time // first retransmission, with again
	again    bool
	resent   int64 // bytes sent again that no DSACK has called needless
}

// resend notes a retransmission of r.
func (e *episode) resend(now clock.Time, b *Board, r *record) {
	if e.phase == open {
		return
	}
	if !e.again {
		e.again, e.resentAt = true, now
	}
	e.resent += int64(r.len())
}

func (b *Board) begin(p phase) {
	b.f.episode = episode{phase: p, high: b.next, marker: b.una}
}

// enter begins fast recovery, unless an episode goes on.
func (b *Board) enter(s *Sample) {
	if b.f.episode.phase != open {
		return
	}
	b.begin(recovery)
	b.f.pto = 0
	s.Events |= Recover
}

// recovered ends the episode: all that was in flight when it began has arrived.
func (b *Board) recovered(s *Sample) {
	b.f.reno.barred, b.f.reno.bar = true, b.f.episode.high
	b.f.episode.phase, b.f.episode.frto = open, frtoOff
	b.reorder.recovered()
	s.Events |= Recovered
}

// doubt asks whether the episode was no loss at all, and ends it if so.
func (b *Board) doubt(now clock.Time, a *Ack, s *Sample, n *news) {
	e := &b.f.episode
	switch {
	case n.advanced && n.again && e.again && b.echoBefore(a.Echo, e.resentAt):
		// Eifel (RFC 3522 3.2): the ACK of data sent twice echoes the time of the first.
	case n.dsack && b.needless(n):
		// RFC 3708 3.3: DSACK has named all that was sent twice.
	case e.phase == timeout && b.forward(n):
		// F-RTO
	default:
		return
	}
	b.undo(s)
}

// needless counts a DSACK against what the episode has sent again.
func (b *Board) needless(n *news) bool {
	e := &b.f.episode
	if !e.again || before(n.dup.Left, e.marker) || before(e.high, n.dup.Right) {
		return false
	}
	e.resent -= int64(n.dup.Right - n.dup.Left)
	return e.resent <= 0
}

// forward is F-RTO (RFC 5682 3.1, and 2.1 without SACK): whether the timeout was spurious.
func (b *Board) forward(n *news) bool {
	e := &b.f.episode
	switch e.frto {
	case frtoFirst:
		if !before(b.una, e.high) { // step 2a
			e.frto = frtoOff
		} else if n.advanced {
			e.frto = frtoFresh // step 2b
		} else if !b.opts.SACK {
			e.frto = frtoOff // a duplicate ACK
		}
	case frtoSecond:
		e.frto = frtoOff
		return n.original && (b.opts.SACK || n.advanced && !n.again) // step 3b
	}
	return false
}

// WantsFresh reports whether F-RTO asks for up to two segments of new data in place of what is lost,
// whatever the window (RFC 5682 2.1 step 2b). Fresh is to be called after the attempt.
func (b *Board) WantsFresh() bool { return b.f != nil && b.f.episode.frto == frtoFresh }

// Fresh ends the wait for new data; without any, what is lost is sent again after all.
func (b *Board) Fresh(sent bool) {
	if !b.WantsFresh() {
		return
	}
	b.f.episode.frto = frtoOff
	if sent {
		b.f.episode.frto = frtoSecond
	}
}

// undo ends an episode that was no loss: all that was called lost waits for its ACK again (RFC 4015).
func (b *Board) undo(s *Sample) {
	f := b.f
	for i := f.head; i != 0 && f.missing > 0; i = b.at(i).next {
		if r := b.at(i); r.state&missing != 0 {
			r.state &^= missing
			f.missing -= r.len()
			f.pipe += r.len()
			b.lost -= min(b.lost, uint64(r.len()))
			b.waitInOrder(i)
		}
	}
	f.firstLost = 0
	f.episode.phase, f.episode.frto = open, frtoOff
	b.rtt.backoff = 0
	b.reorder.recovered()
	s.Events |= Undo
}

// waitInOrder puts record i where its transmission time belongs among those that wait.
func (b *Board) waitInOrder(i uint32) {
	f := b.f
	r := b.at(i)
	at := f.old
	for at != 0 && !sentAfter(b.at(at).sent, b.at(at).end, r.sent, r.end) {
		at = b.at(at).later
	}
	if at == 0 {
		b.wait(i)
		return
	}
	r.later, r.earlier = at, b.at(at).earlier
	if r.earlier != 0 {
		b.at(r.earlier).later = i
	} else {
		f.old = i
	}
	b.at(at).earlier = i
}

// InRecovery reports whether a loss episode goes on: fast recovery, or after a timeout.
func (b *Board) InRecovery() bool { return b.f != nil && b.f.episode.phase != open }

// InFastRecovery reports whether fast recovery goes on, in which PRR holds (Reduce).
func (b *Board) InFastRecovery() bool { return b.f != nil && b.f.episode.phase == recovery }
