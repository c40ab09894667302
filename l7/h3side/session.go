package h3side

import (
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/quic"
)

// End is an end of a session of WebTransport that is relayed.
type End uint8

// The ends of a session.
const (
	ClientEnd End = iota
	BackendEnd
)

// RelayOptions configure a Relay. All functions are called on the loop, within events of one of the two connections: they must not end the
// session before the event is over.
type RelayOptions struct {
	// Limits are the streams of each kind that each end may have opened at a time, and the bytes of a session that an end with flow control
	// may send ahead of what the other end has taken.
	Limits http3.SessionLimits
	// Send sends capsules on the stream of CONNECT of an end.
	Send func(to End, capsules []byte)
	// Moved reports bytes of a stream or a datagram that were passed on.
	Moved func(from End, n int)
	// Broken reports that an end breaks the protocol. The error is a *http3.StreamError.
	Broken func(by End, err error)
	Counts *RelayCounts
}

// Relay passes the streams, datagrams and capsules of a session on between a client and a backend.
//
// Each end is a Session of its own: credit, IDs of streams and codes of HTTP/3 are of one connection, and only what is an application's
// passes. Both connections belong to one loop, so that a stream is a pair of streams of quicconn, without goroutines or locks of the relay.
type Relay struct {
	RelayOptions
	ends    [2]Session
	stopped bool // the client takes no more on the stream of CONNECT
}

// Session is one end of a relayed session.
type Session struct {
	r        *Relay
	k        *Conn
	id       uint64 // of the stream of CONNECT
	which    End
	state    sessionState
	drained  bool // its peer has been asked to end the session soon
	capsules http3.Capsules
	flow     http3.SessionFlow
	streams  []*sessionStream
	opened   [2]int              // of these, by kind: those that the peer has opened
	waiting  [2][]*sessionStream // of these: those that wait for a stream at the other end
	later    [2]bool             // Conn.OpenLater is under way, for the other end's
	ctx      context.Context
	cancel   context.CancelFunc
}

// sessionState is the state of an end of a session.
type sessionState uint8

const (
	sessionOpen   sessionState = iota
	sessionClosed              // its peer has closed it: nothing may follow on the stream of CONNECT
	sessionOver                // of the session, nothing is there any more
)

// Errors of an end that breaks the protocol (draft-ietf-webtrans-http3 5.3, 6; RFC 9297 3.3).
var (
	errSessionCredit  = &http3.StreamError{Code: http3.WTFlowControlError, Text: "the peer exceeds the limits of the session"}
	errSessionCapsule = &http3.StreamError{Code: http3.MessageError, Text: "a malformed capsule of the session"}
	errAfterClose     = &http3.StreamError{Code: http3.MessageError, Text: "data after the close of the session"}
)

// Join has the session of two streams of CONNECT relayed, of which the second one's response has accepted it. Streams of it that have come
// early are passed on at once.
func Join(client, backend *Stream, o RelayOptions) *Relay {
	r := &Relay{RelayOptions: o}
	for i, st := range [2]*Stream{client, backend} {
		e := &r.ends[i]
		*e = Session{r: r, k: st.conn, id: st.S.ID(), which: End(i), flow: st.conn.m.Flow()}
		e.capsules.Known = func(uint64) bool { return true } // so that one above its limit is an error
		e.ctx, e.cancel = context.WithCancel(context.Background())
		if e.k.sessions == nil {
			e.k.sessions = map[uint64]*Session{}
		}
		e.k.sessions[e.id] = e
		e.k.takeDatagrams(e.id, func(p []byte) { e.datagram(p) })
	}
	for i := range r.ends {
		e := &r.ends[i]
		e.flow.Grow(o.Limits)
		e.sendDue()
		for _, ss := range e.k.takeEarly(e.id) {
			e.accept(ss)
		}
	}
	return r
}

func (e *Session) other() *Session { return &e.r.ends[1-e.which] }

// Leave ends what the relay has. It sends nothing on the streams of CONNECT. It may be called again.
func (r *Relay) Leave() {
	for i := range r.ends {
		r.ends[i].leave()
	}
}

