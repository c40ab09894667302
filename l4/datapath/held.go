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
// are used up, the source that holds most loses its oldest: sources are counted by a keyed hash, so a flood from
// one address, or from few, takes nothing from others.
const (
	heldLife    = time.Second // reordering takes milliseconds; Linux reassembles for 30 s
	heldFrames  = 512         // of a loop: 2 MiB at most
	heldChain   = 4           // frames of a packet
	heldSources = 256         // buckets by which sources are counted
)

// heldFragment is a slot: a fragment that waits, in the list of its bucket.
type heldFragment struct {
	key   fragmentKey
	d     [heldChain]packet.Desc
	n     uint8 // descriptors; 0 is a free slot
	ready bool  // the first has come
	other bool  // it went to another handler of the loop
	asked bool  // there are other handlers, so one of them may have the first when the time is over
	at    int   // where the data begins in the datagram
	end   int   // and where it ends
	last  bool  // of the datagram
	until ticks
	next  int16 // slot of the next one of the bucket, or of the next free one; -1 is none
}

// heldFragments are the fragments that a loop holds.
type heldFragments struct {
	slots   []heldFragment
	free    int16
	frames  int
	any     atomic.Int32 // the same, for other loops
	buckets [heldSources]heldBucket
	key     hashKey
	ready   bool // some are

	deciding bool // about one that was held: it is not held again
	closed   bool // the loop ends: none is held any more
}

// heldBucket is a list, oldest first, of the fragments of some sources.
type heldBucket struct {
	oldest, newest int16 // -1 is none
	frames         int
}

func newHeldFragments(seed *random.Source) *heldFragments {
	f := &heldFragments{slots: make([]heldFragment, heldFrames), key: newHashKey(seed)}
	for i := range f.slots {
		f.slots[i].next = int16(i) + 1
	}
	f.slots[heldFrames-1].next = -1
	for i := range f.buckets {
		f.buckets[i] = heldBucket{-1, -1, 0}
	}
	return f
}

// bucket returns the bucket of the sender of a datagram.
func (f *heldFragments) bucket(k *fragmentKey) *heldBucket {
	return &f.buckets[f.key.sum(k.sender(), 0)>>32%heldSources]
}

// push holds the packet d, for which there is a free slot.
func (f *heldFragments) push(h *fragmentHeader, d []packet.Desc, until ticks, asked bool) {
	k := &h.key
	i := f.free
	s := &f.slots[i]
	f.free = s.next
	*s = heldFragment{key: *k, n: uint8(len(d)), at: h.at, end: h.end, last: !h.more, until: until, asked: asked, next: -1}
	copy(s.d[:], d)
	b := f.bucket(k)
	if b.newest < 0 {
		b.oldest = i
	} else {
		f.slots[b.newest].next = i
	}
	b.newest = i
	b.frames += len(d)
	f.frames += len(d)
	f.any.Store(int32(f.frames))
}

// take removes slot i, whose predecessor in bucket b is before (-1 is none), and returns its fragment. The slot is valid
// until the next push.
func (f *heldFragments) take(b *heldBucket, before, i int16) *heldFragment {
	s := &f.slots[i]
	if before < 0 {
		b.oldest = s.next
	} else {
		f.slots[before].next = s.next
	}
	if b.newest == i {
		b.newest = before
	}
	b.frames -= int(s.n)
	f.frames -= int(s.n)
	f.any.Store(int32(f.frames))
	s.next, f.free = f.free, i
	return s
}

// largest returns the bucket that holds most frames.
func (f *heldFragments) largest() *heldBucket {
	most := &f.buckets[0]
	for i := range f.buckets {
		if f.buckets[i].frames > most.frames {
			most = &f.buckets[i]
		}
	}
	return most
}

// oldest returns the slot of the oldest fragment in bucket b from the sender of its newest, and the slot before it (-1 is
// none). So others in the bucket of a flood lose nothing to it.
func (f *heldFragments) oldest(b *heldBucket) (before, i int16) {
	sender := f.slots[b.newest].key.sender()
	before, i = -1, b.oldest
	for f.slots[i].key.sender() != sender {
		before, i = i, f.slots[i].next
	}
	return before, i
}

