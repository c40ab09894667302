package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
)

// front is the part of a Mux that stands before its connections: listeners, half-open and TIME-WAIT
// records, cookies, and the numbers that must not be guessed.
type front struct {
	secrets secrets
	ports   portChooser
}

func newFront(cfg *Config) front {
	s := newSecrets(&cfg.Secret)
	return front{secrets: s, ports: portChooser{key: s.port}}
}

// choosePort sets t.LocalPort to a port that Owns approves and neither a connection, a listener nor a
// TIME-WAIT record needs; connected reports whether there is a connection of a tuple.
func (m *Mux) choosePort(now clock.Time, t *ip.Tuple, connected func(*ip.Tuple) bool) bool {
	return m.front.ports.choose(t, func(t *ip.Tuple) bool {
		return (m.cfg.Owns == nil || m.cfg.Owns(t)) && !connected(t)
	})
}
