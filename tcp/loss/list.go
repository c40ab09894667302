package loss

// wait appends record i to those that wait for their ACK, as the last that was sent.
func (b *Board) wait(i uint32) {
	f := b.f
	r := b.at(i)
	r.earlier, r.later = f.young, 0
	if f.young != 0 {
		b.at(f.young).later = i
	} else {
		f.old = i
	}
	f.young = i
}

// unwait takes record i out of that list.
func (b *Board) unwait(i uint32) {
	f := b.f
	r := b.at(i)
	if r.earlier != 0 {
		b.at(r.earlier).later = r.later
	} else {
		f.old = r.later
	}
	if r.later != 0 {
		b.at(r.later).earlier = r.earlier
	} else {
		f.young = r.earlier
	}
	r.earlier, r.later = 0, 0
}

// split cuts record i at seq, which lies within it, and returns the second part.
func (b *Board) split(i, seq uint32) uint32 {
	f, j := b.f, b.pool.get()
	r, n := b.at(i), b.at(j)
	*n = *r
	r.end, n.seq = seq, seq
	r.next, n.prev = j, i
	if n.next != 0 {
		b.at(n.next).prev = j
	} else {
		f.tail = j
	}
	if r.state&(sacked|missing) == 0 {
		r.later, n.earlier = j, i
		if n.later != 0 {
			b.at(n.later).earlier = j
		} else {
			f.young = j
		}
	}
	return j
}

// drop unlinks record i from the order of sequence and gives it back. It waits no more.
func (b *Board) drop(i uint32) {
	f := b.f
	r := b.at(i)
	if f.touched == i {
		f.touched = r.prev
	}
	if f.firstLost == i {
		f.firstLost = r.next
	}
	if r.prev != 0 {
		b.at(r.prev).next = r.next
	} else {
		f.head = r.next
	}
	if r.next != 0 {
		b.at(r.next).prev = r.prev
	} else {
		f.tail = r.prev
	}
	b.pool.put(i)
}

// find returns the record that holds seq, or 0. It walks from where SACK was last: ACKs cluster.
func (b *Board) find(seq uint32) uint32 {
	f := b.f
	if f == nil || before(seq, b.una) || !before(seq, b.next) {
		return 0
	}
	i := f.touched
	if i == 0 {
		i = f.head
	}
	if before(seq, b.at(i).seq) && seq-b.una < b.at(i).seq-seq {
		i = f.head
	}
	for before(seq, b.at(i).seq) {
		i = b.at(i).prev
	}
	for !before(seq, b.at(i).end) {
		i = b.at(i).next
	}
	f.touched = i
	return i
}

// join makes one record of SACKed record i and SACKed neighbours, so that there are no more records
// than holes and what waits.
func (b *Board) join(i uint32) {
	if p := b.at(i).prev; p != 0 && b.at(p).state&sacked != 0 {
		b.at(i).seq = b.at(p).seq
		b.drop(p)
	}
	if n := b.at(i).next; n != 0 && b.at(n).state&sacked != 0 {
		b.at(i).end = b.at(n).end
		b.drop(n)
	}
	b.f.touched = i
}
