package h3side

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/quic"
)

// RelayCounts count what relays do. They outlive reloads.
type RelayCounts struct {
	Streams, Bytes, Datagrams [2]atomic.Uint64 // from clients and from backends
	StreamsRefused            atomic.Uint64    // streams that ends without flow control opened above the limit
	Lost                      atomic.Uint64    // datagrams
}

// sessionStream is a stream of a session at one of its connections. Its other is the stream at the other connection: what comes in on
// one goes out on the other.
type sessionStream struct {
	s      *quicconn.Stream
	end    *Session       // nil while the session is not there
	other  *sessionStream // nil until the other end permits one
	id     uint64         // of the session, while end is nil
	since  clock.Time     // the same
	kind   int
	index  int // in end.streams
	in     half
	out    half
	opened bool   // by the peer
	stop   uint64 // the code with which the peer has stopped it, while other is nil
}

// half is the state of one direction of a stream. in and the other's out end together.
type half uint8

const (
	halfNone  half = iota // the stream has no such direction
	halfOpen              // bytes may follow
	halfEnded             // by its end, a reset or a stop
)

// pump passes on what has come in, as much as the other end takes: its room, and its credit for the session.
func (ss *sessionStream) pump() {
	o := ss.other
	for o != nil && ss.in == halfOpen {
		if err := ss.s.Err(); err != nil && err != io.EOF { //nolint:errorlint // package quic returns it as it is
			ss.wasReset(err)
			break
		}
		p, last := ss.s.Input(), ss.s.Err() == io.EOF //nolint:errorlint // see above
		n := 0
		if len(p) > 0 {
			n = o.end.flow.Reserve(min(len(p), o.s.Room()))
		}
		if fin := last && n == len(p); fin {
			o.s.Write(p, true)
			ss.in, o.out = halfEnded, halfEnded
		} else if n > 0 {
			o.s.Write(p[:n], false)
		} else {
			break
		}
		ss.s.Consume(n)
		ss.moved(n)
	}
	ss.settle()
}

// moved counts bytes that were passed on, for which the peer gets credit.
func (ss *sessionStream) moved(n int) {
	e := ss.end
	if n == 0 {
		return
	}
	e.r.Counts.Bytes[e.which].Add(uint64(n))
	e.r.Moved(e.which, n)
	if !e.flow.Receive(n) {
		e.r.Broken(e.which, errSessionCredit)
	}
}

// settle sends what is due after a change of the stream, and gives the pair back once nothing can follow on it.
func (ss *sessionStream) settle() {
	e, o := ss.end, ss.other
	if o != nil && ss.in != halfOpen && ss.out != halfOpen {
		ss.release()
		o.release()
		opener := e
		if o.opened {
			opener = o.end
		}
		opener.opened[ss.kind]--
		opener.flow.Ended(ss.kind)
		o.end.sendDue()
	} else if o != nil {
		o.end.sendDue()
	}
	e.sendDue()
}

func (ss *sessionStream) release() {
	ss.end.remove(ss)
	ss.s.Release()
}

// wasReset passes a reset by the peer on, with the code of the application.
func (ss *sessionStream) wasReset(err error) {
	ss.in = halfEnded
	ss.end.flow.WasReset()
	if o := ss.other; o.out == halfOpen {
		o.out = halfEnded
		o.s.Reset(relayedCode(err))
	}
}

// stopped passes the peer's stop on: it wants no more of what is sent.
func (ss *sessionStream) stopped(err error) {
	if ss.out != halfOpen {
		return
	}
	ss.out = halfEnded
	o := ss.other
	if o == nil { // connect passes it on
		ss.stop = relayedCode(err)
		return
	}
	if o.in == halfOpen {
		o.in = halfEnded
		o.s.StopReading(relayedCode(err))
		o.end.flow.WasReset()
	}
	ss.settle()
}

// relayedCode returns the code for the other end. A time-out, or the end of a connection, is none of an application.
func relayedCode(err error) uint64 {
	var e *quic.StreamError
	if errors.As(err, &e) && e.Remote {
		return http3.RelayedCode(e.Code)
	}
	return http3.WireCode(0)
}