func (e *Session) leave() {
	if e.state == sessionOver {
		return
	}
	e.state = sessionOver
	e.endStreams()
	e.cancel()
	delete(e.k.sessions, e.id)
	delete(e.k.takers, e.id)
	e.k.gone(e.id)
}

// endStreams resets the streams of the session (draft 6).
func (e *Session) endStreams() {
	all := e.streams
	e.streams, e.waiting = nil, [2][]*sessionStream{}
	for _, ss := range all {
		ss.refuse(http3.WTSessionGone)
	}
}

// Input takes bytes of the stream of CONNECT from an end, and returns the capsules to be sent to the other one. Those of flow control
// are the connection's own (draft 5.5), and datagrams leave beside the stream. Capsules of other types pass as they are (RFC 9297 3.2).
func (r *Relay) Input(from End, p []byte) (out []byte, err error) {
	e := &r.ends[from]
	for len(p) > 0 {
		if e.state != sessionOpen {
			return out, errAfterClose
		}
		kind, value, n, complete, err := e.capsules.Next(p)
		if err != nil {
			return out, errSessionCapsule
		}
		if p = p[n:]; !complete {
			continue
		}
		switch {
		case http3.IsFlowCapsule(kind):
			err = e.credit(kind, value)
		case kind == http3.CapsuleDatagram:
			e.datagram(value)
		case kind == http3.CapsuleCloseSession:
			if _, _, ok := http3.ParseCloseSession(value); !ok {
				return out, errSessionCapsule
			}
			out = http3.AppendCapsule(out, kind, value)
			e.close()
		case kind == http3.CapsuleDrainSession:
			out = r.appendDrain(out, 1-from)
		default:
			out = http3.AppendCapsule(out, kind, value)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// close ends the streams of a session that its peer has closed, on both sides. The streams of CONNECT end after that.
func (e *Session) close() {
	e.state = sessionClosed
	e.endStreams()
	e.other().endStreams()
}

// Closed reports whether an end has closed the session.
func (r *Relay) Closed() bool {
	return r.ends[ClientEnd].state != sessionOpen || r.ends[BackendEnd].state != sessionOpen
}

// Ending reports whether nothing but the ends of the streams of CONNECT is to come.
func (r *Relay) Ending() bool { return r.stopped || r.Closed() }

// Cut reports whether the input of an end ends within a capsule, so that it is malformed (RFC 9297 3.3).
func (r *Relay) Cut(from End) bool { return r.ends[from].capsules.Cut() }

// Drain asks an end to end the session soon, once (draft 4.7).
func (r *Relay) Drain(to End) {
	if b := r.appendDrain(nil, to); len(b) > 0 {
		r.Send(to, b)
	}
}

func (r *Relay) appendDrain(dst []byte, to End) []byte {
	e := &r.ends[to]
	if e.drained || r.Closed() {
		return dst
	}
	e.drained = true
	return http3.AppendCapsule(dst, http3.CapsuleDrainSession, nil)
}

// credit handles a capsule of flow control: what has waited for credit goes on.
func (e *Session) credit(kind uint64, value []byte) error {
	v, ok := http3.FlowCapsule(value)
	if !ok {
		return errSessionCapsule
	}
	if !e.flow.Capsule(kind, v) {
		return errSessionCredit
	}
	for _, ss := range slices.Clone(e.streams) {
		if ss.other != nil {
			ss.other.pump()
		}
	}
	e.other().resume()
	e.sendDue()
	return nil
}

// sendDue sends the capsules of flow control that are due.
func (e *Session) sendDue() {
	if e.state != sessionOpen || e.other().state != sessionOpen {
		return
	}
	if b := e.flow.AppendDue(nil); len(b) > 0 {
		e.r.Send(e.which, b)
	}
}

// datagram passes a datagram of the peer on, or loses it.
func (e *Session) datagram(p []byte) {
	to := e.other()
	if e.r.Closed() {
		return
	}
	e.r.Moved(e.which, len(p))
	if c := e.r.Counts; !to.k.m.Datagrams() || !to.k.C.SendDatagram(http3.AppendDatagram(nil, to.id, p)) {
		c.Lost.Add(1)
	} else {
		c.Datagrams[e.which].Add(1)
	}
}

// accept takes a stream that the peer has opened.
func (e *Session) accept(ss *sessionStream) {
	ss.end = e
	switch {
	case e.r.Closed():
		ss.refuse(http3.WTSessionGone)
		return
	case !e.flow.Accept(ss.kind):
		ss.refuse(http3.WTSessionGone)
		e.r.Broken(e.which, errSessionCredit)
		return
	case uint64(e.opened[ss.kind]) >= e.limit(ss.kind): // of a peer without flow control
		e.r.Counts.StreamsRefused.Add(1)
		ss.refuse(http3.WTBufferedStreamRejected)
		e.ended(ss.kind)
		return
	}
	e.r.Counts.Streams[e.which].Add(1)
	e.opened[ss.kind]++
	ss.opened = true
	e.add(ss)
	if ss.out == halfOpen {
		ss.s.Watch()
	}
	e.waiting[ss.kind] = append(e.waiting[ss.kind], ss)
	e.open(ss.kind)
}

// ended gives the peer credit for another stream, of which the rest may be lost.
func (e *Session) ended(kind int) {
	e.flow.Ended(kind)
	e.flow.WasReset()
	e.sendDue()
}

func (e *Session) limit(kind int) uint64 {
	if kind == http3.Unidirectional {
		return e.r.Limits.UniStreams
	}
	return e.r.Limits.Streams
}

func (e *Session) add(ss *sessionStream) {
	ss.index = len(e.streams)
	e.streams = append(e.streams, ss)
}

func (e *Session) remove(ss *sessionStream) {
	last := len(e.streams) - 1
	if last < 0 { // endStreams
		return
	}
	e.streams[ss.index] = e.streams[last]
	e.streams[ss.index].index = ss.index
	e.streams = e.streams[:last]
}

// resume opens streams at the other end that have waited for its credit.
func (e *Session) resume() {
	e.open(http3.Bidirectional)
	e.open(http3.Unidirectional)
}

// open opens streams at the other end for those that wait for one, as many as that end permits.
func (e *Session) open(kind int) {
	to := e.other()
	for len(e.waiting[kind]) > 0 && !e.later[kind] {
		if !to.flow.Open(kind) {
			to.sendDue()
			return
		}
		open := to.k.C.Open
		if kind == http3.Unidirectional {
			open = to.k.C.OpenUni
		}
		s, err := open()
		if err == nil {
			e.connect(kind, s)
			continue
		}
		to.flow.Close(kind)
		if errors.Is(err, quic.ErrStreamLimit) {
			e.openLater(kind)
		}
		return // otherwise the connection ends, and with it the session
	}
}

// openLater waits for QUIC's credit for a stream at the other end, which says nothing when there is some.
func (e *Session) openLater(kind int) {
	to := e.other()
	e.later[kind] = true
	to.k.C.OpenLater(e.ctx, kind == http3.Unidirectional, func(s *quicconn.Stream) {
		to.k.w.Enter()
		e.later[kind] = false
		if len(e.waiting[kind]) == 0 || !to.flow.Open(kind) {
			s.StopReading(uint64(http3.RequestCancelled))
			s.Reset(uint64(http3.RequestCancelled))
			s.Release()
			return
		}
		e.connect(kind, s)
		e.open(kind)
	})
}

// connect joins the first stream that waits with one at the other end.
func (e *Session) connect(kind int, s *quicconn.Stream) {
	ss, to := e.waiting[kind][0], e.other()
	e.waiting[kind] = e.waiting[kind][1:]
	o := &sessionStream{s: s, end: to, other: ss, kind: kind, out: halfOpen}
	if kind == http3.Bidirectional {
		o.in = halfOpen
	}
	s.User, ss.other = o, o
	to.add(o)
	s.WriteFirst(http3.AppendWebTransport(nil, to.id, kind == http3.Unidirectional))
	s.Watch()
	if kind == http3.Bidirectional && ss.out != halfOpen { // it was stopped while it waited
		o.in = halfEnded
		s.StopReading(ss.stop)
	}
	ss.pump()
}
