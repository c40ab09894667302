package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// ackResult gathers what one ACK has newly shown. The parts of the algorithm that follow
// decide by it, not by the ACK.
type ackResult struct {
	advanced        bool          // SND.UNA moved
	resentAcked     bool          // data that was sent more than once is now cumulatively acknowledged
	originalArrived bool          // data that was sent once, before the recovery point, has arrived
	longestRTT      time.Duration // round-trip time of the oldest segment that was sent once, 0: none
	priorFACK       uint32        // RACK.fack before this ACK
	priorRTT        time.Duration // RACK.rtt before this ACK
	answersNew      bool          // not advancing, it answers the new data of F-RTO
	dsack           bool
	duplicate       wire.SACKBlock // the range that arrived twice, with dsack
	sacked          uint32         // bytes newly SACKed
}

// Ack applies an ACK and fills s. SACK blocks outside of what is in flight are ignored:
// forged ones must not corrupt the scoreboard. The order matters: RTT and delivery first,
// since loss detection compares times with them.
func (b *Scoreboard) Ack(now clock.Time, a *Ack, s *Sample) {
	*s = Sample{Flight: b.Flight()}
	var n ackResult
	una := a.Una
	if seqnum.Before(una, b.una) || seqnum.Before(b.next, una) {
		una = b.una
	}
	n.duplicate, n.dsack = findDSACK(a.SACK, una)
	s.Duplicated = n.dsack
	b.reorder.noteDSACK(b, una, &n)
	if b.f == nil {
		b.probeAcked(una, a, &n, s)
		return
	}
	n.priorFACK, n.priorRTT = b.f.rack.fack, b.f.rack.rtt
	b.f.rate.begin()
	b.applyCumulative(now, una, a, s, &n)
	if len(a.SACK) > 0 {
		b.applySACK(now, a, s, &n)
	}
	b.measure(now, a, s, &n)
	b.f.rate.finish(b, s)
	b.probeAcked(una, a, &n, s)
	b.f.rack.noteReordering(b, s)
	if b.una == b.next {
		b.endFlight(now, a, s, &n)
		return
	}
	b.updateEpisode(now, a, s, &n)
	b.rearmTimers(now, &n, s)
}

// endFlight ends the flight: all is acknowledged.
func (b *Scoreboard) endFlight(now clock.Time, a *Ack, s *Sample, n *ackResult) {
	if b.f.episode.phase != open {
		b.detectSpurious(now, a, s, n)
	}
	if b.f.episode.phase != open {
		b.exitRecovery(s)
	}
	b.freeFlight()
}

// updateEpisode decides on loss episodes: whether the present one was spurious, whether it
// is over, whether one begins.
func (b *Scoreboard) updateEpisode(now clock.Time, a *Ack, s *Sample, n *ackResult) {
	e := &b.f.episode
	if e.phase != open {
		b.detectSpurious(now, a, s, n)
	} else if n.dsack && b.dsackCoversAll(n) {
		e.forget()
		s.Events |= Undo
	}
	if e.phase != open && !seqnum.Before(b.una, e.recoveryPoint) {
		b.exitRecovery(s)
	}
	lost := s.Lost
	if b.opts.SACK {
		b.detectLoss(now, s)
	} else {
		b.countDuplicates(a, s, n)
	}
	if s.Lost > lost {
		s.Events |= Marked
		b.enterRecovery(s)
		b.f.prr.begin(b, s, n)
	}
}

// rearmTimers sets the timers after an ACK.
func (b *Scoreboard) rearmTimers(now clock.Time, n *ackResult, s *Sample) {
	f := b.f
	if n.advanced {
		f.rtoTimer = now.Add(b.rtt.rto()) // RFC 6298 5.3
	}
	if n.advanced || s.Delivered > 0 {
		b.armProbe(now)
	}
}

// findDSACK returns the block that reports a duplicate, if the first one does: it lies
// below the cumulative ACK or within the second block (RFC 2883 4). A DSACK must not be
// taken for new data.
func findDSACK(blocks []wire.SACKBlock, una uint32) (wire.SACKBlock, bool) {
	if len(blocks) == 0 || !seqnum.Before(blocks[0].Left, blocks[0].Right) {
		return wire.SACKBlock{}, false
	}
	x := blocks[0]
	if !seqnum.Before(una, x.Right) {
		return x, true
	}
	if len(blocks) > 1 && !seqnum.Before(x.Left, blocks[1].Left) && !seqnum.Before(blocks[1].Right, x.Right) {
		return x, true
	}
	return wire.SACKBlock{}, false
}

// applyCumulative takes everything below una out of the flight.
func (b *Scoreboard) applyCumulative(now clock.Time, una uint32, a *Ack, s *Sample, n *ackResult) {
	if una == b.una {
		return
	}
	n.advanced = true
	s.Acked = una - b.una
	f := b.f
	for f.head != 0 && seqnum.Before(b.record(f.head).seq, una) {
		i := f.head
		r := b.record(i)
		end := r.end
		if seqnum.Before(una, end) {
			end = una
		}
		if r.state&sacked == 0 {
			b.deliver(now, r, end, a, s, n)
		}
		n.resentAcked = n.resentAcked || r.state&resent != 0
		b.removeAcked(i, end)
	}
	b.una = una
	if !b.afterRecovery() {
		b.recover = una - 1
	}
	f.reno.deflate(b, s)
}

