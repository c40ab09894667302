package cache

// The queues of S3-FIFO. New entries go to the small queue, a tenth of the memory. At its end those that were used more than once since
// go to the main queue, and the others leave; their hash stays in the ghost table for a while, and brings them to the main queue at once if
// they come back. At the end of the main queue an entry that was used is entered again, once for each use up to maxHits.
//
// A scan of many URLs fills the small queue alone, and what is in use stays. A hit counts, and moves nothing: so it needs no lock.

const (
	// maxHits bounds the uses of an entry that count: what was popular leaves after as many rounds at most.
	maxHits = 3
	// smallShare is the share of the memory that the small queue has: one part of so many.
	smallShare = 10
	// provenHits is the number of uses with which an entry passes from the small queue to the main one.
	provenHits = 2
)

// queueOf is the queue that an entry is in.
type queueOf uint8

const (
	noQueue queueOf = iota
	smallQueue
	mainQueue
)

// place is the place of an entry in a queue. The mutex of the cache guards it.
type place struct {
	prev, next *Entry
	hash       uint64
	size       int64
	in         queueOf
}

// queue is a list of entries, with what came last at its tail.
type queue struct {
	head, tail *Entry
	bytes      int64
}

func (q *queue) push(e *Entry) {
	e.place.prev, e.place.next = q.tail, nil
	if q.tail == nil {
		q.head = e
	} else {
		q.tail.place.next = e
	}
	q.tail = e
	q.bytes += e.place.size
}

func (q *queue) take(e *Entry) {
	p := &e.place
	if p.prev == nil {
		q.head = p.next
	} else {
		p.prev.place.next = p.next
	}
	if p.next == nil {
		q.tail = p.prev
	} else {
		p.next.place.prev = p.prev
	}
	p.prev, p.next = nil, nil
	q.bytes -= p.size
}

// queues are those of a cache.
type queues struct {
	small, main queue
	most        int64
	// ghost has hashes of URLs that have left the small queue. A newer one takes the place of an older one with the same low bits, so that
	// the table needs neither a list nor a bound.
	ghost []uint64
}

// init sets the bound of the memory, and the places of the ghost table: a power of two.
func (q *queues) init(most int64, ghosts int) { q.most, q.ghost = most, make([]uint64, ghosts) }

func (q *queues) bytes() int64 { return q.small.bytes + q.main.bytes }

// of returns the queue that an entry is in.
func (q *queues) of(e *Entry) *queue {
	if e.place.in == mainQueue {
		return &q.main
	}
	return &q.small
}

// add enters an entry into a queue, or into the main one where it comes back.
func (q *queues) add(e *Entry, hash uint64, size int64, in queueOf) {
	e.place = place{hash: hash, size: size, in: in}
	if g := &q.ghost[hash&uint64(len(q.ghost)-1)]; *g == hash {
		*g, e.place.in = 0, mainQueue
	}
	q.of(e).push(e)
}

// remove takes an entry out, and reports whether it was in.
func (q *queues) remove(e *Entry) bool {
	if e.place.in == noQueue {
		return false
	}
	q.of(e).take(e)
	e.place.in = noQueue
	return true
}

// victim moves the queues on by one entry, and returns it if it has to leave.
func (q *queues) victim() *Entry {
	if e := q.small.head; e != nil && (q.small.bytes > q.bytes()/smallShare || q.main.head == nil) {
		if e.hits.Load() < provenHits {
			q.ghost[e.place.hash&uint64(len(q.ghost)-1)] = e.place.hash
			return e
		}
		q.small.take(e)
		e.hits.Store(0)
		e.place.in = mainQueue
		q.main.push(e)
		return nil
	}
	e := q.main.head
	n := e.hits.Load()
	if n == 0 {
		return e
	}
	e.hits.Store(n - 1)
	q.main.take(e)
	q.main.push(e)
	return nil
}
