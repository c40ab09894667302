package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// back1 is a connection to a backend with HTTP/1.1.
type back1 struct {
	conn1
	before uint64 // what its link had written when the request began
	broken bool   // it cannot carry another request
	heard  bool   // a byte of the response has come
}

// newBack1 has HTTP/1.1 on a link that has been established.
func newBack1(l *link, owner Owner) *back1 {
	s := &back1{conn1: conn1{l: l, m: http1.NewMachine(http1.RoleClient, http1.Options{}), owner: owner}}
	s.ev.Stream = s
	l.session = s
	return s
}

// begin implements backConn.
func (s *back1) begin(user any, _ bool) (Stream, Caps, error) {
	s.user, s.heard, s.before, s.state, s.tunnel = user, false, s.l.written, noResponse, false
	s.l.inputBy = clock.Never
	return s, Caps{Direct: s}, nil
}

func (s *back1) input(p []byte, fin bool) (taken int) {
	if s.user == nil { // idle: a response without a request, or the end of the connection (RFC 9112 9.5)
		s.emit(Useless)
		return len(p)
	}
	s.heard = s.heard || len(p) > 0
	for s.l.demand != paused && s.l.open() && s.user != nil {
		ev, n, err := s.m.Input(p[taken:], fin)
		taken += n
		if err != nil {
			s.wrong(fin && len(p) == taken)
			return len(p)
		}
		if ev.Kind == http1.NeedInput {
			if fin && s.state != responseEnded {
				s.broken = true
				s.fail(ErrTerminated)
			}
			return taken
		}
		s.handle(&ev)
	}
	if s.user == nil && taken < len(p) {
		s.emit(Useless) // bytes after the response: whose they are is not known
	}
	return taken
}

// handle reports an event of the machine.
func (s *back1) handle(ev *http1.Event) {
	switch ev.Kind {
	case http1.Headers:
		m := s.m.Message()
		s.ev.Ending = EndsLater
		switch {
		case m.Status < 200 && m.Status != 101:
		case m.Body == http1.NoBody && m.Status != 101:
			s.state, s.ev.Ending = responseEnded, EndsNow
		default:
			s.state, s.tunnel = responseBegun, m.Status == 101
			if m.Body == http1.Length {
				s.ev.Ending = EndsByLength
			}
		}
		s.ev.Message = &m.Message
		s.emit(Head)
	case http1.Data:
		s.data(ev.Payload)
	case http1.End:
		s.state = responseEnded
		s.ev.Trailers = s.m.Trailers()
		s.emit(End)
	}
}

// wrong handles a response that cannot be understood, or that the end of the connection cuts.
func (s *back1) wrong(cut bool) {
	s.broken = true
	switch {
	case !cut:
		s.fail(ErrProtocol)
	case s.state != noResponse:
		s.fail(ErrIncomplete)
	default:
		s.fail(ErrTerminated)
	}
}

// fail is that of conn1.
func (s *back1) fail(err error) {
	s.ev.Started = s.heard
	s.conn1.fail(err)
}

// Head implements Stream.
func (s *back1) Head(m *semantics.Message, e Ending) (err error) {
	s.l.out, err = s.m.AppendRequest(s.l.buffer(), m, e == EndsNow)
	s.l.touch()
	return err
}

// End implements Stream.
func (s *back1) End(trailers []semantics.Field) {
	if s.finish(trailers) != nil {
		s.broken = true
	}
}

// progress implements Direct: the exchange bounds the time between parts of the content.
func (s *back1) progress() {}

// Cancel implements Stream.
func (s *back1) Cancel(bool) { s.broken = true }

// Release implements Stream.
func (s *back1) Release() {
	s.broken = s.detach() || s.broken
	if s.l.demand == paused && s.reusable() {
		s.l.resume()
	}
}

// reusable implements backConn.
func (s *back1) reusable() bool {
	return s.l.open() && !s.broken && s.m.Idle() && s.m.KeepAlive() && len(s.l.in) == 0 && !s.l.ended()
}

// limit implements backConn.
func (s *back1) limit() (streams int, known bool) { return 1, true }

// streams implements backConn.
func (s *back1) streams() int {
	if s.user != nil {
		return 1
	}
	return 0
}

// rest implements backConn.
func (s *back1) rest(t time.Duration) { s.l.deadline(&s.l.inputBy, t) }

// close implements backConn.
func (s *back1) close() {
	if s.broken {
		s.l.abort()
		return
	}
	s.l.close()
}

func (s *back1) expired(bool) {
	if s.user == nil {
		s.emit(Useless) // idle for too long
		return
	}
	s.broken = true
	s.fail(ErrTimeout)
}

func (s *back1) failed(err error) {
	s.emit(Closed)
	s.broken = true
	switch {
	case s.state != noResponse:
		err = ErrIncomplete
	case s.l.written == s.before:
		err = ErrUnsent
	}
	s.fail(err)
}
