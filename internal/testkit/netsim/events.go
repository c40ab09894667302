package netsim

import "github.com/millrace/millrace/clock"

// event is something that is going to happen: one of the three.
type event struct {
	at     clock.Time
	seq    uint64
	packet *Packet // leaves its pipe
	host   *Host   // wants to be polled
	call   func()
}

// events is a heap of them, earliest first; those of one time in the order in which they were
// pushed, so that a run is the same each time.
type events struct {
	heap []event
	seq  uint64
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// next returns when something happens, clock.Never where nothing will.
func (q *events) next() clock.Time {
	if len(q.heap) == 0 {
		return clock.Never
	}
	return q.heap[0].at
}

func (q *events) push(e event) {
	q.seq++
	e.seq = q.seq
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

// pop returns the earliest event, of which there must be one.
func (q *events) pop() event {
	first := q.heap[0]
	last := q.heap[len(q.heap)-1]
	q.heap[len(q.heap)-1] = event{}
	q.heap = q.heap[:len(q.heap)-1]
	if len(q.heap) > 0 {
		q.sink(last)
	}
	return first
}

// sink puts e at the top, and down to where it belongs.
func (q *events) sink(e event) {
	i, h := 0, q.heap
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&e) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = e
}
