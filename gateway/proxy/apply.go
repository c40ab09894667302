package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/millrace/millrace/gateway/transport"
)

// Apply gives the worker a configuration. Listeners that were there before keep their sockets, also where another value
// describes them: what they are is their name and address. Connections that are open go on with what they began with.
func (w *Worker) Apply(t *Tree) error {
	var errs []error
	used := map[string]bool{}
	for _, ln := range t.Listeners {
		key := ln.Name + " " + ln.Address.String()
		used[key] = true
		if l := w.listeners[key]; l != nil {
			l.current = ln
			continue
		}
		l := &listening{current: ln}
		s, err := w.loop.Listen(ln.Address, func(c transport.Conn) transport.Handler { return w.accept(l.current, c) })
		if err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", ln.Name, err))
			continue
		}
		l.socket = s
		w.listeners[key] = l
	}
	for key, l := range w.listeners {
		if !used[key] {
			l.socket.Close()
			delete(w.listeners, key)
		}
	}
	w.tree = t
	return errors.Join(errs...)
}

// random returns a random number.
func (w *Worker) random() uint64 { return rand.Uint64() }
