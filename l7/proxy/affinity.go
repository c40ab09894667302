package proxy

import (
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
)

// Affinity keeps the requests, or the connections, of a key at one backend. It outlives reloads.
type Affinity struct {
	Table *pool.Affinity
	Key   *rewrite.Key
}

// affine is an exchange with a pool that has an Affinity.
type affine struct{ *exchange }

// prefer finds the backend that serves the key of the request, unless a cookie has named one. A request without the key is free.
func (x affine) prefer(s *rewrite.Source) {
	a := x.pooled.Affinity
	key, ok := a.Key.Present(s)
	if !ok {
		return
	}
	x.affinity = key
	if x.preferred == nil {
		x.preferred = x.pooled.Kept(x.w.Now, a.Table, key)
	}
}

// pick chooses the backend of a connection that is passed through.
func (p *pass) pick() (*pool.Backend, pool.Refusal) {
	if a := p.pooled.Affinity; a != nil && p.attempts == 0 {
		if b := p.pooled.Kept(p.w.Now, a.Table, p.affinity()); b != nil {
			return b, pool.NotRefused
		}
	}
	return p.pooled.Pick(p.w.Now, p.hash(), &p.tried)
}

// affinity returns the key of a connection that is passed through: its client.
func (p *pass) affinity() uint64 {
	return p.pooled.Affinity.Key.Of(&rewrite.Source{Client: p.info.addr.Addr()})
}
