package proxy

import (
	ctls "crypto/tls"
	"slices"

	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// Early data to backends (RFC 8446 2.3, RFC 9001 4.6): requests leave with the first packet of a connection that resumes a session.
// Whoever sees that packet can send it again, so that only those go early that may be executed twice (RFC 8470 4). The others wait
// until the handshake is complete, and so does what the backend rejects or answers with 425.

// early is what of a connection to a backend is early data.
type early uint8

const (
	notEarly   early = iota
	asksEarly        // it is dialed for a request that may go early, and has perhaps no session to resume
	sendsEarly       // requests go out, and the handshake is not known to be complete: the connection is still one that is being opened
)

// earlyUse is whether the attempts of a request may be early data. The second attempt of one that was waits, whatever failed: it takes
// no risk.
type earlyUse uint8

const (
	mayBeEarly earlyUse = iota
	sentEarly           // the present attempt's request went out before the end of a handshake
	notAgain            // an attempt before was early data
)

// mayGoEarly reports whether the present attempt of a request may be early data: its method is safe, it has no content and no protocol
// to change to. One that came as early data itself is passed on with Early-Data: 1 and waits: that a backend's answer 425 is for the
// client is clear only then (RFC 8470 5.2).
func mayGoEarly(x *exchange) bool {
	return x.pooled.EarlyData && x.early != notAgain && safe(x.outgoing.Method) && x.up.message != flowing && x.up.bytes == 0 &&
		len(x.up.trailers) == 0 && x.outgoing.Protocol == "" && !slices.ContainsFunc(x.outgoing.Fields, isEarlyData)
}

func isEarlyData(f semantics.Field) bool { return f.Name == earlyData }

// prepareEarly has the handshake resume a session of this backend, where early data is to be sent at all. Names of servers do not
// distinguish the backends of a pool, and mostly none takes the tickets of another.
func (s *backConn) prepareEarly(tc *ctls.Config) {
	if s.key.pool.EarlyData && tc.ClientSessionCache != nil {
		tc.ClientSessionCache = backendSessions{tc.ClientSessionCache, s.key.backend.Address().String()}
	}
}

// backendSessions are the sessions of one backend in a cache of all. Each resumes one connection: a server takes the early data of a
// ticket once (RFC 8446 8.1), and observers could link connections that have the same (RFC 8446 C.4).
type backendSessions struct {
	all     ctls.ClientSessionCache
	backend string
}

// Get implements tls.ClientSessionCache.
func (b backendSessions) Get(key string) (*ctls.ClientSessionState, bool) {
	state, ok := b.all.Get(b.backend + " " + key)
	if ok {
		b.all.Put(b.backend+" "+key, nil)
	}
	return state, ok
}

// Put implements tls.ClientSessionCache.
func (b backendSessions) Put(key string, state *ctls.ClientSessionState) {
	b.all.Put(b.backend+" "+key, state)
}

// handshaken reports whether the handshake of a connection is complete.
func handshaken(q *quic.Conn) bool {
	select {
	case <-q.HandshakeComplete():
		return true
	default:
		return false
	}
}

// earlyQUIC begins those requests that may go early. The rest waits for the end of the handshake, which a goroutine reports: it ends
// with the handshake or with the connection.
func (s *backConn) earlyQUIC(c *quicconn.Conn) quicconn.Handler {
	if s.link.Closed() {
		return s.establishedQUIC(c)
	}
	b := h3side.NewBack(&s.w.Runner, c, s.key.pool.Header, s)
	s.conn, s.early = b, sendsEarly
	go func(q *quic.Conn) {
		select {
		case <-q.HandshakeComplete():
			accepted := q.State().Used0RTT
			s.w.Loop.Do(func() {
				s.w.Enter()
				if s.early == sendsEarly && !accepted {
					b.Reject()
				} else {
					s.confirmed()
				}
			})
		case <-q.Context().Done(): // the connection reports it
		}
	}(c.QUIC())
	waiting := s.waiting
	s.waiting = nil
	for _, x := range waiting {
		x.waits = nil
		s.join(x)
	}
	return b
}

// join has an exchange begin early, or wait for the connection. What cannot begin now waits as well: for a stream, for the settings.
func (s *backConn) join(x *exchange) {
	if s.early != sendsEarly || !mayGoEarly(x) {
		s.await(x)
		return
	}
	st, caps, err := s.conn.Begin(x, false)
	if err != nil {
		s.await(x)
		return
	}
	s.uses++
	x.early = sentEarly
	s.w.counters.earlySent.Add(1)
	x.opened(s, st, caps)
}

// confirmed makes the connection one like others, once the handshake is complete.
func (s *backConn) confirmed() {
	if s.early != sendsEarly {
		return
	}
	s.early = notEarly
	s.link.Finish()
	s.established(s.conn, true)
}

// earlyEvent handles an event of a connection whose handshake is not known to be complete, and reports whether that is all. Whatever the
// backend sends on streams has keys that only the end of the handshake gives (RFC 9001 4.1.4), and confirms it: the event may be
// quicker than its report. Of a connection that ends the streams fail next, and those that wait last, with the cause.
func (s *backConn) earlyEvent(ev *side.Event) (handled bool) {
	switch {
	case ev.Kind == side.Leaving && ev.Err != nil:
		s.early = notEarly
		s.link.Finish()
		s.remove()
		return true
	case ev.Kind == side.Failed:
		return false
	}
	s.confirmed()
	return false
}

// tooEarly sends a request again that a backend did not want as early data (RFC 8470 5.2): not early any more. A request that says
// Early-Data is not sent early: the answer is its client's.
func tooEarly(x *exchange, status int) bool {
	if status != 425 || x.early != sentEarly {
		return false
	}
	discardResponse(x, status)
	x.again()
	return true
}
