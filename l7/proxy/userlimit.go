package proxy

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// UserPlaces bounds the requests of a user that a route serves at a time, by all loops together. Those beyond it get 429: a user who waits
// would hold places that others wait for. Workers share it, also over reloads, which may change the bound.
type UserPlaces struct {
	most atomic.Int64
	seed maphash.Seed
	in   ratelimit.Concurrent
}

// NewUserPlaces returns a bound.
func NewUserPlaces(most int) *UserPlaces {
	p := &UserPlaces{seed: maphash.MakeSeed()}
	p.Set(most)
	return p
}

// Set changes the bound. Any goroutine may call it.
func (p *UserPlaces) Set(most int) { p.most.Store(int64(most)) }

// Users returns how many users have requests. Any goroutine may call it.
func (p *UserPlaces) Users() int { return p.in.Len() }

// appendUser appends who has sent the request: the user that the route's credentials name, or the subject of the client's certificate,
// or its key where there is none. Each kind has a letter of its own, as names of one may be names of another. Without any it is the client.
func (x guarding) appendUser(b []byte) []byte {
	switch h, c := x.hold, x.client.peer; {
	case h != nil && len(h.user) > 0:
		return append(append(b, 'u'), h.user...)
	case c != nil && len(c.Subject.Names) > 0:
		return append(append(b, 'c'), c.RawSubject...)
	case c != nil:
		return append(append(b, 'k'), c.RawSubjectPublicKeyInfo...)
	}
	a := x.hold.client.Unmap().As16()
	return append(append(b, 'a'), a[:]...)
}

// users reports whether a request is within the limits of its user. Otherwise it has answered.
func (x guarding) users(g *Guard) bool {
	h := x.hold
	if len(g.UserLimits) > 0 {
		src := rewrite.Source{Fields: x.request.Fields, Path: h.path, Query: h.query, Client: h.client}
		for _, l := range g.UserLimits {
			if !x.limit(g, l, &src) {
				return false
			}
		}
	}
	p := g.PerUser
	if p == nil {
		return true
	}
	x.scratch = x.appendUser(x.scratch[:0])
	key := maphash.Bytes(p.seed, x.scratch)
	if !p.in.Enter(key, int(p.most.Load())) {
		h.extra = append(h.extra, semantics.Field{Name: "retry-after", Value: "1"})
		x.refuseBy(g, GuardPlaces, "per_user", errRate)
		return false
	}
	h.userPlaces, h.userKey = p, key
	return true
}
