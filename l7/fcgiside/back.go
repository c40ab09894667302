package fcgiside

import (
	"errors"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Options are the settings of a connection.
type Options struct {
	Keep   bool                          // the backend leaves the connection open after a request
	Most   int                           // bytes of content of unknown length, which is held until its end; more fail by side.ErrContent
	Limits fastcgi.Limits                // of the headers of responses
	Log    func(user any, stderr []byte) // borrows what the application writes for the log
}

// Back is a connection to a backend with FastCGI.
type Back struct {
	link  *link.Link
	m     fastcgi.Machine
	head  fastcgi.Head
	opt   Options
	owner side.Owner
	user  any // of the stream, nil without one
	ev    side.Event

	// Variables are those of the next request as name-value pairs, without CONTENT_LENGTH. The owner sets them before Head.
	Variables []byte

	fields   []semantics.Field // of the response
	held     []byte            // content of unknown length
	request  requestState
	response responseState
	left     int64  // content of the response that its header announces and that has not come; -1: it announces none
	before   uint64 // what the link had written when the request began
	none     bool   // the response has no content, by the method or the status
	heard    bool   // a byte of the response has come
	broken   bool   // the connection cannot carry another request
}

// requestState is the progress of the request.
type requestState uint8

const (
	noRequest  requestState = iota
	holding                 // its content comes, and is held for its length is not known
	overflowed              // more of it has come than may be held
	streaming               // its content is sent on
	requestEnded
)

// responseState is the progress of the response.
type responseState uint8

const (
	noResponse    responseState = iota
	responseBegun               // its header has passed
	responseEnded               // FCGI_END_REQUEST has come
)

// NewBack has FastCGI on a link that has been established.
func NewBack(l *link.Link, o Options, owner side.Owner) *Back {
	s := &Back{link: l, opt: o, owner: owner}
	s.ev.Stream = s
	l.Session = s
	return s
}

// Begin implements side.Backend.
func (s *Back) Begin(user any, _ bool) (side.Stream, side.Caps, error) {
	s.user, s.heard, s.before, s.request, s.response, s.left = user, false, s.link.Written, noRequest, noResponse, -1
	s.head.Reset()
	s.link.InputBy = clock.Never
	return s, side.Caps{}, nil
}

// Head implements side.Stream. FastCGI has the length of the content in the variable CONTENT_LENGTH, and PHP reads no more than that:
// content of unknown length is held until its end.
func (s *Back) Head(m *semantics.Message, e side.Ending) error {
	s.none = m.Method == "HEAD"
	if e != side.EndsNow && m.ContentLength < 0 {
		s.request = holding
		return nil
	}
	s.begin(m.ContentLength)
	if s.request = streaming; e == side.EndsNow {
		s.endRequest()
	}
	return nil
}

// begin sends the variables.
func (s *Back) begin(length int64) {
	if length >= 0 {
		s.Variables = fastcgi.AppendLength(s.Variables, length)
	}
	s.link.Out = fastcgi.AppendParams(fastcgi.AppendBegin(s.link.Buffer(), s.opt.Keep), s.Variables)
	s.link.Touch()
}

func (s *Back) endRequest() {
	s.link.Out = fastcgi.AppendStdinEnd(s.link.Buffer())
	s.link.Touch()
	s.request = requestEnded
}

// Write implements side.Stream.
func (s *Back) Write(p []byte) int {
	switch s.request {
	case holding:
		if len(s.held)+len(p) > s.opt.Most {
			s.request, s.held = overflowed, nil
			s.link.Resume() // Input reports it: no event comes within a call
			return len(p)
		}
		s.held = append(s.held, p...)
		return len(p)
	case streaming:
		return s.send(p)
	}
	return len(p)
}

// send sends content.
func (s *Back) send(p []byte) (sent int) {
	l := s.link
	for sent < len(p) && l.Accepts() {
		part := p[sent:min(sent+fastcgi.MaxContent, len(p))]
		l.Out = fastcgi.AppendStdinHeader(l.Buffer(), len(part))
		n := l.Through(part) // after the header, which it flushes; what it has not sent is gathered, so that all of part is taken
		l.Out = append(l.Buffer(), part[n:]...)
		l.Touch()
		sent += len(part)
	}
	return sent
}

// End implements side.Stream. FastCGI has no trailers.
func (s *Back) End([]semantics.Field) {
	switch s.request {
	case holding:
		s.begin(int64(len(s.held)))
		s.link.Out = fastcgi.AppendStdin(s.link.Buffer(), s.held)
		s.held = nil
		s.endRequest()
	case streaming:
		s.endRequest()
	}
}

// Input implements link.Session.
func (s *Back) Input(p []byte, fin bool) (taken int) {
	if s.user == nil { // idle: a response without a request, or the end of the connection
		s.emit(side.Useless)
		return len(p)
	}
	if s.request == overflowed {
		s.broken = true
		s.fail(side.ErrContent)
		return len(p)
	}
	s.heard = s.heard || len(p) > 0
	for s.link.Demand != link.Paused && s.link.Open() && s.user != nil && s.response != responseEnded {
		ev, n, err := s.m.Next(p[taken:])
		taken += n
		if err == nil {
			var back int
			back, err = s.handle(&ev)
			taken -= back
		}
		if err != nil {
			s.broken = true
			s.fail(err)
			return len(p)
		}
		if ev.Kind == fastcgi.NeedInput {
			if fin && taken == len(p) {
				s.cut()
			}
			return taken
		}
	}
	if s.user == nil && taken < len(p) {
		s.emit(side.Useless)
	}
	return taken
}

// handle reports an event of the machine, and returns how many bytes of its payload come again.
func (s *Back) handle(ev *fastcgi.Event) (back int, err error) {
	switch ev.Kind {
	case fastcgi.Stdout:
		if s.response == noResponse {
			return s.readHead(ev.Payload)
		}
		return 0, s.content(ev.Payload)
	case fastcgi.Stderr:
		if s.opt.Log != nil {
			s.opt.Log(s.user, ev.Payload)
		}
	case fastcgi.End:
		return 0, s.end(ev.Status)
	}
	return 0, nil
}

// readHead reads the header of the response.
func (s *Back) readHead(p []byte) (back int, err error) {
	n, complete, err := s.head.Take(p, &s.opt.Limits)
	if err != nil || !complete {
		return 0, causeOf(err)
	}
	s.m.Unread(len(p) - n) // the owner may pause the stream, or end it
	m, err := s.head.Message(s.fields, &s.opt.Limits)
	if s.fields = m.Fields; err != nil {
		return 0, causeOf(err)
	}
	s.response, s.ev.Message, s.ev.Ending, s.left = responseBegun, &m, side.EndsLater, m.ContentLength
	if s.left >= 0 {
		s.ev.Ending = side.EndsByLength
	}
	if s.none = s.none || m.Status == 204 || m.Status == 304; s.none {
		s.left = 0
	}
	s.emit(side.Head)
	s.ev.Message = nil
	return len(p) - n, nil
}

// content passes content of the response on. What PHP sends where there can be none is dropped. Content behind the length that the header
// announces is an error: the client would read it as the next response.
func (s *Back) content(p []byte) error {
	switch {
	case s.none:
		return nil
	case s.left >= 0 && int64(len(p)) > s.left:
		return side.ErrProtocol
	case s.left >= 0:
		s.left -= int64(len(p))
	}
	s.ev.Payload, s.ev.Left = p, 0
	s.emit(side.Data)
	s.ev.Payload = nil
	return nil
}

// end handles FCGI_END_REQUEST.
func (s *Back) end(status fastcgi.Status) error {
	switch {
	case s.response == noResponse && status == fastcgi.Overloaded:
		return side.ErrUnprocessed
	case status != fastcgi.Complete, s.response == noResponse:
		return side.ErrProtocol
	case s.left > 0:
		return side.ErrIncomplete
	}
	s.response, s.ev.Trailers = responseEnded, nil
	s.emit(side.End)
	return nil
}

// causeOf returns what an error of the header is for the health of the backend.
func causeOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fastcgi.ErrHeadSize):
		return side.ErrHeaderSize
	}
	return side.ErrProtocol
}

