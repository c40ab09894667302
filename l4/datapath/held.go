package datapath

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
)

// Fragments that come before the first of their datagram say no ports. They are held until it comes, at the loop where
// the fragments of the datagram meet, and are decided then, after the first has left. Nothing is reassembled.
//
// Three bounds keep a flood from taking more: of time, of frames of a loop, and of frames of a packet. When the frames
// are used up, the source that holds most loses its oldest datagram: sources are counted by a keyed hash, so a flood from
// one address, or from few, takes nothing from others. The work for a packet does not depend on how many are held: a
// datagram is found by a hash, and its coverage says what is missing.
const (
	heldLife    = time.Second // reordering takes milliseconds; Linux reassembles for 30 s
	heldFrames  = 512         // of a loop: 2 MiB at most
	heldChain   = 4           // frames of a packet
	heldSources = 256         // buckets by which sources are counted
	heldIndex   = 1024        // buckets by which datagrams are found
	heldSearch  = 32          // datagrams of a source bucket among which the oldest of a sender is looked for
)

// heldFragment is a slot: a fragment that waits, in the list of its datagram.
type heldFragment struct {
	d    [heldChain]packet.Desc
	n    uint8 // descriptors
	next int16 // slot of the next fragment of the datagram, or of the next free slot; -1 is none
}

// heldDatagram is a datagram of which fragments are held.
type heldDatagram struct {
	key            fragmentKey
	came           coverage // by what is held
	oldest, newest int16    // slots, in the order in which the fragments came
	first          int16    // slot of the first fragment, -1 where it is not held
	frames         int16
	asked          bool // there are other handlers, so one of them may have the first when the time is over
	other          bool // the first went to another handler of the loop
	until          ticks

	next   int16    // the next datagram of the index's bucket, or the next free one; -1 is none
	queue  heldLink // in waiting or ready
	source heldLink // in the bucket of its sender
}

// heldLink is a place in a list; -1 is none.
type heldLink struct{ before, after int16 }

// heldList is a list of datagrams, oldest first.
type heldList struct{ oldest, newest int16 }

// heldFragments are the fragments that a loop holds.
type heldFragments struct {
	slots     []heldFragment
	free      int16
	datagrams []heldDatagram
	unused    int16 // the first free datagram
	index     [heldIndex]int16
	key       hashKey

	waiting heldList // all live equally long, so the oldest ends first
	ready   heldList // the first has come, or all of it

	frames  int
	any     atomic.Int32 // the same, for other loops
	buckets [heldSources]heldList
	most    [heldSources]uint16 // frames of each bucket

	deciding bool // about one that was held: it is not held again
	closed   bool // the loop ends: none is held any more
}

func newHeldFragments(seed *random.Source) *heldFragments {
	f := &heldFragments{
		slots: make([]heldFragment, heldFrames), datagrams: make([]heldDatagram, heldFrames), key: newHashKey(seed),
		waiting: heldList{-1, -1}, ready: heldList{-1, -1},
	}
	for i := range f.slots {
		f.slots[i].next, f.datagrams[i].next = int16(i)+1, int16(i)+1
	}
	f.slots[heldFrames-1].next, f.datagrams[heldFrames-1].next = -1, -1
	for i := range f.buckets {
		f.buckets[i] = heldList{-1, -1}
	}
	for i := range f.index {
		f.index[i] = -1
	}
	return f
}

// queueLink and sourceLink are the links of the two kinds of lists.
func queueLink(e *heldDatagram) *heldLink  { return &e.queue }
func sourceLink(e *heldDatagram) *heldLink { return &e.source }

// append adds datagram i to a list.
func (f *heldFragments) append(l *heldList, i int16, link func(*heldDatagram) *heldLink) {
	*link(&f.datagrams[i]) = heldLink{l.newest, -1}
	if l.newest < 0 {
		l.oldest = i
	} else {
		link(&f.datagrams[l.newest]).after = i
	}
	l.newest = i
}

// remove takes datagram i off its list.
func (f *heldFragments) remove(l *heldList, i int16, link func(*heldDatagram) *heldLink) {
	at := *link(&f.datagrams[i])
	if at.before < 0 {
		l.oldest = at.after
	} else {
		link(&f.datagrams[at.before]).after = at.after
	}
	if at.after < 0 {
		l.newest = at.before
	} else {
		link(&f.datagrams[at.after]).before = at.before
	}
}

// sourceOf returns the bucket of the sender of a datagram.
func (f *heldFragments) sourceOf(k *fragmentKey) uint64 {
	return f.key.sum(k.sender(), 0) >> 32 % heldSources
}

// at returns the bucket of the index in which a datagram is.
func (f *heldFragments) at(k *fragmentKey) *int16 {
	return &f.index[(f.key.sum(k.src, uint64(k.id)<<8|uint64(k.proto))^f.key.sum(k.dst, 1))>>32%heldIndex]
}