// refuse ends a stream in both directions.
func (ss *sessionStream) refuse(code http3.ErrorCode) {
	if ss.in == halfOpen {
		ss.in = halfEnded
		ss.s.StopReading(uint64(code))
	}
	if ss.out == halfOpen {
		ss.out = halfEnded
		ss.s.Reset(uint64(code))
	}
	ss.s.Release()
}

// readable and writable are events of the stream. While the session is not there, input waits.
func (ss *sessionStream) readable() {
	if ss.end != nil {
		ss.pump()
	}
}

func (ss *sessionStream) writable() {
	if ss.other != nil {
		ss.other.pump()
	}
}

const (
	// earlyStreams bounds the streams of a connection that wait for their session, whose request or response may come after them
	// (draft 4.5), and earlyTime how long they do.
	earlyStreams = 16
	earlyTime    = 5 * time.Second
	// rememberedSessions is the number of sessions that have ended whose streams are refused at once.
	rememberedSessions = 8
)

// belongs takes a stream that the peer has opened for a session: it is none of HTTP any more.
func (k *Conn) belongs(st *Stream, session uint64) {
	ss := &sessionStream{s: st.S, id: session, since: k.w.Now, kind: http3.Unidirectional, in: halfOpen}
	if st.S.ID()&2 == 0 {
		ss.kind, ss.out = http3.Bidirectional, halfOpen
	}
	k.detach(st)
	ss.s.User = ss
	switch e := k.sessions[session]; {
	case e != nil:
		e.accept(ss)
	case slices.Contains(k.goneSessions[:], session+1):
		ss.refuse(http3.WTSessionGone)
	case len(k.early) >= earlyStreams:
		ss.refuse(http3.WTBufferedStreamRejected)
	default:
		k.early = append(k.early, ss)
		k.arm(k.w.Now.Add(earlyTime))
	}
}

// takeEarly returns the streams that have waited for a session.
func (k *Conn) takeEarly(session uint64) (list []*sessionStream) {
	k.early = slices.DeleteFunc(k.early, func(ss *sessionStream) bool {
		if ss.id == session {
			list = append(list, ss)
		}
		return ss.id == session
	})
	return list
}

// gone notes that there is no session for a stream of CONNECT, and refuses the streams that have waited for it.
func (k *Conn) gone(session uint64) {
	if !slices.Contains(k.goneSessions[:], session+1) {
		copy(k.goneSessions[1:], k.goneSessions[:])
		k.goneSessions[0] = session + 1
	}
	for _, ss := range k.takeEarly(session) {
		ss.refuse(http3.WTSessionGone)
	}
}

// expireEarly refuses streams whose session has not come in time.
func (k *Conn) expireEarly() {
	k.early = slices.DeleteFunc(k.early, func(ss *sessionStream) bool {
		late := k.w.Now >= ss.since.Add(earlyTime)
		if late {
			ss.refuse(http3.WTBufferedStreamRejected)
		}
		return late
	})
	if len(k.early) > 0 {
		k.arm(k.early[0].since.Add(earlyTime))
	}
}

// detach takes a stream of QUIC from HTTP.
func (k *Conn) detach(st *Stream) {
	k.m.Release(st.h)
	st.S, st.h = nil, nil
	k.unlist(st)
	st.recycle()
	k.session.ended()
}

// Abort resets the stream in both directions by a code, as Cancel does without one.
func (st *Stream) Abort(code http3.ErrorCode) { st.abort(code) }

// Sessions reports whether the connection has WebTransport, and whether the client's settings have come, without which it is not known
// which limits a session has (draft 3.1).
func (st *Stream) Sessions() (enabled, known bool) {
	_, known = st.conn.m.Peer()
	return st.conn.m.Sessions() > 0, known
}

// ReserveSession takes one of the places for sessions of the connection; release is nil if there is none.
func (st *Stream) ReserveSession() (release func()) {
	k, id := st.conn, st.S.ID()
	if uint64(k.reserved) >= k.m.MaxSessions() {
		return nil
	}
	k.reserved++
	return func() {
		k.reserved--
		k.gone(id)
	}
}

// drainSessions has an end of each session of the connection asked to end it soon: the connection is going away, and an application that
// sees GOAWAY of one connection is at the other (draft 4.7).
func (k *Conn) drainSessions(to End) {
	for _, e := range k.sessions {
		e.r.Drain(to)
	}
}
