package buffer

import (
	"slices"
	"unsafe"

	"github.com/millrace/millrace/tcp/seqnum"
)

// Ring holds the bytes that were received and not read, each at its sequence number modulo
// the ring's size. So data that arrives out of order lies where it will be read, and
// filling a gap moves nothing.
//
//	base          base+n                 (sequence numbers)
//	 | readable     | gap | ooo[0] | gap | ooo[1] | ...
type Ring struct {
	buf   []byte // length a power of two; nil while nothing is held
	base  uint32 // the first byte that was not read
	n     uint32 // bytes that can be read
	ooo   []Span
	clock uint32 // counts arrivals out of order

	// While data out of order is held: what it takes of the Pool's part for such data, and
	// the place in the Pool's list.
	outOfOrderBytes int // bytes of buf beyond what the readable ones need
	older, newer    *Ring
	Holder          uint32 // number of the connection, for package tcp when it reclaims the memory
	Since           int64  // when the first gap came to be, as the caller of AddRange counts time

	_ [24]byte // fills a cache line, as that of Queue
}

// Span is a range of data that arrived before what lies ahead of it.
type Span struct {
	Left, Right uint32
	grownAt     uint32 // Ring.clock when it last grew
}

// MaxRanges bounds the list of ranges. A peer that sends many tiny ones gets the excess
// discarded (RFC 2018 8 allows it).
const MaxRanges = 1024

// Next returns the sequence number behind the readable bytes.
func (r *Ring) Next() uint32 { return r.base + r.n }

// End returns the sequence number behind all that is held.
func (r *Ring) End() uint32 {
	if k := len(r.ooo); k > 0 {
		return r.ooo[k-1].Right
	}
	return r.Next()
}

// Base returns the sequence number of the first byte that was not read.
func (r *Ring) Base() uint32 { return r.base }

// Readable returns how many bytes can be read.
func (r *Ring) Readable() uint32 { return r.n }

// OutOfOrder returns the ranges behind the first gap, in order. They are borrowed until the
// next call.
func (r *Ring) OutOfOrder() []Span { return r.ooo }

// Empty reports whether nothing is held, in order or not.
func (r *Ring) Empty() bool { return r.n == 0 && len(r.ooo) == 0 }

// Reset prepares an empty ring for bytes from seq on.
func (r *Ring) Reset(seq uint32) { r.base = seq }

// Free returns the ring's memory to p and forgets what it held. The ring can be used again
// after Reset.
func (r *Ring) Free(p *Pool) {
	r.ooo = r.ooo[:0]
	if r.outOfOrderBytes > 0 {
		r.charge(p)
	}
	if r.buf != nil {
		p.put(r.buf)
		r.buf = nil
	}
	r.base, r.n = 0, 0
}

// Reserve makes room for bytes in order, behind the readable ones, up to right. It returns
// up to where there is room: less than right where the budget allows no more, and Next where
// there is none at all.
func (r *Ring) Reserve(p *Pool, right uint32) uint32 {
	need := int(right - r.base)
	if need <= len(r.buf) {
		return right
	}
	if r.buf == nil {
		r.buf = p.getFirst(need)
	} else if b := p.get(need, p.ringLimit()); b != nil {
		r.move(p, b)
	}
	return r.base + uint32(min(need, len(r.buf)))
}

// ReserveOutOfOrder makes room for bytes behind a gap, up to right. False is that there is
// no memory for them.
func (r *Ring) ReserveOutOfOrder(p *Pool, left, right uint32) bool {
	need := int(right - r.base)
	if need <= len(r.buf) {
		return true
	}
	b := p.getOutOfOrder(need, r.held()+int(right-left), r.outOfOrderBytes)
	if b == nil {
		return false
	}
	r.move(p, b)
	return true
}

// held returns how many bytes the ring holds.
func (r *Ring) held() int {
	n := r.n
	for _, g := range r.ooo {
		n += g.Right - g.Left
	}
	return int(n)
}

