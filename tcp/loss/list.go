package loss

// appendOutstanding adds record i, which was just sent, to the outstanding records.
//
// Records are in two lists: all of them by sequence number, and those that are neither
// SACKed nor lost in the order of RACK_sent_after (RFC 8985 6.2). RACK walks the second from
// the oldest and stops at the first that was sent after what has arrived, so that an ACK
// costs what it changes and not what is in flight.
func (b *Scoreboard) appendOutstanding(i uint32) {
	f := b.f
	r := b.record(i)
	// What is sent again after new data, at the same time, comes before it: one or two
	// records, as new data of one time is one record.
	after := f.newest
	for after != 0 && b.sentBefore(i, after) {
		after = b.record(after).earlier
	}
	r.earlier = after
	if after != 0 {
		r.later = b.record(after).later
		b.record(after).later = i
	} else {
		r.later, f.oldest = f.oldest, i
	}
	if r.later != 0 {
		b.record(r.later).earlier = i
	} else {
		f.newest = i
	}
}

// sentBefore reports whether record i was sent before record j, in the order of RACK.
func (b *Scoreboard) sentBefore(i, j uint32) bool {
	x, y := b.record(i), b.record(j)
	return sentAfter(y.sent, y.end, x.sent, x.end)
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
	b.noteAdded(j)
	return j
}

// freeRecord unlinks record i, which is not outstanding, from the list by sequence number
// and returns it.
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
	b.noteRemoved(i)
	b.pool.put(i)
}

// mergeSACKed joins SACKed record i with SACKed neighbours. So there are no more records
// than gaps and outstanding transmissions, however many segments a peer SACKs one by one.
func (b *Scoreboard) mergeSACKed(i uint32) {
	if p := b.record(i).prev; p != 0 && b.record(p).state&sacked != 0 {
		seq := b.record(p).seq
		b.freeRecord(p)
		b.record(i).seq = seq
	}
	if n := b.record(i).next; n != 0 && b.record(n).state&sacked != 0 {
		b.record(i).end = b.record(n).end
		b.freeRecord(n)
	}
	b.f.cursor = i
}

// sort sorts the records of a list by later into the order of transmission: a merge sort of
// the runs that are sorted already. It takes one walk for each time that their number
// halves, and one for a list in order.
func (b *Scoreboard) sort(list uint32) uint32 {
	var runs [32]uint32 // runs[k] is of 2^k runs, or 0
	top := 0
	for list != 0 {
		run, end := list, list
		for n := b.record(end).later; n != 0 && b.sentBefore(end, n); n = b.record(end).later {
			end = n
		}
		list = b.record(end).later
		b.record(end).later = 0
		k := 0
		for ; runs[k] != 0; k++ {
			run, runs[k] = b.merge(runs[k], run), 0
		}
		runs[k] = run
		top = max(top, k)
	}
	for _, run := range runs[:top+1] {
		list = b.merge(run, list)
	}
	return list
}

// merge merges two lists by later that are in order of transmission.
func (b *Scoreboard) merge(x, y uint32) (list uint32) {
	at := &list
	for x != 0 && y != 0 {
		if b.sentBefore(y, x) {
			x, y = y, x
		}
		*at = x
		at = &b.record(x).later
		x = *at
	}
	*at = max(x, y) // one of them is empty
	return list
}
