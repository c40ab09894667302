package tcp

import "slices"

// receiveRing holds the bytes that were received and not read, each at its sequence number modulo the
// ring's size, so that what comes out of order lies where it will be read. It exists only while there
// is something to hold.
//
//	base          base+n                      (sequence numbers)
//	 | readable     | hole | ranges[0] | hole | ranges[1] | ...
type receiveRing struct {
	buf   []byte // length a power of two; nil while nothing is held
	base  uint32 // the first byte that was not read
	n     uint32 // bytes that can be read
	ooo   []oooRange
	clock uint32 // counts arrivals out of order
}

// oooRange is data that arrived before what lies ahead of it.
type oooRange struct {
	left, right uint32
	touched     uint32 // receiveRing.clock when it last grew
}

// maxOOORanges bounds the list of ranges: a peer that sends many tiny ones gains nothing beyond it.
const maxOOORanges = 1024

// next returns the sequence number behind the readable bytes.
func (r *receiveRing) next() uint32 { return r.base + r.n }

// held returns how far data reaches from base.
func (r *receiveRing) held() uint32 {
	if k := len(r.ooo); k > 0 {
		return r.ooo[k-1].right - r.base
	}
	return r.n
}

// reserve makes room for need bytes from base on; false says that the budget is spent.
func (r *receiveRing) reserve(p *buffers, need uint32) bool {
	if int(need) <= len(r.buf) {
		return true
	}
	b := p.get(int(need))
	if b == nil {
		return false
	}
	old := r.buf
	r.buf = b
	if old == nil {
		return true
	}
	r.copyFrom(old, r.base, r.n)
	for _, g := range r.ooo {
		r.copyFrom(old, g.left, g.right-g.left)
	}
	p.put(old)
	return true
}

// copyFrom copies n bytes at seq from a smaller ring.
func (r *receiveRing) copyFrom(old []byte, seq, n uint32) {
	at := int(seq) & (len(old) - 1)
	first := min(int(n), len(old)-at)
	r.put(seq, old[at:at+first])
	r.put(seq+uint32(first), old[:int(n)-first])
}

// put copies b to where seq lies.
func (r *receiveRing) put(seq uint32, b []byte) {
	at := int(seq) & (len(r.buf) - 1)
	n := copy(r.buf[at:], b)
	copy(r.buf, b[n:])
}

// store copies bytes skip to skip+n of payload to seq on.
func (r *receiveRing) store(seq uint32, payload [][]byte, skip, n uint32) {
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

// join makes readable what is next: n bytes that were stored, and the ranges they reach.
func (r *receiveRing) join(n uint32) {
	r.n += n
	k := 0
	for k < len(r.ooo) && seqUpTo(r.ooo[k].left, r.next()) {
		r.n += seqDistance(r.next(), r.ooo[k].right)
		k++
	}
	if k > 0 {
		r.ooo = slices.Delete(r.ooo, 0, k)
	}
}

// addRange notes that [left, right) was stored behind a hole. dup is what of it had been there, the first
// such range. It is false when the list is full.
func (r *receiveRing) addRange(left, right uint32) (dup oooRange, ok bool) {
	i := len(r.ooo)
	for i > 0 && seqUpTo(left, r.ooo[i-1].right) {
		i-- // the newest data is most often the last
	}
	j := i
	r.clock++
	g := oooRange{left, right, r.clock}
	for j < len(r.ooo) && seqUpTo(r.ooo[j].left, right) {
		o := r.ooo[j]
		if dup.left == dup.right {
			dup = oooRange{left: seqMax(left, o.left), right: seqMin(right, o.right)}
		}
		g.left, g.right = seqMin(g.left, o.left), seqMax(g.right, o.right)
		j++
	}
	if i == j && len(r.ooo) >= maxOOORanges {
		return dup, false
	}
	r.ooo = slices.Replace(r.ooo, i, j, g)
	return dup, true
}

// newestRanges fills blocks with the ranges that grew last, the last one first (RFC 2018 4), and returns how
// many there are.
func (r *receiveRing) newestRanges(blocks []oooRange) int {
	n := 0
	for _, g := range r.ooo {
		i := n
		for i > 0 && int32(g.touched-blocks[i-1].touched) > 0 {
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

// peek lends the readable bytes.
func (r *receiveRing) peek() [2][]byte {
	if r.n == 0 {
		return [2][]byte{}
	}
	at := r.base & uint32(len(r.buf)-1)
	first := min(r.n, uint32(len(r.buf))-at)
	return [2][]byte{r.buf[at : at+first], r.buf[:r.n-first]}
}

// discard drops n readable bytes.
func (r *receiveRing) discard(n uint32) {
	r.base += n
	r.n -= n
}

// prune drops what is out of order and returns how many bytes that were.
func (r *receiveRing) prune() (n uint32) {
	for _, g := range r.ooo {
		n += g.right - g.left
	}
	r.ooo = r.ooo[:0]
	return n
}
