package rdma

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/rdma/transport"
)

// notification selects the completions that end a Wait.
type notification uint8

const (
	notArmed     notification = iota
	forSolicited              // a solicited completion, or one without success
	forAny
)

// CQ is a completion queue. Several queue pairs may share one.
type CQ struct {
	ctx  *Context
	uses int // queue pairs; guarded by the loop's lock

	mu         sync.Mutex // guards all below; taken after the loop's lock
	ring       []Completion
	head, tail uint32 // the oldest, behind the newest
	depth      uint32
	armed      notification
	overrun    bool
	wake       chan struct{}          // of capacity 1: a notification
	sink       func(Completion, bool) // takes the completions instead
}

// CreateCQ returns a completion queue for depth completions. It must be as large as the queues that use it together.
func (c *Context) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > 1<<22 {
		return nil, fmt.Errorf("%w: a completion queue of %d, want 1 to 4194304", transport.ErrAttribute, depth)
	}
	size := 1
	for size < depth {
		size *= 2
	}
	return &CQ{ctx: c, ring: make([]Completion, size), depth: uint32(depth), wake: make(chan struct{}, 1)}, nil
}

// CreateSink returns a completion queue that keeps nothing: put takes the completions, of sends or of receives. It is called by the holder
// of the context's loop, possibly within a call of the caller's own, and must not block. Poll and ReqNotify are not for it.
func (c *Context) CreateSink(put func(k Completion, recv bool)) *CQ {
	return &CQ{ctx: c, sink: put}
}

// Destroy ends the queue. It fails with ErrBusy while queue pairs use it.
func (q *CQ) Destroy() error {
	q.ctx.lock.Enter()
	defer q.ctx.lock.ExitUnchanged()
	if q.uses > 0 {
		return fmt.Errorf("%w: %d queue pairs use the completion queue", ErrBusy, q.uses)
	}
	return nil
}

// sendDone and recvDone take completions of a queue pair, by the holder of the loop's lock.
func (q *CQ) sendDone(c Completion) { q.push(c, false) }
func (q *CQ) recvDone(c Completion) { q.push(c, true) }

func (q *CQ) push(c Completion, recv bool) {
	if q.sink != nil {
		q.sink(c, recv)
		return
	}
	q.mu.Lock()
	if q.tail-q.head == q.depth {
		first := !q.overrun
		q.overrun = true
		q.mu.Unlock()
		if first {
			q.ctx.report(Event{Kind: CQOverrun, CQ: q})
		}
		return
	}
	q.ring[q.tail&uint32(len(q.ring)-1)] = c
	q.tail++
	notify := q.armed == forAny || q.armed == forSolicited && (c.Flags&transport.SolicitsEvent != 0 || c.Status != transport.Success)
	if notify {
		q.armed = notArmed
	}
	q.mu.Unlock()
	if notify {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// Poll moves completions to wc and returns their number. After an overrun, what was lost cannot be recovered: Poll returns
// ErrOverrun once the queue is empty.
func (q *CQ) Poll(wc []Completion) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(wc) && q.head != q.tail {
		wc[n] = q.ring[q.head&uint32(len(q.ring)-1)]
		q.head++
		n++
	}
	if n == 0 && q.overrun {
		return 0, ErrOverrun
	}
	return n, nil
}

// ReqNotify arms the queue: the next completion, or the next solicited one, ends a Wait. Completions that are in the queue
// already do not: poll once more after it.
func (q *CQ) ReqNotify(solicitedOnly bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed = forAny; solicitedOnly {
		q.armed = forSolicited
	}
}

// Wait waits for the notification that ReqNotify asked for, until ctx ends.
func (q *CQ) Wait(ctx context.Context) error {
	select {
	case <-q.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next waits until at least one completion is there, and polls.
func (q *CQ) Next(ctx context.Context, wc []Completion) (int, error) {
	for {
		if n, err := q.Poll(wc); n > 0 || err != nil {
			return n, err
		}
		q.ReqNotify(false)
		if n, err := q.Poll(wc); n > 0 || err != nil { // one that came before
			return n, err
		}
		if err := q.Wait(ctx); err != nil {
			return 0, err
		}
	}
}
