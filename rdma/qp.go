package rdma

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// mostDepth bounds the requests of a queue.
const mostDepth = 1 << 15

// mostSelective bounds windows with selective repeat, which an Endpoint has in 16 bits.
const mostSelective = 1 << 15

// QPConfig describes a queue pair. Service, SendCQ and RecvCQ are required.
type QPConfig struct {
	Service        Transport
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ   // instead of a receive queue of its own
	SendDepth      int    // 0 is 128
	RecvDepth      int    // 0 is 128
	Window         uint32 // packets in flight; 0 is transport.DefaultWindow
	// SelectiveRepeat repeats lost packets alone, where the peer is a Millrace that has it too (Endpoint.Window). Otherwise, and
	// with other peers, the queue pair goes back to the first that is missing.
	SelectiveRepeat bool
	TOS             uint8  // DSCP and ECN of its packets; 0 is Config.TOS
	LineRate        uint64 // of the link in bits per second, for congestion control (DCQCN) of RC and UC; 0 is none
}

// QP is a queue pair.
type QP struct {
	pd  *PD
	ctx *Context
	cfg QPConfig
	qp  *transport.QP

	// Guarded by the loop's lock.
	path       *path
	slot       uint32     // of its timer
	isReady    bool       // it is in Context.ready
	waits      bool       // for the link address of a peer,
	waitsSince clock.Time // since then; 0 is not
	reported   bool       // of QPFatal
	closed     bool
}

// CreateQP returns a queue pair in state Reset.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	if cfg.SendCQ == nil || cfg.RecvCQ == nil || cfg.SendCQ.ctx != p.ctx || cfg.RecvCQ.ctx != p.ctx {
		return nil, fmt.Errorf("%w: two completion queues of the context are required", transport.ErrAttribute)
	}
	if cfg.SRQ != nil && cfg.SRQ.pd != p {
		return nil, fmt.Errorf("%w: the shared receive queue belongs to another domain", transport.ErrAttribute)
	}
	if cfg.SendDepth == 0 {
		cfg.SendDepth = 128
	}
	if cfg.RecvDepth == 0 {
		cfg.RecvDepth = 128
	}
	if cfg.Window == 0 {
		cfg.Window = transport.DefaultWindow
	}
	cfg.TOS = cmp.Or(cfg.TOS, p.ctx.cfg.TOS)
	if cfg.SelectiveRepeat && (cfg.Window > mostSelective || cfg.Service != RC) {
		return nil, fmt.Errorf("%w: selective repeat is for RC and windows of at most %d packets", transport.ErrAttribute, mostSelective)
	}
	if cfg.RecvDepth < 0 || cfg.RecvDepth > mostDepth {
		return nil, fmt.Errorf("%w: RecvDepth is %d, want at most %d", transport.ErrAttribute, cfg.RecvDepth, mostDepth)
	}
	c := p.ctx
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	if len(c.qps) >= c.cfg.MaxQPs {
		return nil, fmt.Errorf("%w: %d queue pairs", ErrLimit, len(c.qps))
	}
	q := &QP{pd: p, ctx: c, cfg: cfg}
	recv := transport.NewRecvQueue(cfg.RecvDepth, false, nil)
	if cfg.SRQ != nil {
		recv = cfg.SRQ.q
	}
	var err error
	q.qp, err = transport.New(transport.Config{
		Service: cfg.Service, QPN: c.freeQPN(), PD: p.id, Memory: c.table, SendDepth: cfg.SendDepth, Recv: recv, Window: cfg.Window, LineRate: cfg.LineRate,
		SendDone: cfg.SendCQ.sendDone, RecvDone: cfg.RecvCQ.recvDone,
	})
	if err != nil {
		return nil, err
	}
	c.enter(q)
	return q, nil
}

// freeQPN returns a number that no queue pair has and a peer cannot guess. 0 and 1 are those of management.
func (c *Context) freeQPN() uint32 {
	for {
		if n := random() & roce.Mask24; n > 1 && c.qps[n] == nil {
			return n
		}
	}
}

// enter adds a queue pair to the tables.
func (c *Context) enter(q *QP) {
	if n := len(c.free); n > 0 {
		q.slot = c.free[n-1]
		c.free = c.free[:n-1]
		c.slots[q.slot] = q
	} else {
		q.slot = uint32(len(c.slots))
		c.slots = append(c.slots, q)
		c.wheel.Grow(len(c.slots))
	}
	c.qps[q.qp.QPN()] = q
	q.pd.uses++
	q.cfg.SendCQ.uses++
	q.cfg.RecvCQ.uses++
	if q.cfg.SRQ != nil {
		q.cfg.SRQ.uses++
	}
}

