package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/millrace/millrace/gateway/pool"
	"github.com/millrace/millrace/gateway/transport"
)

// Apply gives the worker a configuration. Listeners that were there before keep their sockets, also where another value
// describes them: what they are is their name and address. Requests that are in progress go on with what they began with, and
// the next one of their connection has the new configuration.
func (w *Worker) Apply(t *Tree) error {
	var errs []error
	used := map[string]bool{}
	for _, ln := range t.Listeners {
		key := ln.Name + " " + ln.Address.String()
		used[key] = true
		l := w.listeners[key]
		if l == nil {
			if w.opens[ln.Name] == nil {
				w.opens[ln.Name] = new(int64)
			}
			l = &listening{open: w.opens[ln.Name]}
			w.listeners[key] = l
		}
		if err := w.listen(l, ln); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", ln.Name, err))
		}
	}
	for key, l := range w.listeners {
		if !used[key] {
			w.unlisten(l)
			delete(w.listeners, key)
		}
	}
	w.tree = t
	w.dropUnused(t)
	return errors.Join(errs...)
}

// listen opens what ln needs and l has not.
func (w *Worker) listen(l *listening, ln *Listener) (err error) {
	l.current = ln
	if l.socket == nil && !ln.onlyHTTP3() {
		l.socket, err = w.loop.Listen(ln.Address, func(c transport.Conn) transport.Handler { return w.accept(l, c) })
	}
	return errors.Join(err, w.listen3(l))
}

// unlisten stops accepting.
func (w *Worker) unlisten(l *listening) {
	if l.socket != nil {
		l.socket.Close()
	}
	w.unlisten3(l)
}

// dropUnused closes idle connections to backends that the configuration has no more.
func (w *Worker) dropUnused(t *Tree) {
	w.pools = map[*Pool]bool{}
	for _, p := range t.Pools {
		w.pools[p] = true
	}
	w.DropGone()
}

// DropGone closes the idle connections to backends that are Gone since the last Apply.
func (w *Worker) DropGone() {
	for k, bs := range w.backs {
		if w.unused(k.pool, k.backend) {
			bs.retire()
			w.forgetUnused(k)
		}
	}
}

// unused reports whether no further request goes to a backend: the configuration does not have it, or its pool as it was.
func (w *Worker) unused(p *Pool, b *pool.Backend) bool { return !w.pools[p] || b.Gone() }

// forgetUnused forgets the connections to a backend that is not used, once there are none.
func (w *Worker) forgetUnused(k backsKey) {
	bs := w.backs[k]
	if bs != nil && w.unused(k.pool, k.backend) && len(bs.idle)+len(bs.opening)+len(bs.shared)+len(bs.queue) == 0 {
		delete(w.backs, k)
	}
}

// front is the session of a client's connection.
type front interface {
	session
	// drain ends the connection as soon as nothing is lost by it.
	drain()
}

// Drain stops accepting, and ends the connections of clients as their requests are answered. Idle reports when that is done.
func (w *Worker) Drain() {
	if w.draining {
		return
	}
	for key, l := range w.listeners {
		w.unlisten(l)
		delete(w.listeners, key)
	}
	w.draining = true // of those that have been accepted just now, too
	for l := range w.fronts {
		if f, ok := l.session.(front); ok {
			f.drain()
		} else {
			l.abort()
		}
	}
	w.dropUnused(&Tree{})
}

// Idle reports whether there is no connection of a client.
func (w *Worker) Idle() bool { return len(w.fronts)+len(w.fronts3) == 0 }

// random returns a random number.
func (w *Worker) random() uint64 { return rand.Uint64() }