// find returns the datagram of which fragments are held, -1 where there are none.
func (f *heldFragments) find(k *fragmentKey) int16 {
	i := *f.at(k)
	for i >= 0 && f.datagrams[i].key != *k {
		i = f.datagrams[i].next
	}
	return i
}

// push holds the packet d, a fragment of datagram i, or of a new one (-1), and returns the datagram. There is a free slot.
func (f *heldFragments) push(i int16, h *fragmentHeader, d []packet.Desc, until ticks, asked bool) int16 {
	if i < 0 {
		i = f.add(&h.key, until, asked)
	}
	e := &f.datagrams[i]
	e.came.add(h)
	slot := f.free
	s := &f.slots[slot]
	f.free = s.next
	s.n, s.next = uint8(len(d)), -1
	copy(s.d[:], d)
	if e.newest < 0 {
		e.oldest = slot
	} else {
		f.slots[e.newest].next = slot
	}
	e.newest = slot
	if h.at == 0 {
		e.first = slot
	}
	e.frames += int16(len(d))
	f.count(e, len(d))
	return i
}

// add makes a datagram of which nothing is held yet.
func (f *heldFragments) add(k *fragmentKey, until ticks, asked bool) int16 {
	i := f.unused
	e := &f.datagrams[i]
	f.unused = e.next
	at := f.at(k)
	*e = heldDatagram{key: *k, oldest: -1, newest: -1, first: -1, until: until, asked: asked, next: *at}
	*at = i
	f.append(&f.waiting, i, queueLink)
	f.append(&f.buckets[f.sourceOf(k)], i, sourceLink)
	return i
}

// count adds n to the frames of a datagram's sender.
func (f *heldFragments) count(e *heldDatagram, n int) {
	f.most[f.sourceOf(&e.key)] += uint16(n)
	f.frames += n
	f.any.Store(int32(f.frames))
}

// take removes datagram i, which is in list l. Its fragments are the caller's, who passes each to release.
func (f *heldFragments) take(l *heldList, i int16) *heldDatagram {
	e := &f.datagrams[i]
	f.remove(l, i, queueLink)
	f.remove(&f.buckets[f.sourceOf(&e.key)], i, sourceLink)
	f.count(e, -int(e.frames))
	at := f.at(&e.key)
	for *at != i {
		at = &f.datagrams[*at].next
	}
	*at = e.next
	e.next, f.unused = f.unused, i
	return e
}

// release frees a slot, whose fragment has been decided.
func (f *heldFragments) release(slot int16) {
	f.slots[slot].next, f.free = f.free, slot
}

// makeReady moves datagram i to those that Tick decides.
func (f *heldFragments) makeReady(i int16) {
	if e := &f.datagrams[i]; e.until != 0 {
		e.until = 0
		f.remove(&f.waiting, i, queueLink)
		f.append(&f.ready, i, queueLink)
	}
}

// listOf returns the list in which a datagram is.
func (f *heldFragments) listOf(i int16) *heldList {
	if f.datagrams[i].until == 0 {
		return &f.ready
	}
	return &f.waiting
}

// victim returns the datagram that makes room: in the bucket that holds most frames, the oldest one of the sender of its
// newest, or that one where others are older. So others in the bucket of a flood lose nothing to it.
func (f *heldFragments) victim() int16 {
	most := 0
	for i, n := range f.most {
		if n > f.most[most] {
			most = i
		}
	}
	b := &f.buckets[most]
	sender := f.datagrams[b.newest].key.sender()
	i := b.oldest
	for n := 0; f.datagrams[i].key.sender() != sender; n++ {
		if n == heldSearch {
			return b.newest
		}
		i = f.datagrams[i].source.after
	}
	return i
}

// overlaps reports whether a fragment of the datagram that is held begins before byte end.
func (f *heldFragments) overlaps(k *fragmentKey, end int) bool {
	i := f.find(k)
	return i >= 0 && f.datagrams[i].came.begins(end)
}

// hold keeps a fragment whose first has not come, and returns its datagram. A loop that is handed fragments by the one
// where they meet holds none: the first came there, and was dropped here or is forgotten. A fragment that overlaps others
// has all of the datagram dropped.
func (h defragmenter) hold(f *fragmentHeader) (int16, packet.Verdict) {
	n := packet.Chain(h.chain)
	if h.out == nil || h.held.closed || h.held.deciding || n == 0 || n > heldChain || h.meetingLoop(&f.key) != h.loop {
		return -1, packet.DropFragment
	}
	i := h.held.find(&f.key)
	if i >= 0 {
		came := h.held.datagrams[i].came
		switch came.add(f) {
		case overlaps:
			h.fragments.add(datagram{key: f.key, rejected: true}, h.now)
			h.endHeld(i)
			return -1, packet.DropFragment
		case copied, scattered:
			return -1, packet.DropFragment
		}
	}
	for h.held.frames+n > heldFrames {
		victim := h.held.victim()
		h.endHeld(victim)
		if victim == i {
			i = -1
		}
	}
	return h.held.push(i, f, h.chain[:n], max(h.now+ticksIn(heldLife), 1), h.offered == toFirst), packet.Hold
}

