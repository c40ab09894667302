package rdma

import (
	"fmt"

	"github.com/millrace/millrace/rdma/transport"
)

// SRQ is a receive queue that several queue pairs of a domain share.
type SRQ struct {
	pd   *PD
	q    *transport.RecvQueue
	uses int
}

// CreateSRQ returns a shared queue of depth receives.
func (p *PD) CreateSRQ(depth int) (*SRQ, error) {
	if depth < 1 || depth > mostDepth {
		return nil, fmt.Errorf("%w: a shared receive queue of %d, want 1 to %d", transport.ErrAttribute, depth, mostDepth)
	}
	p.ctx.lock.Enter()
	defer p.ctx.lock.ExitUnchanged()
	s := &SRQ{pd: p}
	s.q = transport.NewRecvQueue(depth, true, func() { p.report(Event{Kind: SRQLimit, SRQ: s}) })
	p.uses++
	return s, nil
}

// PostRecv appends a receive. The memory of its list belongs to the queue until it completes.
func (s *SRQ) PostRecv(w *RecvWR) error {
	s.pd.ctx.lock.Enter()
	defer s.pd.ctx.lock.ExitUnchanged()
	return s.q.Post(w)
}

// SetLimit arms the event SRQLimit: it happens once, when fewer than n receives are left.
func (s *SRQ) SetLimit(n int) {
	s.pd.ctx.lock.Enter()
	defer s.pd.ctx.lock.ExitUnchanged()
	s.q.SetLimit(n)
}

// Destroy ends the queue. It fails with ErrBusy while queue pairs use it.
func (s *SRQ) Destroy() error {
	s.pd.ctx.lock.Enter()
	defer s.pd.ctx.lock.ExitUnchanged()
	if s.uses > 0 {
		return fmt.Errorf("%w: %d queue pairs use the shared receive queue", ErrBusy, s.uses)
	}
	s.pd.uses--
	return nil
}
