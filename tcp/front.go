package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// front is the part of a Mux that stands before its connections: listeners, half-open and TIME-WAIT
// records, cookies, and the numbers that must not be guessed.
type front struct {
	secrets secrets
	ports   portChooser

	listeners  []*Listener // by Listener.id; nil where one has closed
	byEndpoint map[endpoint]*Listener
	ready      []*Listener // whose owners are to hear that connections wait
	spare      []*Listener

	half    halfOpens
	cookies cookieJar
	waits   waits
	servers fastOpens
	hoards  hoards
	opening map[uint32]*Listener // by Conn.id, of Fast Open connections whose handshake is not complete
	now     clock.Time           // for the timers of half
	timeout func(slot uint32)    // m.halfOpenTimeout, bound once

	resets, challenges limiter

	out     Outgoing // of what answer sends
	tuple   wire.Tuple
	options []byte
	cookie  [fastOpenCookieLen]byte
	auth    auth.State // of the half-open connection at hand
}

func (m *Mux) initFront() {
	cfg, f := &m.cfg, &m.front
	f.secrets = newSecrets(&cfg.Secret)
	f.ports.key = f.secrets.port
	f.cookies.key = f.secrets.cookie
	f.byEndpoint = map[endpoint]*Listener{}
	f.half.key, f.half.limit = f.secrets.table, orDefault(cfg.MaxHalfOpen, defaultMaxHalfOpen)
	f.waits.key, f.waits.limit = f.secrets.table, orDefault(cfg.MaxTimeWait, defaultMaxTimeWait)
	f.waits.length = orDefault(cfg.TimeWait, defaultTimeWait)
	f.resets = limiter{interval: limitInterval, burst: limitBurst}
	f.challenges = f.resets
	f.options = make([]byte, 0, 64)
	f.timeout = m.halfOpenTimeout
}

const defaultMaxHalfOpen = 1 << 16

func orDefault[T int | time.Duration](v, other T) T {
	if v == 0 {
		return other
	}
	return v
}

// pollFront runs the timers of what belongs to no connection and returns when it wants to be called next.
func (m *Mux) pollFront(now clock.Time) clock.Time {
	f := &m.front
	next := min(f.waits.expire(now), m.lookForHoards(now))
	if f.half.used == 0 {
		return next
	}
	f.now = now
	f.half.wheel.Advance(now, f.timeout)
	return min(next, f.half.nextTimer())
}

// halfOpenTimeout sends a SYN-ACK again, or gives up (RFC 9293 3.8.3).
func (m *Mux) halfOpenTimeout(slot uint32) {
	f := &m.front
	h := f.half.at(slot)
	l := f.listeners[h.listener]
	if h.resent >= synAckRetries || f.half.scarce() && h.resent >= synAckRetriesScarce {
		l.half--
		f.half.drop(slot)
		m.stats.Failed++
		return
	}
	h.resent++
	f.half.wheel.Arm(slot, h.due(f.now))
	m.stats.Retransmits++
	m.sendSynAck(f.now, l, h, f.authOf(l, h), 0)
}

// authFor returns what signs for a SYN that came to l: nil without keys; not ok where the SYN is not signed.
// It is good until the next one.
func (f *front) authFor(l *Listener, t *wire.Tuple, iss uint32, s *Segment) (a *auth.State, ok bool) {
	if l.opts.Keys == nil {
		return nil, true
	}
	f.auth.Init(l.opts.Keys, t, iss)
	if !f.auth.Verify(s.Raw) {
		return nil, false
	}
	f.auth.SetPeerISN(s.Seq)
	return &f.auth, true
}

// authOf returns what signs for h, nil without keys. It is good until the next one.
func (f *front) authOf(l *Listener, h *halfOpen) *auth.State {
	if l.opts.Keys == nil {
		return nil
	}
	f.auth.Init(l.opts.Keys, &h.tuple, h.iss)
	f.auth.SetPeerISN(h.irs)
	f.auth.UseKey(h.key)
	return &f.auth
}

// choosePort sets t.LocalPort to a port that Owns approves and neither a connection, a listener nor a
// TIME-WAIT record needs; connected reports whether there is a connection of a tuple.
func (m *Mux) choosePort(now clock.Time, t *wire.Tuple, connected func(*wire.Tuple) bool) bool {
	f := &m.front
	return f.ports.choose(t, func(t *wire.Tuple) bool {
		return (m.cfg.Owns == nil || m.cfg.Owns(t)) && !connected(t) && !f.listens(t) && f.free(now, t)
	})
}

// free reports whether no TIME-WAIT record keeps a new connection from t.
func (f *front) free(now clock.Time, t *wire.Tuple) bool {
	slot := f.waits.find(t)
	return slot == noSlot || f.waits.reusable(now, f.waits.at(slot))
}