// overlaps reports whether a fragment of the datagram that is held begins before byte end.
func (f *heldFragments) overlaps(k *fragmentKey, end int) bool {
	for i := f.bucket(k).oldest; i >= 0; i = f.slots[i].next {
		if s := &f.slots[i]; s.key == *k && s.at < end {
			return true
		}
	}
	return false
}

// hold keeps a fragment whose first has not come. A loop that is handed fragments by the one where they meet holds none:
// the first came there, and was dropped here or is forgotten.
func (h defragmenter) hold(f *fragmentHeader) packet.Verdict {
	n := packet.Chain(h.chain)
	if h.out == nil || h.held.closed || h.held.deciding || n == 0 || n > heldChain || h.meetingLoop(&f.key) != h.loop {
		return packet.DropFragment
	}
	for h.held.frames+n > heldFrames {
		b := h.held.largest()
		before, i := h.held.oldest(b)
		h.endHeld(h.held.take(b, before, i))
	}
	h.held.push(f, h.chain[:n], h.now+ticksIn(heldLife), h.offered == toFirst)
	return packet.Hold
}

// whole returns the slot of the first fragment of a datagram of which all is held, -1 where some is missing. It follows the
// fragments from the first on, in as many passes over the bucket as there are fragments.
func (f *heldFragments) whole(k *fragmentKey) (first int16) {
	first = -1
	for at, found := 0, true; found; {
		found = false
		for i := f.bucket(k).oldest; i >= 0; i = f.slots[i].next {
			s := &f.slots[i]
			if s.key != *k || s.at > at || s.end <= at {
				continue
			}
			if s.at == 0 && first < 0 {
				first = i
			}
			if s.last {
				return first
			}
			at, found = s.end, true
		}
	}
	return -1
}

// holdWhole keeps a fragment, and lets the datagram go where all of it is held: Tick decides the first, and the others
// follow it.
func (h defragmenter) holdWhole(f *fragmentHeader) packet.Verdict {
	verdict := h.hold(f)
	if verdict != packet.Hold {
		return verdict
	}
	if first := h.held.whole(&f.key); first >= 0 {
		h.held.slots[first].ready, h.held.ready = true, true
		h.out.RequestTick()
	}
	return verdict
}

// endHeld drops a fragment that was held.
func (h defragmenter) endHeld(s *heldFragment) {
	h.batch[packet.DropFragment]++
	h.resume(s, packet.DropFragment)
}

// resume has the loop carry out the verdict on a fragment that was held. The first descriptor has it in full; what the
// packet needs no more of the others is released.
func (h defragmenter) resume(s *heldFragment, verdict packet.Verdict) {
	d := s.d[:s.n]
	s.n = 0
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
	for i := h.held.bucket(k).oldest; i >= 0; i = h.held.slots[i].next {
		if s := &h.held.slots[i]; s.key == *k {
			s.ready, s.other, h.held.ready = true, other, true
		}
	}
	if h.held.ready {
		h.out.RequestTick()
	}
}

// sweepHeld decides the held fragments whose first has come, in the order in which they came, or passes them on, and drops
// those whose time is over.
func (h defragmenter) sweepHeld() {
	if h.held.frames == 0 {
		return
	}
	h.held.ready = false
	for i := range h.held.buckets {
		b := &h.held.buckets[i]
		before := int16(-1)
		for at := b.oldest; at >= 0; {
			s := &h.held.slots[at]
			next := s.next
			switch {
			case s.ready && s.other:
				h.passOn(h.held.take(b, before, at))
			case s.ready:
				h.decideHeld(h.held.take(b, before, at))
			case s.until.expired(h.now) && s.asked:
				h.decline(&s.key)
				h.passOn(h.held.take(b, before, at))
			case s.until.expired(h.now):
				h.endHeld(h.held.take(b, before, at))
			default:
				before = at
			}
			at = next
		}
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
		h.endHeld(s)
		return
	}
	s.n = 0
}

// dropHeld ends all that is held: the loop ends.
func (h defragmenter) dropHeld() {
	h.held.closed = true
	for i := range h.held.buckets {
		for b := &h.held.buckets[i]; b.oldest >= 0; {
			before, i := h.held.oldest(b)
			h.endHeld(h.held.take(b, before, i))
		}
	}
	h.publish()
}