// Destroy ends the queue pair. What is posted is forgotten, without completions.
func (q *QP) Destroy() error {
	c := q.ctx
	c.lock.Enter()
	if q.closed {
		c.lock.ExitUnchanged()
		return ErrClosed
	}
	q.closed = true
	_ = q.qp.Modify(transport.Reset, Attr{}, wire.Addr{}) // is permitted in every state
	c.wheel.Stop(q.slot)
	c.slots[q.slot] = nil
	c.free = append(c.free, q.slot)
	delete(c.qps, q.qp.QPN())
	q.pd.uses--
	q.cfg.SendCQ.uses--
	q.cfg.RecvCQ.uses--
	if q.cfg.SRQ != nil {
		q.cfg.SRQ.uses--
	}
	way := q.path
	q.path = nil
	c.lock.ExitUnchanged()
	if way != nil {
		c.closePath(way)
	}
	return nil
}

// QPN returns the number of the queue pair.
func (q *QP) QPN() uint32 { return q.qp.QPN() }

// State returns the state.
func (q *QP) State() State {
	q.ctx.lock.Enter()
	defer q.ctx.lock.ExitUnchanged()
	return q.qp.State()
}

// Counters returns the counters of the queue pair.
func (q *QP) Counters() transport.Counters {
	q.ctx.lock.Enter()
	defer q.ctx.lock.ExitUnchanged()
	return q.qp.Counters()
}

// Modify changes the state, and the attributes that the new state reads. peer is read with ReadyToReceive by RC and UC: the address of
// the other side.
func (q *QP) Modify(to State, a Attr, peer netip.Addr) error {
	c := q.ctx
	var way *path
	if to == ReadyToReceive && q.cfg.Service != UD {
		var err error
		if way, err = c.openPath(peer); err != nil {
			return err
		}
	}
	unused, err := q.modify(to, a, way)
	if unused != nil {
		c.closePath(unused)
	}
	return err
}

// modify is Modify with the path to the peer. It returns the path that is not used any more: that one on an error.
func (q *QP) modify(to State, a Attr, way *path) (unused *path, err error) {
	c := q.ctx
	c.lock.Enter()
	defer c.lock.Exit()
	if q.closed {
		return way, ErrClosed
	}
	if most := c.maxMTU(); to == ReadyToReceive && a.MTU > most {
		return way, fmt.Errorf("%w: MTU is %d, and the devices carry %d; their own MTU must be larger", transport.ErrAttribute, a.MTU, most)
	}
	var peer wire.Addr
	if way != nil {
		peer = way.addr
	}
	if err := q.qp.Modify(to, a, peer); err != nil {
		return way, err
	}
	if way != nil || to == transport.Reset {
		unused, q.path = q.path, way
	}
	q.reported = q.reported && to != Reset
	q.reported = q.reported || to == Error // the program's own doing
	c.makeReady(q)
	return unused, nil
}

// PostSend appends a request. The memory of its list belongs to the queue pair until it completes; the lists themselves are
// copied.
func (q *QP) PostSend(w *SendWR) error {
	q.ctx.lock.Enter()
	defer q.ctx.lock.Exit()
	return q.postSend(w)
}

func (q *QP) postSend(w *SendWR) error {
	c := q.ctx
	if q.closed {
		return ErrClosed
	}
	if q.cfg.Service == UD && c.handle(q.pd, w.Path) == nil {
		return fmt.Errorf("%w: Path %d is no address handle of the domain", transport.ErrRequest, w.Path)
	}
	if err := q.qp.PostSend(w); err != nil {
		return err
	}
	c.makeReady(q)
	return nil
}

// handle returns the address handle with a number, if it is of the domain.
func (c *Context) handle(p *PD, number uint32) *AH {
	if int(number) < len(c.ahs) {
		if h := c.ahs[number]; h != nil && h.pd == p {
			return h
		}
	}
	return nil
}

// PostRecv appends a receive to the queue pair's own queue.
func (q *QP) PostRecv(w *RecvWR) error {
	q.ctx.lock.Enter()
	defer q.ctx.lock.Exit()
	return q.postRecv(w)
}

func (q *QP) postRecv(w *RecvWR) error {
	if q.closed {
		return ErrClosed
	}
	if err := q.qp.PostRecv(w); err != nil {
		return err
	}
	q.ctx.makeReady(q)
	return nil
}

// makeReady has Tick poll a queue pair.
func (c *Context) makeReady(q *QP) {
	if !q.isReady {
		q.isReady = true
		c.ready = append(c.ready, q)
	}
}

// poll runs one queue pair and arms its timer.
func (c *Context) poll(now clock.Time, q *QP) {
	c.polled, c.polledAt, q.waits = q, now, false
	next := q.qp.Poll(now, c.emitter)
	switch {
	case q.waits: // until hopChanged, at most
		c.wheel.Arm(q.slot, now.Add(pathCheck))
	case next <= now:
		c.makeReady(q)
	case next == clock.Never:
		c.wheel.Stop(q.slot)
	default:
		c.wheel.Arm(q.slot, next)
	}
	if q.qp.State() == transport.Error && !q.reported {
		q.reported = true
		q.pd.report(Event{Kind: QPFatal, QP: q})
	}
}
