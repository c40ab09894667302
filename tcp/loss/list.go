package loss

import "github.com/millrace/millrace/tcp/seqnum"

// appendOutstanding adds record i to the outstanding records as the newest transmission.
//
// Records are in two lists: all of them by sequence number, and those that are neither
// SACKed nor lost by transmission time. RACK walks the second from the oldest and stops
// early, so that an ACK costs what it changes and not what is in flight.
func (b *Scoreboard) appendOutstanding(i uint32) {
	f := b.f
	r := b.record(i)
	r.earlier, r.later = f.newest, 0
	if f.newest != 0 {
		b.record(f.newest).later = i
	} else {
		f.oldest = i
	}
	f.newest = i
}

// removeOutstanding takes record i out of that list.
func (b *Scoreboard) removeOutstanding(i uint32) {
	f := b.f
	r := b.record(i)
	if r.earlier != 0 {
		b.record(r.earlier).later = r.later
	} else {
		f.oldest = r.later
	}
	if r.later != 0 {
		b.record(r.later).earlier = r.earlier
	} else {
		f.newest = r.earlier
	}
	r.earlier, r.later = 0, 0
}

// split cuts record i at seq, which lies within it, and returns the second part. Both keep
// the transmission time.
func (b *Scoreboard) split(i, seq uint32) uint32 {
	f, j := b.f, b.pool.get()
	r, n := b.record(i), b.record(j)
	*n = *r
	r.end, n.seq = seq, seq
	r.next, n.prev = j, i
	if n.next != 0 {
		b.record(n.next).prev = j
	} else {
		f.tail = j
	}
	if r.state&(sacked|missing) == 0 {
		r.later, n.earlier = j, i
		if n.later != 0 {
			b.record(n.later).earlier = j
		} else {
			f.newest = j
		}
	}
	return j
}

// freeRecord unlinks record i, which is not outstanding, from the list by sequence number
// and gives it back.
func (b *Scoreboard) freeRecord(i uint32) {
	f := b.f
	r := b.record(i)
	if f.cursor == i {
		f.cursor = r.prev
	}
	if f.firstLost == i {
		f.firstLost = r.next
	}
	if r.prev != 0 {
		b.record(r.prev).next = r.next
	} else {
		f.head = r.next
	}
	if r.next != 0 {
		b.record(r.next).prev = r.prev
	} else {
		f.tail = r.prev
	}
	b.pool.put(i)
}

// find returns the record that holds seq, or 0. It walks from where SACK was last applied,
// because ACKs cluster.
func (b *Scoreboard) find(seq uint32) uint32 {
	f := b.f
	if f == nil || seqnum.Before(seq, b.una) || !seqnum.Before(seq, b.next) {
		return 0
	}
	i := f.cursor
	if i == 0 {
		i = f.head
	}
	if seqnum.Before(seq, b.record(i).seq) && seq-b.una < b.record(i).seq-seq {
		i = f.head
	}
	for seqnum.Before(seq, b.record(i).seq) {
		i = b.record(i).prev
	}
	for !seqnum.Before(seq, b.record(i).end) {
		i = b.record(i).next
	}
	f.cursor = i
	return i
}

// mergeSACKed joins SACKed record i with SACKed neighbours. So there are no more records
// than gaps and outstanding transmissions, however many segments a peer SACKs one by one.
func (b *Scoreboard) mergeSACKed(i uint32) {
	if p := b.record(i).prev; p != 0 && b.record(p).state&sacked != 0 {
		b.record(i).seq = b.record(p).seq
		b.freeRecord(p)
	}
	if n := b.record(i).next; n != 0 && b.record(n).state&sacked != 0 {
		b.record(i).end = b.record(n).end
		b.freeRecord(n)
	}
	b.f.cursor = i
}