// holdWhole keeps a fragment, and lets the datagram go where all of it is held: Tick decides the first, and then the
// others.
func (h defragmenter) holdWhole(f *fragmentHeader) packet.Verdict {
	i, verdict := h.hold(f)
	if verdict == packet.Hold && h.held.datagrams[i].came.whole() {
		h.held.makeReady(i)
		h.out.RequestTick()
	}
	return verdict
}

// endHeld drops a datagram that is held.
func (h defragmenter) endHeld(i int16) {
	h.eachHeld(i, h.endFragment)
}

// endFragment drops a fragment that was held.
func (h defragmenter) endFragment(s *heldFragment) {
	h.batch[packet.DropFragment]++
	h.resume(s, packet.DropFragment)
}

// eachHeld takes datagram i and passes on its fragments: the first, where it is held, and then those that came before it.
func (h defragmenter) eachHeld(i int16, decide func(s *heldFragment)) {
	f := h.held
	e := f.take(f.listOf(i), i)
	first, slot := e.first, e.oldest // the datagram is free from here on
	if first >= 0 {
		decide(&f.slots[first])
	}
	for slot >= 0 {
		next := f.slots[slot].next
		if slot != first {
			decide(&f.slots[slot])
		}
		f.release(slot)
		slot = next
	}
}

// resume has the loop carry out the verdict on a fragment that was held. The first descriptor has it in full; what the
// packet needs no more of the others is released.
func (h defragmenter) resume(s *heldFragment, verdict packet.Verdict) {
	d := s.d[:s.n]
	d[0].Verdict = verdict
	cut := len(d) > 1 && !d[0].Flags.Has(packet.FlagMore)
	for i := range d[1:] {
		d[1+i].Verdict, d[1+i].Port = verdict, d[0].Port
		if cut {
			d[1+i].Verdict = packet.Release
			d[1+i].Flags &^= packet.FlagMore
		}
	}
	h.out.Resume(d)
}

// firstCame marks what is held of a datagram as ready, whatever became of the first: Tick decides it, after the
// packets of this batch have left, or has it offered to the other handler that the first went to.
func (h defragmenter) firstCame(k *fragmentKey, other bool) {
	if h.held.frames == 0 {
		return
	}
	if i := h.held.find(k); i >= 0 {
		h.held.datagrams[i].other = other
		h.held.makeReady(i)
		h.out.RequestTick()
	}
}

// sweepHeld decides the held fragments whose first has come, in the order in which they came, or passes them on, and drops
// those whose time is over.
func (h defragmenter) sweepHeld() {
	f := h.held
	for f.ready.oldest >= 0 {
		i := f.ready.oldest
		switch e := &f.datagrams[i]; {
		case e.other:
			h.eachHeld(i, h.passOn)
		case e.first >= 0 && e.asked: // whole: another handler may have it, and gets the first then
			h.decline(&e.key)
			h.eachHeld(i, h.passOn)
		default:
			h.eachHeld(i, h.decideHeld)
		}
	}
	for f.waiting.oldest >= 0 {
		i := f.waiting.oldest
		e := &f.datagrams[i]
		if !e.until.expired(h.now) {
			break
		}
		if !e.asked {
			h.endHeld(i)
			continue
		}
		h.decline(&e.key)
		h.eachHeld(i, h.passOn)
	}
}

// decideHeld decides a fragment whose first has come.
func (h defragmenter) decideHeld(s *heldFragment) {
	h.chain, h.looked = s.d[:s.n], &notLookedUp
	h.held.deciding = true
	verdict := h.fragment(&s.d[0], h.arena.Bytes(&s.d[0]))
	h.held.deciding = false
	h.batch[verdict]++
	h.resume(s, verdict)
}

// decline has the fragments of a datagram offered to another handler, whose first has not come here: the Dispatcher of
// another loop may have sent it there.
func (h defragmenter) decline(k *fragmentKey) {
	if h.fragments.find(k, h.now) == nil {
		h.fragments.add(datagram{key: *k, declined: true}, h.now)
	}
}

// passOn has a fragment that was held come to the loop's handlers again.
func (h defragmenter) passOn(s *heldFragment) {
	if !h.out.Repeat(s.d[:s.n]) {
		h.endFragment(s)
	}
}

// dropHeld ends all that is held: the loop ends.
func (h defragmenter) dropHeld() {
	h.held.closed = true
	for h.held.frames > 0 {
		i := h.held.ready.oldest
		if i < 0 {
			i = h.held.waiting.oldest
		}
		h.endHeld(i)
	}
	h.publish()
}
