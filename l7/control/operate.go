package control

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/suggest"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/stack"
)

// Errors of commands.
var (
	ErrUnknownPool    = errors.New("unknown pool")
	ErrUnknownBackend = errors.New("unknown backend")
	ErrLastBackend    = errors.New("it is the last backend")
)

// Pools returns the names of the pools, in the order of the configuration.
func (s *Set) Pools() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.order {
		names = append(names, p.cfg.Name)
	}
	return names
}

// Has reports whether there is a pool of the name.
func (s *Set) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools[name] != nil
}

// Listens reports whether there is a listener of the name.
func (s *Set) Listens(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.cfg.Listeners, func(l config.Listener) bool { return l.Name == name })
}

// BackendNames returns the names of the backends of a pool, each once of all pools for "".
func (s *Set) BackendNames(name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" && s.pools[name] == nil {
		return nil, s.unknownPool(name)
	}
	var names []string
	for _, p := range s.order {
		if name == "" || p.cfg.Name == name {
			for _, b := range p.Backends() {
				names = append(names, b.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Drain makes a backend take no new requests but those of its sticky clients, until Undrain or until the file changes its
// state. After a deadline, 0 is the pool's `drain`, it takes none. Without force the last one that takes requests is refused.
func (s *Set) Drain(name, backend string, deadline time.Duration, force bool) error {
	return s.operate(name, backend, force, func(p *pooled, b *pool.Backend) {
		b.SetState(stack.Now(), pool.Draining)
		p.endDrain(b, cmp.Or(deadline, p.cfg.Drain), s.endStreams)
	})
}

// Undrain takes back what Drain said.
func (s *Set) Undrain(name, backend string) error {
	return s.operate(name, backend, true, func(p *pooled, b *pool.Backend) {
		p.endDrain(b, 0, nil)
		b.ResetState(stack.Now())
	})
}

// drains are the ends of drains that are to come, by backend. They stay with the pool over reloads.
type drains struct {
	mu     sync.Mutex
	timers map[*pool.Backend]*time.Timer
}

// endStreams ends the WebSockets and the connections that are passed through to a backend.
func (s *Set) endStreams(b *pool.Backend) {
	for _, l := range s.loops {
		l.Do(func() { l.worker.EndStreams(b) })
	}
}

// endDrain makes a backend inactive after a time, 0 is never, in place of what was to come, and then calls end with it. One that
// the configuration has no more takes nothing in any case.
func (d *drains) endDrain(b *pool.Backend, after time.Duration, end func(*pool.Backend)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.timers[b]; t != nil {
		t.Stop()
		delete(d.timers, b)
	}
	if after == 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		d.mu.Lock()
		due := d.timers[b] == t // it was not called off
		if due {
			delete(d.timers, b)
			b.SetState(stack.Now(), pool.Inactive)
		}
		d.mu.Unlock()
		if due {
			end(b)
		}
	})
	d.timers[b] = t
}

// stop calls all ends of drains off.
func (d *drains) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.timers {
		t.Stop()
	}
	clear(d.timers)
}

// SetWeight sets the weight of a backend; one below 0 restores the configuration's.
func (s *Set) SetWeight(name, backend string, weight int, force bool) error {
	return s.operate(name, backend, force || weight != 0, func(_ *pooled, b *pool.Backend) {
		if weight < 0 {
			b.ResetWeight(stack.Now())
			return
		}
		b.SetWeight(stack.Now(), weight)
	})
}

// operate changes a backend. Without force a change is refused that leaves no other backend for new requests.
func (s *Set) operate(name, backend string, force bool, change func(*pooled, *pool.Backend)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[name]
	if p == nil {
		return s.unknownPool(name)
	}
	b := p.ByName(backend)
	if b == nil {
		var all []string
		for _, b := range p.Backends() {
			all = append(all, b.Name())
		}
		return fmt.Errorf("%w %q of pool %q%s", ErrUnknownBackend, backend, name, near(backend, all))
	}
	if !force && !p.hasOther(b) {
		return fmt.Errorf("%w: no other takes new requests of pool %q", ErrLastBackend, name)
	}
	change(p, b)
	return nil
}

// hasOther reports whether another backend takes new requests.
func (p *pooled) hasOther(than *pool.Backend) bool {
	st := p.Status(stack.Now())
	return slices.ContainsFunc(st.Backends, func(b pool.BackendStatus) bool {
		return b.Backend != than && b.State == pool.Active && b.Weight > 0 && b.Healthy && b.Ejected == 0
	})
}

// unknownPool returns the error for a name that no pool has. The caller holds s.mu.
func (s *Set) unknownPool(name string) error {
	return fmt.Errorf("%w %q%s", ErrUnknownPool, name, near(name, slices.Sorted(maps.Keys(s.pools))))
}

// near returns what a wrong name may have been meant to be, behind a colon.
func near(name string, all []string) string {
	if best := suggest.Nearest(name, len(name)/3, all...); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}
