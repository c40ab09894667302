package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/syncookie"
	"github.com/millrace/millrace/wire"
)

// passive serves the segments that belong to no connection: listeners, the SYN queue, SYN
// cookies, the TIME-WAIT table, resets. It also has the secrets that keep outsiders from
// guessing sequence numbers and ports.
//
// Here a peer has not proved that it receives at its address, so a segment costs at most a
// bounded record and one small reply, and replies that anybody can provoke have a rate
// limit.
type passive struct {
	secrets  secrets
	ports    portChooser
	searches ports.Searches

	listeners []*Listener // by Listener.id; nil where one has closed
	freeIDs   []uint16    // indexes of listeners that are nil
	byPort    map[uint16]*localPort
	bound     ports.Set   // the keys of byPort
	ready     []*Listener // those that report waiting connections to their owners at the next Poll
	spare     []*Listener // the other list, so that owners may cause more while one is walked

	synQueue        synQueue
	cookies         syncookie.Codec
	timeWait        timeWaitTable
	fastOpenCache   fastOpenCache
	ecnFailures     ecn.Failures
	stalled         stalledPeers
	deferred        map[uint32]*Listener // by Conn.id: those that SetDeferAccept keeps from Accept
	fastOpenPending map[uint32]*Listener // by Conn.id: Fast Open connections whose handshake is not complete
	now             clock.Time           // for onSYNTimer
	onSYNTimer      func(slot uint32)    // m.halfOpenTimeout, bound once

	resetLimit, challengeLimit tokenBucket

	// Scratch of reply, and the signature state of the SYN queue record at hand.
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
	f.byPort = map[uint16]*localPort{}
	f.synQueue.key, f.synQueue.limit = f.secrets.table, valueOr(cfg.MaxHalfOpen, defaultMaxHalfOpen)
	f.timeWait.key, f.timeWait.limit = f.secrets.table, valueOr(cfg.MaxTimeWait, defaultMaxTimeWait)
	f.timeWait.searches = &f.searches
	f.timeWait.duration = valueOr(cfg.TimeWait, defaultTimeWait)
	f.resetLimit = tokenBucket{interval: replyInterval, burst: replyBurst}
	f.challengeLimit = f.resetLimit
	f.options = make([]byte, 0, 64)
	f.onSYNTimer = m.halfOpenTimeout
}

const defaultMaxHalfOpen = 1 << 16

// valueOr returns v, or other where v is zero.
func valueOr[T int | time.Duration](v, other T) T {
	if v == 0 {
		return other
	}
	return v
}

// pollPassive runs the timers of what belongs to no connection and returns when it must be
// called next.
func (m *Mux) pollPassive(now clock.Time) clock.Time {
	f := &m.passive
	next := clock.Never
	if f.timeWait.oldest != 0 {
		next = f.timeWait.expire(now)
	}
	if m.buffers.Tight() || f.stalled.seen != nil {
		next = min(next, m.checkStalled(now))
	}
	if f.synQueue.used == 0 {
		return next
	}
	f.now = now
	f.synQueue.wheel.Advance(now, f.onSYNTimer)
	return min(next, f.synQueue.nextTimer())
}

// authFor returns the signature state for a SYN that came to l: nil without keys, and not
// ok where the signature is missing or wrong. It is valid until the next call.
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

// authOf returns the signature state of record h, nil without keys. It is valid until the
// next call.
func (f *passive) authOf(l *Listener, h *halfOpen) *auth.State {
	if l.opts.Keys == nil {
		return nil
	}
	f.auth.Init(l.opts.Keys, &h.tuple, h.iss)
	f.auth.SetPeerISN(h.irs)
	f.auth.UseKey(h.keyIndex)
	return &f.auth
}

// choosePort sets t.LocalPort to a port that Owns approves and that no connection, listener
// or TIME-WAIT record uses. connected reports whether a tuple has a connection. It tries at
// most ports.StepTries ports, which is some 100 us, and then returns ErrPortSearch: the
// loop serves others before it goes on.
func (m *Mux) choosePort(now clock.Time, t *wire.Tuple, connected func(*wire.Tuple) bool) error {
	f := &m.passive
	t.LocalPort = 0
	s := f.searches.Find(t)
	if s == nil {
		if f.ports.choose(t, ports.QuickTries, func(t *wire.Tuple) bool {
			free, _ := m.portFree(now, t, connected)
			return free
		}) {
			return nil
		}
		s = f.searches.Begin(t)
	}
	from := uint16(firstPort + m.random.Uint64()%portCount)
	found, more := s.Step(now, t, from, firstPort, lastPort, func() (bool, clock.Time) { return m.portFree(now, t, connected) })
	switch {
	case found:
		return nil
	case more:
		return ErrPortSearch
	}
	return ErrNoPort
}

// portFree reports whether a connection may use t. Otherwise until is when a TIME-WAIT
// record stops to keep it, Never where something has to end first.
func (m *Mux) portFree(now clock.Time, t *wire.Tuple, connected func(*wire.Tuple) bool) (free bool, until clock.Time) {
	f := &m.passive
	if m.cfg.Owns != nil && !m.cfg.Owns(t) || connected(t) || f.listens(t) {
		return false, clock.Never
	}
	if p := f.byPort[t.LocalPort]; p != nil && p.bound.Covers(ports.NewScope(t.Local, false)) {
		return false, clock.Never
	}
	slot := f.timeWait.find(t)
	if slot == noSlot {
		return true, 0
	}
	r := f.timeWait.at(slot)
	return f.timeWait.reusable(now, r), f.timeWait.reusableAt(now, r)
}
