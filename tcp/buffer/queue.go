package buffer

import "github.com/millrace/millrace/tcp/seqnum"

// Queue holds what was written and is not acknowledged, in chunks: copies, or slices of the
// application that are sent in place.
type Queue struct {
	base   uint32  // sequence number of the first byte held
	end    uint32  // and behind the last
	chunks []chunk // in order; chunks[:head] are gone
	head   int

	_ [24]byte // fills a cache line: the next Queue in memory may belong to another loop, on another core
}

// chunk is a piece of the stream.
type chunk struct {
	seq   uint32 // of its first byte
	owned bool   // data is from the Pool, and more may be appended
	data  []byte
	done  func() // of a lent one
}

// Chunks of copies are as large as what is written, within these bounds: small writes share
// one, and a large one is not split into pieces that segments would straddle.
const (
	minChunk = 1 << minBufferShift
	maxChunk = 64 << 10
)

// Len returns how many bytes are held.
func (q *Queue) Len() int { return int(q.end - q.base) }

// Empty reports whether the queue holds nothing.
func (q *Queue) Empty() bool { return q.base == q.end }

// Reset prepares an empty queue whose first byte has number seq.
func (q *Queue) Reset(seq uint32) { q.base, q.end = seq, seq }

// ReleaseAll drops all that is held.
func (q *Queue) ReleaseAll(p *Pool) { q.Release(p, q.end) }

// Write appends copies of b and returns how many bytes the budget allowed.
func (q *Queue) Write(p *Pool, b []byte) int {
	total := 0
	for len(b) > 0 {
		n := q.fill(b)
		if n == 0 {
			if !q.extend(p, len(b)) {
				break
			}
			continue
		}
		b = b[n:]
		total += n
	}
	return total
}

// fill appends to the last chunk what fits.
func (q *Queue) fill(b []byte) int {
	if q.head == len(q.chunks) {
		return 0
	}
	k := &q.chunks[len(q.chunks)-1]
	if !k.owned {
		return 0
	}
	n := min(cap(k.data)-len(k.data), len(b))
	k.data = append(k.data, b[:n]...)
	q.end += uint32(n)
	return n
}

// extend adds an empty chunk, of twice the size of the last while the queue grows.
func (q *Queue) extend(p *Pool, need int) bool {
	buf := q.NewChunk(p, need)
	if buf == nil {
		return false
	}
	q.push(chunk{seq: q.end, owned: true, data: buf[:0]})
	return true
}

// NewChunk returns memory for need bytes or, of many, a part, for AppendChunk; nil where the budget allows none.
func (q *Queue) NewChunk(p *Pool, need int) []byte {
	size := max(min(need, maxChunk), minChunk)
	if q.head < len(q.chunks) {
		size = max(size, min(2*cap(q.chunks[len(q.chunks)-1].data), maxChunk))
	}
	if q.head == len(q.chunks) {
		return p.getFirstQueued(size)
	}
	if buf := p.getQueued(size); buf != nil {
		return buf
	}
	return p.getQueued(minChunk)
}

// FreeChunk takes back what NewChunk returned.
func (p *Pool) FreeChunk(b []byte) { p.putQueued(b) }

// Tail returns the free bytes of the last chunk. They are borrowed until the next call.
func (q *Queue) Tail() []byte {
	if q.head == len(q.chunks) {
		return nil
	}
	k := &q.chunks[len(q.chunks)-1]
	if !k.owned {
		return nil
	}
	return k.data[len(k.data):cap(k.data)]
}

// AppendTail appends the first n bytes of Tail, which the caller has written.
func (q *Queue) AppendTail(n int) {
	if n == 0 {
		return
	}
	k := &q.chunks[len(q.chunks)-1]
	k.data = k.data[:len(k.data)+n]
	q.end += uint32(n)
}

// sparsePart is the part of a chunk below which its bytes are copied to a smaller one.
const sparsePart = 4

// AppendChunk appends the first n bytes of b, which NewChunk has returned and the caller has written. It takes b. Few bytes
// in a large chunk are copied, since it would be kept until they are acknowledged.
func (q *Queue) AppendChunk(p *Pool, b []byte, n int) {
	if n*sparsePart <= len(b) && len(b) > minChunk {
		if small := p.getQueued(max(n, minChunk)); small != nil {
			copy(small, b[:n])
			p.putQueued(b)
			b = small
		}
	}
	q.push(chunk{seq: q.end, owned: true, data: b[:n]})
	q.end += uint32(n)
}

// AppendZeroCopy appends b itself. done, where not nil, is called when b is no longer
// needed.
func (q *Queue) AppendZeroCopy(b []byte, done func()) {
	q.push(chunk{seq: q.end, data: b, done: done})
	q.end += uint32(len(b))
}

// push adds a chunk. Chunks that were released at the front make room before the slice
// grows.
func (q *Queue) push(k chunk) {
	if q.head > 0 && len(q.chunks) == cap(q.chunks) {
		n := copy(q.chunks, q.chunks[q.head:])
		clear(q.chunks[n:])
		q.chunks, q.head = q.chunks[:n], 0
	}
	q.chunks = append(q.chunks, k)
}

// find returns the index of the chunk that holds seq, which is in the queue.
func (q *Queue) find(seq uint32) int {
	lo, hi := q.head, len(q.chunks)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if seqnum.AtOrBefore(q.chunks[mid].seq, seq) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// Slice borrows at most n bytes from seq on, in two pieces; fewer where they lie in more
// chunks. total is how many there are.
func (q *Queue) Slice(seq uint32, n int) (pieces [2][]byte, total int) {
	i := q.find(seq)
	for k := 0; k < 2 && n > 0 && i < len(q.chunks); k++ {
		c := &q.chunks[i]
		b := c.data[seq-c.seq:]
		b = b[:min(len(b), n)]
		pieces[k] = b
		n -= len(b)
		total += len(b)
		seq += uint32(len(b))
		i++
	}
	return pieces, total
}

// Release drops what lies before seq. A chunk is freed when all of it was released.
func (q *Queue) Release(p *Pool, seq uint32) {
	for q.head < len(q.chunks) {
		k := &q.chunks[q.head]
		if seqnum.Before(seq, k.seq+uint32(len(k.data))) {
			break
		}
		k.free(p)
		*k = chunk{}
		q.head++
	}
	q.base = seq
	if q.head == len(q.chunks) {
		q.chunks, q.head = q.chunks[:0], 0
	}
}

// free returns the chunk's memory to its owner.
func (k *chunk) free(p *Pool) {
	if k.owned {
		p.putQueued(k.data[:cap(k.data)])
	}
	if k.done != nil {
		k.done()
	}
}
