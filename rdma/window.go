package rdma

import (
	"fmt"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/transport"
)

// WindowType is the type of a memory window.
type WindowType = memory.WindowType

// The types of windows.
const (
	Type1  = memory.Type1  // reached by all queue pairs of the domain
	Type2B = memory.Type2B // reached by the queue pair that binds it
)

// MW is a memory window: a part of a region, with rights and a key of its own, which change without registration.
type MW struct {
	pd *PD

	// Guarded by the loop's lock.
	key    uint32 // the latest that a bind was posted with
	closed bool
}

// AllocMW returns a window that is not bound.
func (p *PD) AllocMW(kind WindowType) (*MW, error) {
	p.ctx.lock.Enter()
	defer p.ctx.lock.ExitUnchanged()
	key, err := p.ctx.table.AllocWindow(p.id, kind)
	if err != nil {
		return nil, err
	}
	p.uses++
	return &MW{pd: p, key: key}, nil
}

// Dealloc ends the window: no request that arrives later reaches memory by it.
func (w *MW) Dealloc() error {
	c := w.pd.ctx
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	if w.closed {
		return ErrClosed
	}
	w.closed = true
	w.pd.uses--
	return c.table.DeallocWindow(w.key)
}

// RKey returns the key of the latest bind.
func (w *MW) RKey() uint32 {
	w.pd.ctx.lock.Enter()
	defer w.pd.ctx.lock.ExitUnchanged()
	return w.key
}

// nextTag returns a key with the next tag.
func nextTag(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// Bind is a part of a region that a window is bound to.
type Bind struct {
	ID     uint64    // of the completion
	Flags  SendFlags // Signaled, Fence
	MR     *MR       // with the right WindowBind
	Off, N int       // bytes [Off, Off+N) of it; 0 bytes unbind a window of type 1
	Access Access    // of RemoteRead, RemoteWrite and RemoteAtomic
}

// PostBind appends a request that binds the window to the send queue of a queue pair, and returns the window's new key. It is good when the
// request has been executed, as for requests behind it; peers do not reach memory by the key from before. A window of type 2B that is
// bound is invalidated first, by the peer's SEND with invalidate or by OpLocalInv.
func (q *QP) PostBind(w *MW, b *Bind) (uint32, error) {
	q.ctx.lock.Enter()
	defer q.ctx.lock.Exit()
	if b.MR == nil || w.pd.ctx != q.ctx || b.Off < 0 || b.N < 0 {
		return 0, fmt.Errorf("%w: a bind needs a region and a window of the context", transport.ErrRequest)
	}
	key := nextTag(w.key)
	err := q.postSend(&SendWR{
		ID: b.ID, Op: OpBind, Flags: b.Flags, RKey: key, InvKey: b.MR.key, RemoteAddr: b.MR.va + uint64(b.Off), Compare: uint64(b.N), Swap: uint64(b.Access),
	})
	if err != nil {
		return 0, err
	}
	w.key = key
	return key, nil
}
