package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
)

// Apply sets the configuration of the worker. Listeners that were there before keep their sockets, also where another value
// describes them: what they are is their name and address. Requests that are in progress go on with what they began with, and
// the next one of their connection has the new configuration. Connections at a listener that is gone end after their requests, and
// at the end of its drain time. With an error nothing has changed.
func (w *Worker) Apply(t *Tree) error {
	var errs []error
	var begun []before
	used := map[string]bool{}
	for _, ln := range t.Listeners {
		key := ln.Name + " " + ln.Address.String()
		used[key] = true
		l := w.listeners[key]
		if l == nil {
			l = &listening{w: w, admission: w.admissionOf(ln)}
			w.listeners[key] = l
		}
		begun = append(begun, before{key, l, l.current, l.socket, l.quic})
		if err := w.listen(l, ln); err != nil {
			errs = append(errs, fmt.Errorf("listener %s at %s: %w", ln.Name, ln.Address, err))
		}
	}
	if len(errs) > 0 {
		for _, b := range begun {
			errs = append(errs, w.restore(b))
		}
		return errors.Join(errs...)
	}
	for key, l := range w.listeners {
		switch {
		case !used[key]:
			w.remove(key, l)
		case l.current.HTTP3 == nil:
			w.unlisten3(l)
		case l.current.onlyHTTP3() && l.socket != nil:
			l.socket.Close()
			l.socket = nil
		}
	}
	w.tree = t
	w.dropUnused(t)
	return nil
}

// admissionOf returns what counts the connections of a listener. Workers share that of the Listener, so that a limit is
// one of the process; where there is none, the worker counts its own.
func (w *Worker) admissionOf(ln *Listener) *Admission {
	if ln.Admission != nil {
		return ln.Admission
	}
	if w.admissions[ln.Name] == nil {
		w.admissions[ln.Name] = &Admission{}
	}
	return w.admissions[ln.Name]
}

// listen opens what ln needs and l has not. What l has beyond that is closed at the end of Apply, when nothing can fail any more.
func (w *Worker) listen(l *listening, ln *Listener) (err error) {
	l.current = ln
	if l.socket == nil && !ln.onlyHTTP3() {
		l.socket, err = w.Loop.Listen(ln.Address, func(c transport.Conn) transport.Handler { return w.accept(l, c) })
	}
	return errors.Join(err, w.listen3(l))
}

// before is a listener as it was before Apply: nothing if current is nil. It is noted before anything of the listener changes.
type before struct {
	key     string
	l       *listening
	current *Listener
	socket  transport.Listener
	quic    bool
}

// restore makes a listener again what it was: Apply is all or nothing, since half of a configuration could route
// requests to a pool that is not there.
func (w *Worker) restore(b before) error {
	l := b.l
	if l.socket != nil && b.socket == nil {
		l.socket.Close()
		l.socket = nil
	}
	if !b.quic {
		w.unlisten3(l)
	}
	if b.current == nil {
		delete(w.listeners, b.key)
		return nil
	}
	l.current = b.current
	if b.quic {
		return w.listen3(l) // with its certificates
	}
	return nil
}

// unlisten stops accepting.
func (w *Worker) unlisten(l *listening) {
	if l.socket != nil {
		l.socket.Close()
	}
	w.unlisten3(l)
}

// remove stops accepting, and ends the connections that came in there.
func (w *Worker) remove(key string, l *listening) {
	w.unlisten(l)
	delete(w.listeners, key)
	l.removed = true
	for f, info := range w.fronts {
		if info != nil && info.at == l {
			drain(f)
		}
	}
	if t := l.current.Timeouts.Drain; t > 0 {
		w.After(t, l)
	}
}

// Fired ends what is left of a listener that was removed, at the end of its drain time. Connections over TCP are reset:
// a response that is cut must not look complete (RFC 9112 8).
func (l *listening) Fired() {
	w := l.w
	for f, info := range w.fronts {
		if info != nil && info.at == l {
			f.Mode = link.Reset
			f.Fail(errDrained)
		}
	}
	for c, f := range w.fronts3 {
		if c.at == l {
			f.Close(http3.NoError, "", errDrained)
		}
	}
}

// errDrained is the failure of connections that a listener which was removed has kept for too long.
var errDrained = errors.New("proxy: the drain time is over")

// dropUnused closes idle connections to backends that the configuration has no more. Busy ones go with their last
// request (keeps), so that a reload breaks none.
func (w *Worker) dropUnused(t *Tree) {
	w.pools = map[*Pool]bool{}
	for _, p := range t.Pools {
		w.pools[p] = true
	}
	w.DropGone()
}

// DropGone closes the idle connections to backends that are Gone since the last Apply. Service discovery changes the backends of a
// pool without a new tree.
func (w *Worker) DropGone() {
	for k, bs := range w.backs {
		if w.unused(k.pool, k.backend) {
			bs.retire()
			w.forget(k)
		}
	}
}

// unused reports whether no further request goes to a backend: the configuration does not have it, or its pool as it was.
func (w *Worker) unused(p *Pool, b *pool.Backend) bool { return !w.pools[p] || b.Gone() }

// forget forgets the connections to a backend that is not used, or of a client who has left, once there are none. Entries of backends
// in use stay without connections: what the last one taught (streams) serves the next.
func (w *Worker) forget(k backsKey) {
	bs, gone := w.backs[k], k.owner != nil && k.owner.gone
	if bs != nil && (gone || w.unused(k.pool, k.backend)) && len(bs.waiters) == 0 && len(bs.opening)+len(bs.shared)+bs.exclusive == 0 {
		delete(w.backs, k)
	}
}

// drainer is the session of a client's connection.
type drainer interface {
	link.Session
	// Drain ends the connection as soon as nothing is lost by it.
	Drain()
}

// drainOpening is the time that a handshake in progress may still take: enough for two round trips around the world, so
// that a client whose handshake is nearly complete is served instead of reset.
const drainOpening = time.Second

// drain ends the connection of a client as soon as nothing is lost by it.
func drain(l *link.Link) {
	switch f, ok := l.Session.(drainer); {
	case l.Stage == link.Closing:
	case ok:
		f.Drain()
	default: // a handshake, or what comes before the protocol is known
		if by := l.Runner.Now.Add(drainOpening); by < l.InputBy {
			l.Deadline(&l.InputBy, drainOpening)
		}
	}
}

// draining reports whether connections at a listener end after the requests that they have.
func (l *listening) draining() bool { return l.removed || l.w.draining }

// Drain stops accepting, and ends the connections of clients as their requests are answered. Idle reports when that is done.
func (w *Worker) Drain() {
	if w.draining {
		return
	}
	for key, l := range w.listeners {
		w.unlisten(l)
		delete(w.listeners, key)
	}
	w.draining = true         // of those that have been accepted just now, too
	for l := range w.fronts { // those of HTTP/3 were drained by unlisten
		drain(l)
	}
	w.dropUnused(&Tree{})
}

// Idle reports whether there is no connection of a client.
func (w *Worker) Idle() bool { return len(w.fronts)+len(w.fronts3) == 0 }

// random returns a random number. It selects pools by weight, which needs no number that cannot be predicted.
func (w *Worker) random() uint64 { return rand.Uint64() }
