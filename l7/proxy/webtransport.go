package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// WebTransport lets sessions of WebTransport through to the backends of a rule, whose pools have HTTP/3. It is not changed: a reload makes
// another one with the same counts.
type WebTransport struct {
	Sessions int                 // open at a time
	Limits   http3.SessionLimits // of each end in a session
	Idle     time.Duration       // without a byte in either direction, after which a session ends
	*WebTransportCounts
}

// WebTransportCounts count what a rule's sessions do. They outlive reloads.
type WebTransportCounts struct {
	h3side.RelayCounts
	Open                              atomic.Int64
	Opened, Refused, Full, Misbehaved atomic.Uint64 // sessions: of which backends have refused some
}

// isSession reports whether a request asks for a session of WebTransport.
func isSession(m *semantics.Message) bool {
	return m.Method == "CONNECT" && http3.IsSessionProtocol(m.Protocol)
}

// SessionsOfConn bounds the sessions of WebTransport on one connection of a client.
const SessionsOfConn = 16

// settingsTime is the time that a session waits for the client's settings, which mostly come before it.
const settingsTime = 5 * time.Second

// closeTime is the time that an end has to take the close of a session.
const closeTime = 5 * time.Second

// relayedSession is the session of an exchange. Its streams pass beside the exchange, which has the stream of CONNECT at both sides:
// what waits, how long, whose failure it is and where it leads is as with other requests.
type relayedSession struct {
	x       *exchange // nil once it has ended
	rule    *WebTransport
	release func() // of its place at the client's connection
	relay   *h3side.Relay
	early   []byte // capsules that have come before the response
	reason  string // why it has ended, for the access log
	ending  error  // by an end that breaks the protocol
}

// relayed is an exchange with a session: the methods are of this file.
type relayed struct{ *exchange }

// errSessions is the answer to a client whose connection has as many sessions as it may (draft-ietf-webtrans-http3 5.1).
var errSessions = errRate

// begin takes a request for a session, or answers it. Without a rule for sessions, or with another version than HTTP/3, it is one for a
// tunnel to nowhere.
func (x relayed) begin(path, query string, client netip.Addr) {
	rule := x.rule.WebTransport
	st, ok := x.front.(*h3side.Stream)
	if rule == nil || !ok {
		x.answer(errDenied)
		return
	}
	for i := range x.rule.Backends {
		if x.rule.Backends[i].Pool.Protocol != HTTP3 {
			x.answer(errNoTunnel)
			return
		}
	}
	switch enabled, known := st.Sessions(); {
	case !enabled: // the rule is younger than the connection
		x.answer(errDenied)
		return
	case !known:
		x.awaitSettings(path, query, client)
		return
	}
	release := st.ReserveSession()
	if release == nil {
		rule.Full.Add(1)
		x.answer(errSessions)
		return
	}
	if rule.Open.Add(1) > int64(rule.Sessions) {
		rule.Open.Add(-1)
		release()
		rule.Full.Add(1)
		x.answer(errLimit)
		return
	}
	x.session = &relayedSession{x: x.exchange, rule: rule, release: release}
	x.toPool(path, query, client)
}

// settingsWait holds the request of a session while the client's settings have not come.
type settingsWait struct {
	path, query string
	client      netip.Addr
}

// withdraw implements awaited.
func (*settingsWait) withdraw(*exchange) {}

// awaitSettings has a session wait for the client's settings, which its limits depend on (draft 3.1).
func (x relayed) awaitSettings(path, query string, client netip.Addr) {
	x.waits = &settingsWait{path, query, client}
	guarding(x).holding()
	guarding(x).holdUntil(settingsTime, func(x guarding) {
		x.on(admitted)
		x.answer(errRequest)
	})
}

// settled goes on with a session that has waited for the client's settings.
func (x relayed) settled() {
	wait, ok := x.waits.(*settingsWait)
	if !ok {
		return
	}
	x.waits, x.hold.until, x.hold.late = nil, clock.Never, nil
	x.on(admitted)
	x.begin(wait.path, wait.query, wait.client)
}

// accepted makes the response of a backend that has accepted the session. Any status of success does (draft 3.2).
func (x relayed) accepted(m *semantics.Message) (out *semantics.Message, ok bool) {
	switch {
	case m.Status == 101:
		return nil, false
	case m.Status < 200 || m.Status > 299:
		x.session.rule.Refused.Add(1)
		return m, true
	}
	x.fields = append(x.fields[:0], m.Fields...)
	x.reply = *m
	x.reply.ContentLength, x.reply.Fields = -1, x.fields
	return &x.reply, true
}

