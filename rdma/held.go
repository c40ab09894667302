package rdma

import (
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// Held is a context whose loop the caller holds: between Enter and Exit, or in a call that the loop makes. Its methods do not enter
// the loop, so that many requests are posted at the cost of one.
type Held struct{ c *Context }

// Enter makes the caller the holder of the context's loop, until Exit. It waits for at most one iteration.
func (c *Context) Enter() Held {
	c.lock.Enter()
	return Held{c}
}

// Exit ends what Enter began. What was posted leaves.
func (h Held) Exit() { h.c.lock.Exit() }

// PostSend is QP.PostSend.
func (h Held) PostSend(q *QP, w *SendWR) error {
	h.c.out.RequestTick()
	return q.postSend(w)
}

// PostRecv is QP.PostRecv.
func (h Held) PostRecv(q *QP, w *RecvWR) error {
	h.c.out.RequestTick()
	return q.postRecv(w)
}

// PostShared is SRQ.PostRecv.
func (h Held) PostShared(s *SRQ, w *RecvWR) error { return s.q.Post(w) }

// Fail leads a queue pair to Error, as QP.Modify does.
func (h Held) Fail(q *QP) {
	if !q.closed {
		_ = q.qp.Modify(Error, Attr{}, wire.Addr{}) // is permitted in every state
		h.c.makeReady(q)
		h.c.out.RequestTick()
	}
}

// Counters is QP.Counters.
func (h Held) Counters(q *QP) transport.Counters { return q.qp.Counters() }

// Watch makes the loop call f when a file is ready: see stack.Loop.Watch.
func (h Held) Watch(fd int, want stack.FileEvents, f func(h Held, ev stack.FileEvents)) (*stack.FileWatch, error) {
	return h.loop().Watch(fd, want, func(ev stack.FileEvents) { f(h, ev) })
}

// AddPoller makes the loop poll p: see stack.Loop.AddPoller.
func (h Held) AddPoller(p stack.Poller) { h.loop().AddPoller(p) }

func (h Held) loop() *stack.Loop { return h.c.node.Loops()[h.c.self] }
