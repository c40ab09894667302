package loss

import "github.com/millrace/millrace/tcp/seqnum"

// reno replaces SACK where the peer has none (RFC 5681 3.2, NewReno of RFC 6582): each
// duplicate ACK shows that some segment, it is not known which, has left the network.
type reno struct {
	duplicates uint32
	arrived    uint32 // bytes that duplicate ACKs stand for
}

// afterRecovery reports whether duplicate ACKs may be of the last recovery: they report what
// it sent again needlessly, and must not begin another (RFC 6582 3.2 step 1).
func (b *Scoreboard) afterRecovery() bool { return !seqnum.Before(b.recover, b.una) }

// deflate takes what an advance of SND.UNA covers out of what duplicate ACKs stood for: one
// segment filled the gap, the others were counted when their duplicate ACKs came.
func (k *reno) deflate(b *Scoreboard, s *Sample) {
	k.duplicates = 0
	if k.arrived == 0 {
		return
	}
	counted := min(k.arrived, s.Acked-min(s.Acked, b.opts.MSS))
	k.arrived -= counted
	k.arrived = min(k.arrived, b.next-b.una-min(b.next-b.una, b.opts.MSS))
	counted = min(counted, s.Delivered)
	s.Delivered -= counted
	b.delivered -= uint64(counted)
}

// countDuplicates is fast retransmit and NewReno: the third duplicate ACK shows that the
// first segment is lost, and in recovery each ACK that advances, but not to its end, says
// so of the next (partial acknowledgment).
func (b *Scoreboard) countDuplicates(a *Ack, s *Sample, n *ackResult) {
	f := b.f
	k := &f.reno
	if n.advanced {
		if f.episode.phase == recovery {
			s.Lost += b.markFirstLost() // RFC 6582 3.2 step 3, partial acknowledgment
		}
		return
	}
	if !a.Duplicate && !n.answersNew {
		return
	}
	for range max(a.Packets, 1) {
		k.duplicates++
		b.countArrived(s)
	}
	if f.episode.phase == open && k.duplicates >= dupThresh && !b.afterRecovery() {
		s.Lost += b.markFirstLost()
	}
}

// countArrived counts a segment that has arrived out of order. No more than is in flight
// can have, whatever a peer sends.
func (b *Scoreboard) countArrived(s *Sample) {
	k := &b.f.reno
	size := min(b.opts.MSS, b.Flight())
	if most := b.next - b.una - min(b.next-b.una, b.opts.MSS); k.arrived+size > most {
		size = most - min(most, k.arrived)
	}
	k.arrived += size
	b.delivered += uint64(size)
	s.Delivered += size
}

// markFirstLost marks the first segment as lost, if it is outstanding.
func (b *Scoreboard) markFirstLost() uint32 {
	i := b.f.head
	r := b.record(i)
	if r.state&(sacked|missing) != 0 {
		return 0
	}
	if r.len() > r.mss {
		b.split(i, r.seq+r.mss)
	}
	return b.markLost(i)
}
