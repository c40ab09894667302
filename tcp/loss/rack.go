package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// dupThresh is the number of SACKed segments, or duplicate ACKs, that indicate a loss (RFC 5681 3.2,
// RFC 8985 6.2).
const dupThresh = 3

// reoPersist is for how many recoveries a wider reordering window lasts (RFC 8985 6.2 step
// 4).
const reoPersist = 16

// minReoBound is a bound of the reordering window that holds whatever the round-trip time
// is. RFC 8985 3.3.2 suggests one round trip. But links that retransmit or bond deliver some
// milliseconds late on short paths too. There a window of a round trip would take each late
// segment for lost.
const minReoBound = 10 * time.Millisecond

// reorder is the state of a connection about reordering on its path (RFC 8985 5.3, 6.2 steps 3
// and 4). It outlives flights.
type reorder struct {
	reordering
	round      uint32 // RACK.dsack_round, with inRound
	latestLate uint32 // as late, of the present period of reoPersist recoveries
}

// reordering is the part of reorder that an idle connection remembers.
type reordering struct {
	maxDistance uint32 // bytes by which a segment was overtaken, at most
	late        uint32 // how much later than its successors a segment has arrived, at most, microseconds
	mult        uint8  // RACK.reo_wnd_mult
	persist     uint8  // RACK.reo_wnd_persist
	seen        bool   // RACK.reordering_seen
	inRound     bool   // false while idle
}

// noteDSACK widens the reordering window, at most once a round trip: a retransmission was
// spurious, so segments may be later than the window allowed.
func (o *reorder) noteDSACK(b *Scoreboard, una uint32, n *ackResult) {
	if o.inRound && !seqnum.Before(una, o.round) {
		o.inRound = false
	}
	if n.dsack && !o.inRound {
		o.inRound, o.round = true, b.next
		o.mult = min(o.mult+1, 255-1)
		o.persist = reoPersist
	}
}

// noteLate takes the lateness of a segment that was sent once and has arrived after
// successors of it.
func (o *reorder) noteLate(d time.Duration) {
	late := uint32(min(max(d, 0), time.Second).Microseconds())
	o.latestLate = max(o.latestLate, late)
	o.late = max(o.late, late)
	if o.persist == 0 {
		o.persist = reoPersist
	}
}

// noteRecovered counts the end of a recovery. After reoPersist of them without a DSACK the
// window is what the lateness in that time requires, since the path may have changed. RFC
// 8985 starts again with the narrowest window, and pays for the same reordering by the same
// spurious recoveries every time.
func (o *reorder) noteRecovered() {
	if o.persist > 0 {
		o.persist--
	}
	if o.persist == 0 {
		o.mult, o.late, o.latestLate = 1, o.latestLate, 0
		if o.late > 0 {
			o.persist = reoPersist
		}
	}
}

// rack is the state of loss detection by time (RFC 8985 5.3). A segment is lost when one
// that was sent later has arrived and a reordering window has passed. Unlike counting
// duplicate ACKs, this finds lost retransmissions, and tolerates reordering.
type rack struct {
	valid     bool
	sent      clock.Time    // RACK.segment.xmit_ts: transmission of the newest segment that has arrived
	end       uint32        // RACK.segment.end_seq
	rtt       time.Duration // RACK.rtt
	fack      uint32        // RACK.fack
	overtaken bool          // a segment was overtaken, in this ACK
}

// sentAfter is RACK_sent_after (RFC 8985 6.2): by time, and by sequence number for segments
// of one burst.
func sentAfter(t clock.Time, end uint32, u clock.Time, other uint32) bool {
	return t > u || t == u && seqnum.Before(other, end)
}

