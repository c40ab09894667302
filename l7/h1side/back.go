package h1side

import (
	"errors"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Back is a connection to a backend with HTTP/1.1.
type Back struct {
	conn
	before uint64 // what its link had written when the request began
	Broken bool   // it cannot carry another request
	heard  bool   // a byte of the response has come
}

// NewBack has HTTP/1.1 on a link that has been established.
func NewBack(l *link.Link, o http1.Options, owner side.Owner) *Back {
	s := &Back{conn: conn{L: l, m: http1.NewMachine(http1.RoleClient, o), owner: owner}}
	s.ev.Stream = s
	l.Session = s
	return s
}

// Begin implements side.Backend.
func (s *Back) Begin(user any, _ bool) (side.Stream, side.Caps, error) {
	s.User, s.heard, s.before, s.state, s.tunnel = user, false, s.L.Written, noResponse, false
	s.L.InputBy = clock.Never
	return s, side.Caps{Direct: s}, nil
}

// Input implements link.Session.
func (s *Back) Input(p []byte, fin bool) (taken int) {
	if s.User == nil { // idle: a response without a request, or the end of the connection (RFC 9112 9.5)
		s.emit(side.Useless)
		return len(p)
	}
	s.heard = s.heard || len(p) > 0
	for s.L.Demand != link.Paused && s.L.Open() && s.User != nil {
		ev, n, err := s.m.Input(p[taken:], fin)
		taken += n
		if err != nil {
			s.wrong(err, fin && len(p) == taken)
			return len(p)
		}
		if ev.Kind == http1.NeedInput {
			if fin && s.state != responseEnded {
				s.Broken = true
				s.fail(side.ErrTerminated)
			}
			return taken
		}
		s.handle(&ev)
	}
	if s.User == nil && taken < len(p) {
		s.emit(side.Useless) // bytes after the response: whose they are is not known
	}
	return taken
}

// handle reports an event of the machine.
func (s *Back) handle(ev *http1.Event) {
	switch ev.Kind {
	case http1.Headers:
		m := s.m.Message()
		s.ev.Ending = side.EndsLater
		switch {
		case m.Status < 200 && m.Status != 101:
		case m.Body == http1.NoBody && m.Status != 101:
			s.state, s.ev.Ending = responseEnded, side.EndsNow
		default:
			s.state, s.tunnel = responseBegun, m.Status == 101
			if m.Body == http1.Length {
				s.ev.Ending = side.EndsByLength
			}
		}
		s.ev.Message = &m.Message
		s.emit(side.Head)
	case http1.Data:
		s.data(ev.Payload)
	case http1.End:
		s.state = responseEnded
		s.ev.Trailers = s.m.Trailers()
		s.emit(side.End)
	}
}

// wrong handles a response that cannot be understood, or that the end of the connection cuts. The last three errors are
// different outcomes for the health of the backend: it breaks the protocol, it stops within a response, or it has sent none.
func (s *Back) wrong(err error, cut bool) {
	s.Broken = true
	var e *http1.Error
	switch {
	case s.state == noResponse && errors.As(err, &e) && e.Reason == http1.Size:
		s.fail(side.ErrHeaderSize)
	case !cut:
		s.fail(side.ErrProtocol)
	case s.state != noResponse:
		s.fail(side.ErrIncomplete)
	default:
		s.fail(side.ErrTerminated)
	}
}

// fail is that of conn.
func (s *Back) fail(err error) {
	s.ev.Started = s.heard
	s.conn.fail(err)
}

// Head implements Stream.
func (s *Back) Head(m *semantics.Message, e side.Ending) (err error) {
	s.L.Out, err = s.m.AppendRequest(s.L.Buffer(), m, e == side.EndsNow)
	s.L.Touch()
	return err
}

// End implements Stream.
func (s *Back) End(trailers []semantics.Field) {
	if s.finish(trailers) != nil {
		s.Broken = true
	}
}

// Progress implements Direct: the exchange bounds the time between parts of the content.
func (s *Back) Progress() {}

// Cancel implements Stream. HTTP/1.1 has no other way to end one request than to end its connection.
func (s *Back) Cancel(bool) { s.Broken = true }

// Release implements Stream.
func (s *Back) Release() {
	s.Broken = s.detach() || s.Broken
	if s.L.Demand == link.Paused && s.Reusable() {
		s.L.Resume()
	}
}

// Reusable implements side.Backend. A connection with bytes that no request has asked for is not used again: the next client would get
// them as its response (RFC 9112 11.1). Nor is one whose request is not complete, since the rest of it would be read as the next.
func (s *Back) Reusable() bool {
	return s.L.Open() && !s.Broken && s.m.Idle() && s.m.KeepAlive() && len(s.L.In) == 0 && !s.L.Ended()
}

// Limit implements side.Backend.
func (s *Back) Limit() (streams int, known bool) { return 1, true }

// Streams implements side.Backend.
func (s *Back) Streams() int {
	if s.User != nil {
		return 1
	}
	return 0
}

// Rest implements side.Backend.
func (s *Back) Rest(t time.Duration) { s.L.Deadline(&s.L.InputBy, t) }

// Close implements side.Backend.
func (s *Back) Close() {
	if s.Broken {
		s.L.Abort()
		return
	}
	s.L.Close()
}

// Expired implements link.Session.
func (s *Back) Expired(bool) {
	if s.User == nil {
		s.emit(side.Useless) // idle for too long
		return
	}
	s.Broken = true
	s.fail(side.ErrTimeout)
}

// Failed implements link.Session.
func (s *Back) Failed(err error) {
	s.emit(side.Closed)
	s.Broken = true
	switch {
	case s.state != noResponse:
		err = side.ErrIncomplete
	case s.L.Written == s.before:
		err = side.ErrUnsent
	}
	s.fail(err)
}