// move copies all that is held to another buffer, and gives the old one back.
func (r *Ring) move(p *Pool, b []byte) {
	old := r.buf
	r.buf = b
	if old == nil {
		return
	}
	r.copyFrom(old, r.base, r.n)
	for _, g := range r.ooo {
		r.copyFrom(old, g.Left, g.Right-g.Left)
	}
	p.put(old)
	r.charge(p)
}

// charge counts what data out of order takes: the bytes of the ring beyond those that the
// readable ones need. It is called wherever that may have changed.
func (r *Ring) charge(p *Pool) {
	n := 0
	if len(r.ooo) > 0 {
		n = len(r.buf)
		if r.n > 0 {
			n -= classSize(int(r.n))
		}
		n = max(n, 1) // in the list, even where it needs nothing
	}
	p.outOfOrder += int64(n - r.outOfOrderBytes)
	switch {
	case r.outOfOrderBytes == 0 && n > 0:
		p.link(r)
	case r.outOfOrderBytes > 0 && n == 0:
		p.unlink(r)
	}
	r.outOfOrderBytes = n
}

// copyFrom copies n bytes at seq from the buffer of a ring of another size.
func (r *Ring) copyFrom(old []byte, seq, n uint32) {
	at := int(seq) & (len(old) - 1)
	first := min(int(n), len(old)-at)
	r.put(seq, old[at:at+first])
	r.put(seq+uint32(first), old[:int(n)-first])
}

// put copies b to where seq lies.
func (r *Ring) put(seq uint32, b []byte) {
	at := int(seq) & (len(r.buf) - 1)
	n := copy(r.buf[at:], b)
	copy(r.buf, b[n:])
}

// Store copies bytes skip to skip+n of payload to seq on. Reserve has made room for them.
func (r *Ring) Store(seq uint32, payload [][]byte, skip, n uint32) {
	for _, b := range payload {
		if skip >= uint32(len(b)) {
			skip -= uint32(len(b))
			continue
		}
		b = b[skip:]
		skip = 0
		if uint32(len(b)) > n {
			b = b[:n]
		}
		r.put(seq, b)
		seq += uint32(len(b))
		n -= uint32(len(b))
		if n == 0 {
			return
		}
	}
}

// Gather copies the bytes of payload from skip on to b, which is not longer than they are.
func Gather(b []byte, payload [][]byte, skip uint32) {
	for _, p := range payload {
		if skip >= uint32(len(p)) {
			skip -= uint32(len(p))
			continue
		}
		n := copy(b, p[skip:])
		if b, skip = b[n:], 0; len(b) == 0 {
			return
		}
	}
}

// Room borrows the memory of the n bytes from seq on, in two pieces, which Reserve has made room for.
func (r *Ring) Room(seq, n uint32) [2][]byte {
	at := seq & uint32(len(r.buf)-1)
	first := min(n, uint32(len(r.buf))-at)
	return [2][]byte{r.buf[at:][:first:first], r.buf[: n-first : n-first]}
}

// Memory names the buffer of the ring: it is another one once the ring has grown.
func (r *Ring) Memory() *byte { return unsafe.SliceData(r.buf) }

// Fits reports whether the ring has room up to right without another buffer.
func (r *Ring) Fits(right uint32) bool { return int(right-r.base) <= len(r.buf) }

// Advance makes n stored bytes readable that lie behind the readable ones, and the ranges
// that they reach.
func (r *Ring) Advance(p *Pool, n uint32) {
	r.n += n
	k := 0
	for k < len(r.ooo) && seqnum.AtOrBefore(r.ooo[k].Left, r.Next()) {
		r.n += seqnum.Distance(r.Next(), r.ooo[k].Right)
		k++
	}
	if k > 0 {
		r.ooo = slices.Delete(r.ooo, 0, k)
	}
	if r.outOfOrderBytes > 0 {
		r.charge(p)
	}
}