// join begins the session, which both sides have accepted.
func (x relayed) join() {
	s := x.session
	front, back := x.front.(*h3side.Stream), x.back.(*h3side.Stream)
	s.rule.Opened.Add(1)
	s.relay = h3side.Join(front, back, h3side.RelayOptions{
		Limits: s.rule.Limits, Send: s.send, Moved: s.moved, Broken: s.broken, Counts: &s.rule.RelayCounts,
	})
	if early := s.early; early != nil {
		s.early = nil
		x.front.Pause(false)
		x.capsules(h3side.ClientEnd, early)
	}
}

// relayTo returns the direction to an end.
func (x relayed) relayTo(to h3side.End) *relay {
	if to == h3side.ClientEnd {
		return &x.down
	}
	return &x.up
}

// capsules takes content of an end. Before the response it waits, and no more of it is read.
func (x relayed) capsules(from h3side.End, p []byte) {
	s := x.session
	if s.relay == nil {
		s.early = append(s.early, p...)
		x.front.Pause(true)
		return
	}
	if s.ending != nil {
		return
	}
	x.progress = x.w.Now
	out, err := s.relay.Input(from, p)
	if len(out) > 0 {
		x.relayTo(1-from).data(x.w, out)
	}
	if err != nil {
		s.broken(from, err)
	} else if s.relay.Ending() {
		x.deadline()
	}
}

// cutWithin reports whether the content of an end has ended within a capsule: then the session ends by that.
func (x relayed) cutWithin(from h3side.End) bool {
	s := x.session
	if s.relay != nil && s.relay.Cut(from) {
		s.broken(from, errWithinCapsule)
		return true
	}
	return s.ending != nil
}

var errWithinCapsule = &http3.StreamError{Code: http3.MessageError, Text: "the session's stream ends within a capsule"}

// send implements RelayOptions.Send.
func (s *relayedSession) send(to h3side.End, capsules []byte) {
	if x := s.x; x != nil && s.ending == nil {
		relayed{x}.relayTo(to).data(x.w, capsules)
	}
}

// moved implements RelayOptions.Moved.
func (s *relayedSession) moved(from h3side.End, n int) {
	x := s.x
	x.progress = x.w.Now
	relayed{x}.relayTo(1 - from).bytes += uint64(n)
}

// broken implements RelayOptions.Broken: the session ends in the next iteration of the loop, by a reset.
func (s *relayedSession) broken(by h3side.End, err error) {
	if s.ending != nil || s.x == nil {
		return
	}
	s.ending, s.reason = err, [...]string{"client: ", "backend: "}[by]+err.Error()
	s.rule.Misbehaved.Add(1)
	s.x.w.Loop.Do(func() {
		x := s.x
		if x == nil {
			return
		}
		x.w.Enter()
		x.failure = "http_protocol_error"
		if by == h3side.BackendEnd {
			x.account(errProtocol)
		}
		var code *http3.StreamError
		if wrong, ok := [2]side.Stream{x.front, x.back}[by].(*h3side.Stream); ok && errors.As(err, &code) {
			wrong.Abort(code.Code)
		}
		x.leaveBack(true)
		x.cut(false)
	})
}

// close ends the session with a code of 0 and a text, at both ends: the gateway has a reason to. An end that has not taken all that was sent
// to it is reset.
func (x relayed) close(text string) {
	s := x.session
	s.reason = text
	capsule := http3.AppendCloseSession(nil, 0, text)
	if closed := s.relay == nil || s.relay.Closed(); !closed && len(x.up.held) == 0 && x.back.Write(capsule) == len(capsule) {
		x.back.End(nil)
	} else {
		x.back.Cancel(true)
	}
	if closed := s.relay == nil || s.relay.Closed(); !closed && len(x.down.held) == 0 && x.front.Write(capsule) == len(capsule) {
		x.front.End(nil)
		x.finish()
		return
	}
	x.cut(false)
}

// idleTime is the time that the session may go on without a byte.
func (s *relayedSession) idleTime() time.Duration {
	if s.relay != nil && s.relay.Ending() {
		return closeTime
	}
	return s.rule.Idle
}

// idle ends a session in which nothing has come for its time, or whose end does not take the close.
func (x relayed) idle() {
	x.account(nil)
	x.close("idle")
}

// leave ends the session with its exchange.
func (s *relayedSession) leave() {
	if s.relay != nil {
		s.relay.Leave()
	}
	s.x = nil
	s.release()
	s.rule.Open.Add(-1)
}