// deliver is steps 2 and 3 of RFC 8985 6.2 for the part of r before end. An ACK that comes
// sooner after a retransmission than any round trip takes is for the original transmission,
// and must not advance RACK.
func (k *rack) deliver(now clock.Time, b *Scoreboard, r *record, end uint32, a *Ack, n *ackResult) {
	if seqnum.Before(k.fack, end) {
		k.fack = end
	} else if r.state&resent == 0 && seqnum.Before(end, n.priorFACK) {
		k.overtaken = true
		b.reorder.maxDistance = max(b.reorder.maxDistance, n.priorFACK-end)
		b.reorder.noteLate(now.Sub(r.sent.Add(n.priorRTT)))
	}
	rtt := now.Sub(r.sent)
	if r.state&resent != 0 {
		if b.echoBefore(a.Echo, r.sent) || rtt < b.rtt.min {
			return // of the first transmission more likely
		}
	}
	if !k.valid || sentAfter(r.sent, end, k.sent, k.end) {
		k.valid, k.sent, k.end, k.rtt = true, r.sent, end, rtt
	}
}

// echoBefore reports whether the echoed timestamp is from before t, as far as its ticks can
// tell.
func (b *Scoreboard) echoBefore(echo, t clock.Time) bool {
	tick := clock.Time(b.opts.Tick)
	return tick > 0 && echo > 0 && echo < t-t%tick
}

// noteReordering is step 3 of RFC 8985 6.2: a segment that was sent once arrived after one
// with a higher sequence number.
func (k *rack) noteReordering(b *Scoreboard, s *Sample) {
	if k.overtaken {
		k.overtaken = false
		b.reorder.seen = true
		s.Events |= Reordered
	}
}

// reoWindow is the time by which a segment may arrive later than its successors (RFC 8985 6.2 step
// 4): a quarter of the least round trip, more after DSACKs, above the lateness that was
// measured. Where no reordering was ever seen, and in recovery or with dupThresh segments
// SACKed, it is 0.
func (b *Scoreboard) reoWindow() time.Duration {
	o := &b.reorder
	if !o.seen && (b.f.episode.phase != open || b.f.sacked > (dupThresh-1)*b.opts.MSS) {
		return 0
	}
	wide := time.Duration(o.mult)*b.rtt.min/4 + time.Duration(o.late)*time.Microsecond
	return min(wide, max(b.rtt.srtt, minReoBound))
}

// detectLoss is step 5 of RFC 8985 6.2: outstanding segments sent before one that has
// arrived are lost once the window has passed. A timer waits for those for which it has
// not.
func (b *Scoreboard) detectLoss(now clock.Time, s *Sample) {
	f := b.f
	f.reoTimer = 0
	if !f.rack.valid {
		return
	}
	late := f.rack.rtt + b.reoWindow()
	for i := f.oldest; b.overtaken(i); i = f.oldest {
		if b.record(i).sent.Add(late) > now {
			f.reoTimer = b.lastOvertaken(i).Add(late)
			return
		}
		s.Lost += b.markLost(i)
	}
}

// overtaken reports whether record i was sent before the newest segment that has arrived.
func (b *Scoreboard) overtaken(i uint32) bool {
	k, r := &b.f.rack, b.record(i)
	return i != 0 && sentAfter(k.sent, k.end, r.sent, r.end)
}

// lastOvertaken returns when the last overtaken record was sent, from record i on. Where
// there are many, it is taken for as late as the segment that has arrived, which was sent
// next: the timer is not worth a walk over all for each ACK.
func (b *Scoreboard) lastOvertaken(i uint32) clock.Time {
	at := b.record(i).sent
	for range indexFrom {
		if i = b.record(i).later; !b.overtaken(i) {
			return at
		}
		at = b.record(i).sent
	}
	return b.f.rack.sent
}

// markLost marks outstanding record i as lost and returns its length.
func (b *Scoreboard) markLost(i uint32) uint32 {
	f := b.f
	r := b.record(i)
	b.removeOutstanding(i)
	b.setMissing(i)
	f.pipe -= r.len()
	b.lost += uint64(r.len())
	if f.firstLost == 0 || seqnum.Before(r.seq, b.record(f.firstLost).seq) {
		f.firstLost = i
	}
	return r.len()
}