// cut handles the end of the input within a response.
func (s *Back) cut() {
	s.broken = true
	if s.response == noResponse {
		s.fail(side.ErrTerminated)
		return
	}
	s.fail(side.ErrIncomplete)
}

// emit reports an event of the stream.
func (s *Back) emit(k side.Kind) {
	s.ev.Kind, s.ev.User = k, &s.user
	s.owner.Handle(&s.ev)
}

// fail reports that the stream has ended by an error.
func (s *Back) fail(err error) {
	if s.user == nil {
		return
	}
	var wrong fastcgi.Error
	if errors.As(err, &wrong) {
		err = side.ErrProtocol
	}
	s.ev.Started, s.ev.Err = s.heard, err
	s.emit(side.Failed)
}

// Pause implements side.Stream.
func (s *Back) Pause(on bool) {
	if on {
		s.link.Pause()
		return
	}
	s.link.Resume()
}

// Cancel implements side.Stream. FCGI_ABORT_REQUEST asks an application to end by itself, which PHP does not read: the end of the
// connection has it stop at its next output.
func (s *Back) Cancel(bool) { s.broken = true }

// Release implements side.Stream. A connection whose request is not complete is not used again: the rest of it would be of the next.
func (s *Back) Release() {
	s.broken = s.broken || s.request != requestEnded || s.response != responseEnded
	s.user, s.held = nil, nil
	if s.link.Demand == link.Paused && s.Reusable() {
		s.link.Resume()
	}
}

// Reusable implements side.Backend. Without Keep the application closes the connection after its request.
func (s *Back) Reusable() bool {
	return s.link.Open() && !s.broken && (s.opt.Keep || s.request == noRequest) && s.m.Idle() && len(s.link.In) == 0 && !s.link.Ended()
}

// Limit implements side.Backend.
func (s *Back) Limit() (streams int, known bool) { return 1, true }

// Streams implements side.Backend.
func (s *Back) Streams() int {
	if s.user != nil {
		return 1
	}
	return 0
}

// Rest implements side.Backend.
func (s *Back) Rest(t time.Duration) { s.link.Deadline(&s.link.InputBy, t) }

// Close implements side.Backend.
func (s *Back) Close() {
	if s.broken {
		s.link.Abort()
		return
	}
	s.link.Close()
}

// Writable implements link.Session.
func (s *Back) Writable() {
	if s.user != nil {
		s.emit(side.Writable)
	}
}

// Expired implements link.Session.
func (s *Back) Expired(bool) {
	if s.user == nil {
		s.emit(side.Useless) // idle for too long
		return
	}
	s.broken = true
	s.fail(side.ErrTimeout)
}

// Failed implements link.Session.
func (s *Back) Failed(err error) {
	s.emit(side.Closed)
	s.broken = true
	switch {
	case s.response != noResponse:
		err = side.ErrIncomplete
	case s.link.Written == s.before:
		err = side.ErrUnsent
	}
	s.fail(err)
}
