package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/syncookie"
	"github.com/millrace/millrace/wire"
)

// passive is the part of a Mux that stands before its connections: listeners, half-open and TIME-WAIT
// records, cookies, and the numbers that must not be guessed.
type passive struct {
	secrets secrets
	ports   portChooser

	listeners  []*Listener // by Listener.id; nil where one has closed
	byEndpoint map[endpoint]*Listener
	ready      []*Listener // whose owners are to hear that connections wait
	spare      []*Listener

	synQueue        synQueue
	cookies         syncookie.Codec
	timeWait        timeWaitTable
	fastOpenCache   fastOpenCache
	stalled         stalledPeers
	fastOpenPending map[uint32]*Listener // by Conn.id, of Fast Open connections whose handshake is not complete
	now             clock.Time           // for the timers of half
	onSYNTimer      func(slot uint32)    // m.halfOpenTimeout, bound once

	resetLimit, challengeLimit tokenBucket

	out     Outgoing // of what answer sends
	tuple   wire.Tuple
	options []byte
	cookie  [fastOpenCookieLen]byte
	auth    auth.State // of the half-open connection at hand
}

func (m *Mux) initPassive() {
	cfg, f := &m.cfg, &m.passive
	f.secrets = newSecrets(&cfg.Secret)
	f.ports.key = f.secrets.port
	f.byEndpoint = map[endpoint]*Listener{}
	f.synQueue.key, f.synQueue.limit = f.secrets.table, valueOr(cfg.MaxHalfOpen, defaultMaxHalfOpen)
	f.timeWait.key, f.timeWait.limit = f.secrets.table, valueOr(cfg.MaxTimeWait, defaultMaxTimeWait)
	f.timeWait.duration = valueOr(cfg.TimeWait, defaultTimeWait)
	f.resetLimit = tokenBucket{interval: replyInterval, burst: replyBurst}
	f.challengeLimit = f.resetLimit
	f.options = make([]byte, 0, 64)
	f.onSYNTimer = m.halfOpenTimeout
}

const defaultMaxHalfOpen = 1 << 16

func valueOr[T int | time.Duration](v, other T) T {
	if v == 0 {
		return other
	}
	return v
}

// pollPassive runs the timers of what belongs to no connection and returns when it wants to be called next.
func (m *Mux) pollPassive(now clock.Time) clock.Time {
	f := &m.passive
	next := min(f.timeWait.expire(now), m.checkStalled(now))
	if f.synQueue.used == 0 {
		return next
	}
	f.now = now
	f.synQueue.wheel.Advance(now, f.onSYNTimer)
	return min(next, f.synQueue.nextTimer())
}

// authFor returns what signs for a SYN that came to l: nil without keys; not ok where the SYN is not signed.
// It is good until the next one.
func (f *passive) authFor(l *Listener, t *wire.Tuple, iss uint32, s *Segment) (a *auth.State, ok bool) {
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
func (f *passive) authOf(l *Listener, h *halfOpen) *auth.State {
	if l.opts.Keys == nil {
		return nil
	}
	f.auth.Init(l.opts.Keys, &h.tuple, h.iss)
	f.auth.SetPeerISN(h.irs)
	f.auth.UseKey(h.keyIndex)
	return &f.auth
}

// choosePort sets t.LocalPort to a port that Owns approves and neither a connection, a listener nor a
// TIME-WAIT record needs; connected reports whether there is a connection of a tuple.
func (m *Mux) choosePort(now clock.Time, t *wire.Tuple, connected func(*wire.Tuple) bool) bool {
	f := &m.passive
	return f.ports.choose(t, func(t *wire.Tuple) bool {
		return (m.cfg.Owns == nil || m.cfg.Owns(t)) && !connected(t) && !f.listens(t) && f.tupleFree(now, t)
	})
}

// tupleFree reports whether no TIME-WAIT record keeps a new connection from t.
func (f *passive) tupleFree(now clock.Time, t *wire.Tuple) bool {
	slot := f.timeWait.find(t)
	return slot == noSlot || f.timeWait.reusable(now, f.timeWait.at(slot))
}
