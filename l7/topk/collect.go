package topk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/l7/accesslog"
)

// By selects the property that groups requests.
type By int

// Values of By.
const (
	Routes By = iota
	Hosts
	Paths // with their hosts, without queries
	Clients
	Backends // with their pools
	kinds
)

// Entry is a key with the requests that ended in the time of a collection.
type Entry struct {
	Name     string  `json:"name"`
	Requests uint64  `json:"requests"`   // at most,
	AtMost   uint64  `json:"error"`      // and at least this less
	Failed   uint64  `json:"failed"`     // 500 and above, and those without a response; at least, as Bytes and Seconds
	Bytes    uint64  `json:"bytes_out"`  // content of responses
	Mean     float64 `json:"seconds"`    // from the header to the end of the response, in the mean
	Rate     float64 `json:"per_second"` // of Requests
}

// Result are the keys with the most requests, of each kind, the most first.
type Result struct {
	Seconds  float64 `json:"interval_seconds"`
	Requests uint64  `json:"requests"` // that ended in it
	Failed   uint64  `json:"failed"`
	Stages   Stages  `json:"stages"`
	Routes   []Entry `json:"routes"`
	Hosts    []Entry `json:"hosts"`
	Paths    []Entry `json:"paths"`
	Clients  []Entry `json:"clients"`
	Backends []Entry `json:"backends"`
}

// Stages divides the time of requests that got a response of a backend: sums over them.
type Stages struct {
	Requests uint64  `json:"requests"`
	Wait     float64 `json:"wait_seconds"` // from the header until the last attempt: rules, queues, other attempts
	Backend  float64 `json:"backend_seconds"`
	Response float64 `json:"response_seconds"` // from its header to its end
}

func (s *Stages) add(r *accesslog.Record) {
	if r.Answered == 0 {
		return
	}
	s.Requests++
	s.Wait += r.Waited.Seconds()
	s.Backend += r.Answered.Seconds()
	s.Response += (r.Began - r.Waited - r.Answered).Seconds()
}

// shard is the part of one loop in a collection.
type shard struct {
	mu               sync.Mutex // held by the loop and, at the end, by the merge
	key              []byte
	sketches         [kinds]sketch
	requests, failed uint64
	stages           Stages
}

// Collection takes records for a time.
type Collection struct{ shards []shard }

// Add counts the request of a record, on loop number i.
func (c *Collection) Add(i int, r *accesslog.Record) {
	s := &c.shards[i]
	by := sums{bytes: r.BytesOut, nanoseconds: int64(r.Began)}
	if r.Failed() {
		by.failed = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.failed += by.failed
	s.stages.add(r)
	for kind := range kinds {
		if key := s.keyOf(kind, r); len(key) > 0 {
			s.sketches[kind].add(key, &by)
		}
	}
}

// keyOf returns the key of a record, nothing where it has none. It is valid until the next call.
func (s *shard) keyOf(kind By, r *accesslog.Record) []byte {
	b := s.key[:0]
	switch kind {
	case Routes:
		b = append(b, r.Route...)
	case Hosts:
		b = append(b, r.Host...)
	case Paths:
		if r.Path == "" {
			return nil
		}
		path, _, _ := strings.Cut(r.Path, "?")
		b = append(append(b, r.Host...), path...)
	case Clients:
		if a := r.Address(); a.IsValid() {
			b = a.AppendTo(b)
		}
	case Backends:
		if r.Backend == "" {
			return nil
		}
		b = append(append(append(b, r.Pool...), '/'), r.Backend...)
	}
	s.key = b
	return b
}

// result merges the shards: the first rows of each kind.
func (c *Collection) result(over time.Duration, rows int) Result {
	r := Result{Seconds: over.Seconds()}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		r.Requests += s.requests
		r.Failed += s.failed
		r.Stages.Requests += s.stages.Requests
		r.Stages.Wait += s.stages.Wait
		r.Stages.Backend += s.stages.Backend
		r.Stages.Response += s.stages.Response
	}
	for kind, to := range map[By]*[]Entry{Routes: &r.Routes, Hosts: &r.Hosts, Paths: &r.Paths, Clients: &r.Clients, Backends: &r.Backends} {
		*to = c.merge(kind, over, rows)
	}
	return r
}

// merge adds the sketches of one kind up. A loop that does not have a key may have had it as often as its least one.
func (c *Collection) merge(kind By, over time.Duration, rows int) []Entry {
	merged := map[string]*slot{}
	floors := uint64(0)
	for i := range c.shards {
		floors += c.shards[i].sketches[kind].floor()
	}
	for i := range c.shards {
		s := &c.shards[i].sketches[kind]
		for _, p := range s.heap {
			m := merged[p.key]
			if m == nil {
				m = &slot{key: p.key, count: floors, over: floors}
				merged[p.key] = m
			}
			m.count += p.count - s.floor()
			m.over += p.over - s.floor()
			m.sums.add(&p.sums)
		}
	}
	list := []Entry{}
	for _, m := range merged {
		known := max(m.count-m.over, 1)
		list = append(list, Entry{
			Name: strings.ToValidUTF8(m.key, "\ufffd"), Requests: m.count, AtMost: m.over, Failed: m.sums.failed, Bytes: m.sums.bytes,
			Mean: time.Duration(m.sums.nanoseconds / int64(known)).Seconds(), Rate: float64(m.count) / over.Seconds(),
		})
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Requests-b.AtMost, a.Requests-a.AtMost), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), rows)]
}

// Bounds of collections.
const (
	MinTime   = 100 * time.Millisecond
	MaxTime   = time.Minute
	MaxRows   = slots
	maxAtOnce = 4
)

// ErrBusy reports that as many collections run as may.
var ErrBusy = errors.New("as many collections of requests run as may: try again in a moment")

// Collections are those that run. The zero value has none.
type Collections struct {
	running atomic.Pointer[[]*Collection] // nil: none

	mu      sync.Mutex
	changed func() // see OnChange
}

// OnChange has f called where the first collection begins or the last one ends.
func (cs *Collections) OnChange(f func()) { cs.changed = f }

// Running returns the collections that take records now, nil for none.
func (cs *Collections) Running() []*Collection {
	if list := cs.running.Load(); list != nil {
		return *list
	}
	return nil
}

// Collect takes the requests of loops for a time, or until ctx ends, and returns the first rows of each kind.
func (cs *Collections) Collect(ctx context.Context, loops int, over time.Duration, rows int) (Result, error) {
	c := &Collection{shards: make([]shard, loops)}
	if !cs.set(func(list []*Collection) []*Collection {
		if len(list) == maxAtOnce {
			return nil
		}
		return append(list, c)
	}) {
		return Result{}, ErrBusy
	}
	began := time.Now()
	timer := time.NewTimer(over)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	took := time.Since(began)
	cs.set(func(list []*Collection) []*Collection {
		return slices.DeleteFunc(list, func(o *Collection) bool { return o == c })
	})
	return c.result(took, rows), ctx.Err()
}

// set changes the list, of which readers keep the one before. It reports whether change returned one.
func (cs *Collections) set(change func([]*Collection) []*Collection) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	was := cs.Running()
	list := change(slices.Clone(was))
	if list == nil && len(was) > 0 {
		return false
	}
	if cs.running.Store(&list); len(list) == 0 {
		cs.running.Store(nil)
	}
	if (len(was) == 0) != (len(list) == 0) && cs.changed != nil {
		cs.changed()
	}
	return true
}
