package loss

import (
	"slices"

	"github.com/millrace/millrace/tcp/seqnum"
)

// What a peer can make us do for one ACK depends on how many records a flight has, and SACK
// can cut a flight into single segments: 87 000 for 4 MB at the least MSS (CVE-2019-11477 to
// 11479 are of this kind). So their number is bounded, and a long flight has an index.
const (
	// maxRecords is the number of records that a flight has before it takes no new data, and before
	// SACK cuts no more of them: holes of 4096 at once. A paced flight without holes has a
	// record for each millisecond of its round trip.
	maxRecords = 8192

	indexFrom = 64 // records from which a flight has an index; fewer are walked
	groupSize = 64 // records of a new group
	maxGroup  = 2 * groupSize
	minGroup  = groupSize / 4
)

// index finds records of a long flight by sequence number, and the lost ones among them: a
// list of groups of neighbours, as the leaves of a B-tree have them. A search looks into
// one group, of maxGroup records at most; the groups are few enough to be walked.
type index struct {
	groups []group
	order  []uint16 // groups in order of sequence
	unused []uint16
}

// group is some records that follow each other.
type group struct {
	first   uint32 // record
	records uint16
	missing uint16 // of them lost, and not sent again since
}

// reset forgets all groups.
func (x *index) reset() {
	x.groups, x.order, x.unused = x.groups[:0], x.order[:0], x.unused[:0]
}

// insert makes a new group at place i of the order.
func (x *index) insert(i int, g group) uint16 {
	var id uint16
	if n := len(x.unused); n > 0 {
		id = x.unused[n-1]
		x.unused = x.unused[:n-1]
		x.groups[id] = g
	} else {
		id = uint16(len(x.groups))
		x.groups = append(x.groups, g)
	}
	x.order = slices.Insert(x.order, i, id)
	return id
}

// place returns the place in the order of the group that holds seq, or of the last one that
// begins before.
func (b *Scoreboard) place(seq uint32) int {
	x := b.f.index
	lo, hi := 0, len(x.order)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if seqnum.AtOrBefore(b.record(x.groups[x.order[mid]].first).seq, seq) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// noteAdded counts record i, which is in the list by sequence number now and has the group
// of the record before it. It makes the index when the flight becomes long.
func (b *Scoreboard) noteAdded(i uint32) {
	f := b.f
	if f.records++; f.index == nil {
		if f.records > indexFrom {
			b.buildIndex()
		}
		return
	}
	r := b.record(i)
	last := &f.index.groups[b.record(r.prev).group]
	if i == f.tail && last.records >= groupSize {
		r.group = f.index.insert(len(f.index.order), group{first: i})
	} else {
		r.group = b.record(r.prev).group
	}
	g := &f.index.groups[r.group]
	g.records++
	if r.state&missing != 0 {
		g.missing++
	}
	if g.records > maxGroup {
		b.splitGroup(r.group)
	}
}

// buildIndex makes the index of all records.
func (b *Scoreboard) buildIndex() {
	f := b.f
	f.index = b.pool.getIndex()
	for i := f.head; i != 0; i = b.record(i).next {
		n := len(f.index.groups)
		if n == 0 || f.index.groups[n-1].records == groupSize {
			f.index.insert(n, group{first: i})
			n++
		}
		b.join(i, uint16(n-1))
	}
}

// join puts record i into group id.
func (b *Scoreboard) join(i uint32, id uint16) {
	r, g := b.record(i), &b.f.index.groups[id]
	r.group = id
	g.records++
	if r.state&missing != 0 {
		g.missing++
	}
}

// splitGroup moves the second half of a group into a new one behind it.
func (b *Scoreboard) splitGroup(id uint16) {
	x := b.f.index
	i := x.groups[id].first
	at := b.place(b.record(i).seq)
	for range groupSize {
		i = b.record(i).next
	}
	second := x.insert(at+1, group{first: i})
	for range x.groups[id].records - groupSize {
		b.leave(i)
		b.join(i, second)
		i = b.record(i).next
	}
}

// leave takes record i out of the counts of its group.
func (b *Scoreboard) leave(i uint32) {
	r := b.record(i)
	g := &b.f.index.groups[r.group]
	g.records--
	if r.state&missing != 0 {
		g.missing--
	}
}

// noteRemoved takes record i out of the index, when it has left the list by sequence number.
// A group that has become small joins a neighbour, so that there are never many.
func (b *Scoreboard) noteRemoved(i uint32) {
	f := b.f
	f.records--
	x := f.index
	if x == nil {
		return
	}
	b.leave(i)
	r := b.record(i)
	g := &x.groups[r.group]
	if g.records >= minGroup && g.first != i {
		return
	}
	at := b.place(r.seq)
	if g.first == i {
		g.first = r.next
	}
	if g.records == 0 {
		x.drop(at)
		return
	}
	for _, i := range [2]int{at, at - 1} { // with the next, else with the one before
		if g.records < minGroup && i >= 0 && i+1 < len(x.order) && x.groups[x.order[i]].records+x.groups[x.order[i+1]].records <= groupSize {
			b.mergeGroups(i)
			return
		}
	}
}

// mergeGroups moves the records of the group at a place into the next one.
func (b *Scoreboard) mergeGroups(at int) {
	x := b.f.index
	g, next := &x.groups[x.order[at]], x.order[at+1]
	i := g.first
	x.groups[next].first = i
	for range g.records {
		b.join(i, next)
		i = b.record(i).next
	}
	x.drop(at)
}

// drop removes the group at a place of the order.
func (x *index) drop(at int) {
	x.unused = append(x.unused, x.order[at])
	x.order = slices.Delete(x.order, at, at+1)
}

// setMissing marks record i as lost, in the counts too.
func (b *Scoreboard) setMissing(i uint32) {
	r := b.record(i)
	r.state |= missing
	b.f.missing += r.len()
	if x := b.f.index; x != nil {
		x.groups[r.group].missing++
	}
}

// clearMissing is the opposite of setMissing.
func (b *Scoreboard) clearMissing(i uint32) {
	r := b.record(i)
	r.state &^= missing
	b.f.missing -= r.len()
	if x := b.f.index; x != nil {
		x.groups[r.group].missing--
	}
}

// nextMissing returns the first lost record from record i on. There must be one.
func (b *Scoreboard) nextMissing(i uint32) uint32 {
	x := b.f.index
	if x == nil {
		for b.record(i).state&missing == 0 {
			i = b.record(i).next
		}
		return i
	}
	id := b.record(i).group
	for i != 0 && b.record(i).group == id {
		if b.record(i).state&missing != 0 {
			return i
		}
		i = b.record(i).next
	}
	at := b.place(b.record(i).seq)
	for x.groups[x.order[at]].missing == 0 {
		at++
	}
	i = x.groups[x.order[at]].first
	for b.record(i).state&missing == 0 {
		i = b.record(i).next
	}
	return i
}

// find returns the record that holds seq, or 0. It looks first where SACK was last applied,
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
	if f.index != nil && !b.near(i, seq) {
		i = f.index.groups[f.index.order[b.place(seq)]].first
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

// near reports whether record i or the one after it holds seq.
func (b *Scoreboard) near(i, seq uint32) bool {
	r := b.record(i)
	if seqnum.Before(seq, r.seq) {
		return false
	}
	return seqnum.Before(seq, r.end) || r.next != 0 && seqnum.Before(seq, b.record(r.next).end)
}

// Full reports whether the flight has as many records as it may: then no new data is sent,
// until ACKs have taken some out.
func (b *Scoreboard) Full() bool { return b.f != nil && b.f.records >= maxRecords }