// removeAcked takes the part of the first record before end out of the flight.
func (b *Scoreboard) removeAcked(i, end uint32) {
	f := b.f
	r := b.record(i)
	size := end - r.seq
	switch {
	case r.state&sacked != 0:
		f.sacked -= size
	case r.state&missing != 0:
		f.missing -= size
	default:
		f.pipe -= size
	}
	if end != r.end {
		r.seq = end
		return
	}
	if r.state&(sacked|missing) == 0 {
		b.removeOutstanding(i)
	}
	b.freeRecord(i)
}

// applySACK applies the SACK blocks (RFC 2018, RFC 6675 4, Update).
func (b *Scoreboard) applySACK(now clock.Time, a *Ack, s *Sample, n *ackResult) {
	if !b.opts.SACK {
		return
	}
	blocks := a.SACK
	if n.dsack {
		blocks = blocks[1:]
	}
	for _, x := range blocks {
		if seqnum.Before(x.Left, b.una) {
			x.Left = b.una // an old block, overtaken by the cumulative ACK
		}
		if seqnum.Before(x.Left, x.Right) && !seqnum.Before(b.next, x.Right) {
			b.markSACKed(now, x.Left, x.Right, a, s, n)
		}
	}
}

// markSACKed marks whole segments within [left, right) as SACKed, and splits records at
// their edges. In a full flight a record is SACKed as a whole or not at all: SACK is advice
// (RFC 2018 8).
func (b *Scoreboard) markSACKed(now clock.Time, left, right uint32, a *Ack, s *Sample, n *ackResult) {
	for i := b.find(left); i != 0 && seqnum.Before(b.record(i).seq, right); i = b.record(i).next {
		r := b.record(i)
		if r.state&sacked != 0 {
			continue
		}
		from, to := r.wholeSegments(left, right)
		if !seqnum.Before(from, to) || b.Full() && to-from != r.len() {
			continue
		}
		if from != r.seq {
			i = b.split(i, from)
		}
		if to != b.record(i).end {
			b.split(i, to)
		}
		b.sackRecord(now, i, a, s, n)
	}
}

// wholeSegments returns the part of [left, right) that covers whole segments of the record
// as they were sent. A peer could otherwise make us cut records into single bytes, each of
// which costs memory.
func (r *record) wholeSegments(left, right uint32) (from, to uint32) {
	from, to = r.seq, r.end
	if seqnum.Before(from, left) {
		from += (left - from + r.mss - 1) / r.mss * r.mss
	}
	if seqnum.Before(right, to) {
		to = r.seq
		if seqnum.Before(r.seq, right) {
			to += (right - r.seq) / r.mss * r.mss
		}
	}
	return from, to
}

// sackRecord marks record i as SACKed.
func (b *Scoreboard) sackRecord(now clock.Time, i uint32, a *Ack, s *Sample, n *ackResult) {
	f := b.f
	r := b.record(i)
	b.deliver(now, r, r.end, a, s, n)
	n.sacked += r.len()
	if r.state&missing != 0 {
		b.clearMissing(i)
	} else {
		f.pipe -= r.len()
		b.removeOutstanding(i)
	}
	f.sacked += r.len()
	r.state |= sacked
	b.mergeSACKed(i)
}

// deliver notes that the part of r before end has newly arrived. Records sent more than
// once give no RTT: which transmission was acknowledged is ambiguous (Karn's algorithm, RFC
// 6298 3).
func (b *Scoreboard) deliver(now clock.Time, r *record, end uint32, a *Ack, s *Sample, n *ackResult) {
	size := end - r.seq
	b.delivered += uint64(size)
	s.Delivered += size
	b.f.rate.deliver(now, r, end, s)
	b.f.rack.deliver(now, b, r, end, a, n)
	if r.state&resent != 0 {
		return
	}
	rtt := max(now.Sub(r.sent), 1)
	n.longestRTT = max(n.longestRTT, rtt)
	if s.RTT == 0 || rtt < s.RTT {
		s.RTT = rtt
	}
	if !seqnum.Before(b.f.episode.recoveryPoint, end) {
		n.originalArrived = true
	}
}

// measure takes the round-trip time of an ACK: of segments sent once, else by the echoed
// timestamp, if the ACK is for new data (RFC 7323 4.1).
//
// Where retransmitted data is acknowledged, the segments behind it may have waited at the
// receiver for it to arrive, so that they give no time either.
func (b *Scoreboard) measure(now clock.Time, a *Ack, s *Sample, n *ackResult) {
	if n.resentAcked {
		n.longestRTT, s.RTT = 0, 0
	}
	switch {
	case n.longestRTT > 0:
		b.rtt.sample(now, n.longestRTT)
		b.rtt.updateMin(now, s.RTT)
	case n.advanced && a.Echo > 0 && a.Echo <= now && b.opts.Tick > 0:
		s.RTT = max(now.Sub(a.Echo), 1)
		b.rtt.sample(now, s.RTT)
	case n.advanced && b.rtt.srtt == 0:
		b.rtt.uncertain = true
		b.rtt.backoff = 0
	}
}