// FirstOverlap returns the first part of [Next, right) that was there already, behind the
// gap; an empty Span where there is none.
func (r *Ring) FirstOverlap(right uint32) Span {
	if len(r.ooo) == 0 || !seqnum.Before(r.ooo[0].Left, right) {
		return Span{}
	}
	return Span{Left: r.ooo[0].Left, Right: seqnum.Earliest(r.ooo[0].Right, right)}
}

// reached returns the index of the first range that ends at or behind left. The newest data
// is most often the last; a peer that puts it elsewhere costs a binary search.
func (r *Ring) reached(left uint32) int {
	k := len(r.ooo)
	if k == 0 || seqnum.Before(r.ooo[k-1].Right, left) {
		return k
	}
	lo, hi := 0, k-1
	for lo < hi {
		mid := (lo + hi) / 2
		if seqnum.Before(r.ooo[mid].Right, left) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// AddRange notes that [left, right) was stored behind a gap. dup is the first part of it
// that was there already. It is false when the list is full.
func (r *Ring) AddRange(now int64, p *Pool, left, right uint32) (dup Span, ok bool) {
	i := r.reached(left)
	j := i
	r.clock++
	g := Span{left, right, r.clock}
	for j < len(r.ooo) && seqnum.AtOrBefore(r.ooo[j].Left, right) {
		o := r.ooo[j]
		if dup.Left == dup.Right {
			dup = Span{Left: seqnum.Latest(left, o.Left), Right: seqnum.Earliest(right, o.Right)}
		}
		g.Left, g.Right = seqnum.Earliest(g.Left, o.Left), seqnum.Latest(g.Right, o.Right)
		j++
	}
	if i == j && len(r.ooo) >= MaxRanges {
		return dup, false
	}
	if len(r.ooo) == 0 {
		r.Since = now
	}
	r.ooo = slices.Replace(r.ooo, i, j, g)
	r.charge(p)
	return dup, true
}

// NewestRanges fills blocks with the ranges that grew last, the newest first (RFC 2018 4),
// and returns how many there are.
func (r *Ring) NewestRanges(blocks []Span) int {
	n := 0
	for _, g := range r.ooo {
		i := n
		for i > 0 && int32(g.grownAt-blocks[i-1].grownAt) > 0 {
			i--
		}
		if i == len(blocks) {
			continue
		}
		n = min(n+1, len(blocks))
		copy(blocks[i+1:n], blocks[i:])
		blocks[i] = g
	}
	return n
}

// Peek borrows the readable bytes, in order in two pieces.
func (r *Ring) Peek() [2][]byte {
	if r.n == 0 {
		return [2][]byte{}
	}
	at := r.base & uint32(len(r.buf)-1)
	first := min(r.n, uint32(len(r.buf))-at)
	return [2][]byte{r.buf[at : at+first], r.buf[:r.n-first]}
}

// Copy copies readable bytes to b and returns how many.
func (r *Ring) Copy(b []byte) int {
	n := min(len(b), int(r.n))
	if n == 0 {
		return 0
	}
	at := int(r.base) & (len(r.buf) - 1)
	first := copy(b[:n], r.buf[at:])
	if first < n {
		copy(b[first:n], r.buf)
	}
	return n
}

// Discard drops n readable bytes.
func (r *Ring) Discard(p *Pool, n uint32) {
	r.base += n
	r.n -= n
	if r.outOfOrderBytes > 0 {
		r.charge(p)
	}
}

// Prune drops what arrived out of order, with the memory that only it needed, and returns
// how many bytes that were.
func (r *Ring) Prune(p *Pool) (n uint32) {
	for _, g := range r.ooo {
		n += g.Right - g.Left
	}
	r.ooo = r.ooo[:0]
	r.charge(p)
	if r.n > 0 && classSize(int(r.n)) < len(r.buf) {
		if b := p.get(int(r.n), p.Budget); b != nil {
			r.move(p, b)
		}
	}
	return n
}
