package proxy

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/semantics"
)

// Places bounds the requests that are served at a time: of a route or a pool, by all loops together. Those beyond it wait in the order in
// which they came, at whichever loop. Workers share it, also over reloads, which may change its bounds.
//
// A place is taken and given back by one atomic operation as long as none waits. A place that is released while some wait
// goes to the first of them: its loop gets a command. The two sides cannot miss each other: a request enters the queue and then tries once more,
// and a place is freed before the queue is looked at.
type Places struct {
	limit, most    atomic.Int64 // in use; waiting
	wait           atomic.Int64 // nanoseconds
	used           atomic.Int64
	waiting        atomic.Int64 // the length of queue
	full, timeouts atomic.Uint64

	mu    sync.Mutex
	queue []*placeWait
}

// PlacesOptions bound Places.
type PlacesOptions struct {
	Requests int           // at a time; 0 is no bound
	Pending  int           // that wait
	Wait     time.Duration // of each of them, at most
}

// NewPlaces returns places.
func NewPlaces(o PlacesOptions) *Places {
	p := &Places{}
	p.Set(o)
	return p
}

// Set changes the bounds. With fewer places none is taken away: as many as are too many are not given again. Any goroutine may call it.
func (p *Places) Set(o PlacesOptions) {
	p.limit.Store(int64(o.Requests))
	p.most.Store(int64(o.Pending))
	p.wait.Store(int64(o.Wait))
	p.pass()
}

// PlacesStatus is a picture of Places.
type PlacesStatus struct {
	Used, Pending  int
	Full, Timeouts uint64 // requests that got no place: as many waited as may, or they waited for too long
}

// Status returns the state. Any goroutine may call it.
func (p *Places) Status() PlacesStatus {
	return PlacesStatus{Used: int(p.used.Load()), Pending: int(p.waiting.Load()), Full: p.full.Load(), Timeouts: p.timeouts.Load()}
}

// take takes a place, if one is free. It adds first and compares then, as Admission does.
func (p *Places) take() bool {
	if n, most := p.used.Add(1), p.limit.Load(); most > 0 && n > most {
		p.used.Add(-1)
		return false
	}
	return true
}

// release gives a place back, to the first that waits.
func (p *Places) release() {
	p.used.Add(-1)
	if p.waiting.Load() > 0 {
		p.pass()
	}
}

// pass gives free places to those that wait.
func (p *Places) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.take() {
		v := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.waiting.Add(-1)
		v.state = placeGiven
		if !v.x.w.Loop.Do(v.arrive) { // the loop has ended, and its requests with it
			p.used.Add(-1)
		}
	}
}

// placeWait is a request that waits for a place.
type placeWait struct {
	x     *exchange
	p     *Places
	state placeState // guarded by p.mu
	pool  bool       // p is that of the request's pool
}

// placeState is the state of a placeWait.
type placeState uint8

const (
	placeQueued placeState = iota
	placeGiven             // it has a place, and a command for its loop is under way
	placeLeft              // the request has ended, or its time was over
)

// arrive runs on the loop of a request that got a place.
func (v *placeWait) arrive() {
	v.p.mu.Lock()
	left := v.state == placeLeft
	v.p.mu.Unlock()
	if left {
		v.p.release()
		return
	}
	x := v.x
	x.w.Enter()
	x.waits = nil
	if x.on(admitted); v.pool {
		h := x.hold
		h.pooled, h.until, h.late = v.p, clock.Never, nil
		if b := x.preferred; b != nil && b.Gone() {
			x.preferred = nil
		}
		dispatch(x, h.path, h.query, h.client)
		return
	}
	x.hold.places = v.p
	guarding{x}.resume()
}

// withdraw implements awaited. Whoever has given the place already finds that the request has left.
func (v *placeWait) withdraw(*exchange) {
	p := v.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.state == placeQueued {
		i := slices.Index(p.queue, v)
		p.queue = slices.Delete(p.queue, i, i+1)
		p.waiting.Add(-1)
	}
	v.state = placeLeft
}

// enter appends a request to the queue, unless as many wait as may. It may get a place at once.
func (p *Places) enter(x *exchange, pool bool) *placeWait {
	v := &placeWait{x: x, p: p, pool: pool}
	p.mu.Lock()
	ok := int64(len(p.queue)) < p.most.Load()
	if ok {
		p.queue = append(p.queue, v)
		p.waiting.Add(1)
	}
	p.mu.Unlock()
	if !ok {
		p.full.Add(1)
		return nil
	}
	p.pass() // a place may have become free before it was in the queue
	return v
}

// place takes a place for a request, or has it wait for one: then it reports false, as it does where it has answered.
func (x guarding) place(g *Guard) bool {
	p, h := g.Places, x.holding()
	if p.waiting.Load() == 0 && p.take() {
		h.places = p
		return true
	}
	v := p.enter(x.exchange, false)
	if v == nil {
		x.refuseBy(g, GuardPlaces, "", errLimit)
		return false
	}
	x.waits = v
	x.holdUntil(time.Duration(p.wait.Load()), func(x guarding) {
		p.timeouts.Add(1)
		x.refuseBy(g, GuardPlaces, "", errLimit)
	})
	return false
}

// bounds reports whether there is a bound.
func (p *Places) bounds() bool { return p != nil && p.limit.Load() > 0 }

// placeInPool takes a place of the request's pool, or has the request wait for one: then it reports false, as it does where it has
// answered.
func (x guarding) placeInPool(path, query string, client netip.Addr) bool {
	p, h := x.pooled.Places, x.holding()
	if p.waiting.Load() == 0 && p.take() {
		h.pooled = p
		return true
	}
	h.path, h.query, h.client = path, query, client
	v := p.enter(x.exchange, true)
	if v == nil {
		x.poolIsFull(p)
		return false
	}
	x.waits = v
	x.holdUntil(time.Duration(p.wait.Load()), func(x guarding) {
		p.timeouts.Add(1)
		x.poolIsFull(p)
	})
	return false
}

// poolIsFull answers a request for which its pool has no place. Another one may have waited as long by then.
func (x guarding) poolIsFull(p *Places) {
	h := x.hold
	at := len(h.text)
	h.text = strconv.AppendInt(h.text, max(seconds(time.Duration(p.wait.Load())), 1), 10)
	h.extra = append(h.extra, semantics.Field{Name: "retry-after", Value: view(h.text[at:])})
	h.reason = append(h.reason, "pool"...)
	x.answer(errLimit)
}
