package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Places bounds the requests that are served at a time: of a route, by all loops together. Those beyond it wait in the order in
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
	Requests int           // at a time
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
	if p.used.Add(1) > p.limit.Load() {
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
	x.hold.places = v.p
	x.on(admitted)
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
func (p *Places) enter(x *exchange) *placeWait {
	v := &placeWait{x: x, p: p}
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
	v := p.enter(x.exchange)
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
