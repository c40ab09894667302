package h2side

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Front is a client's connection with HTTP/2.
type Front struct {
	conn
	conf      *side.Conf
	state     side.Departure
	heading   bool   // the deadline of a header runs
	malformed uint64 // of the machine's requests, as far as they are counted
}

// NewFront has HTTP/2 on a link. It calls nothing of the owner.
func NewFront(l *link.Link, o http2.Options, conf *side.Conf, owner side.Owner) *Front {
	f := &Front{conf: conf, conn: conn{L: l, m: http2.NewMachine(http2.RoleServer, o), owner: owner}}
	f.ev.Caps = side.Caps{Protocol: "HTTP/2", Shared: true}
	l.Session = f
	l.Deadline(&l.InputBy, conf.Timeouts.Idle)
	f.control()
	return f
}

// Input implements link.Session.
func (f *Front) Input(p []byte, fin bool) int {
	if err := f.pull(f, p); err != nil {
		f.refused(side.RefusalOf(err), 1, 0)
		f.L.CloseBy(link.Linger)
		f.failAll(side.ErrProtocol)
		f.L.Close()
		return len(p)
	}
	f.boundHeader()
	if n := f.m.Malformed(); n > f.malformed {
		f.refused(side.RefusedMessage, n-f.malformed, 0)
		f.malformed = n
	}
	if fin {
		f.failAll(side.ErrTerminated)
		f.L.Close()
	}
	return len(p)
}

// refused reports input that was refused. The client was answered a status, or nothing with 0.
func (f *Front) refused(r side.Refusal, n uint64, status int) {
	f.ev.Reason, f.ev.N, f.ev.Status, f.ev.User = r, n, status, nil
	f.emit(side.Refused, nil)
}

// boundHeader has the deadline of a header run while one is being received. No other frame can arrive meanwhile (RFC 9113 4.3): a
// client that stops within a header stops all requests of its connection, and holds the memory of the header.
func (f *Front) boundHeader() {
	in := f.m.InHeader()
	if in == f.heading || !f.L.Open() {
		return
	}
	f.heading = in
	t := f.conf.Timeouts
	switch {
	case in && t.Header > 0:
		f.L.Deadline(&f.L.InputBy, t.Header)
	case !in && f.m.Streams() > 0:
		f.L.InputBy = clock.Never
	case !in:
		f.L.Deadline(&f.L.InputBy, t.Idle)
	}
}

// handle implements role.
func (f *Front) handle(ev *http2.Event, st *Stream) {
	switch {
	case ev.Stream == nil:
	case ev.Kind == http2.Headers:
		f.begin(ev.Stream)
	case ev.Kind == http2.TooLarge: // RFC 6585 5
		f.refused(side.Refusal(http1.Size), 1, side.TooLarge.Status)
		f.L.Out, _ = f.m.AppendResponse(f.output(), ev.Stream, &side.TooLarge, true)
		f.m.Release(ev.Stream)
	case ev.Kind == http2.Failed && st == nil:
		f.m.Release(ev.Stream)
	case ev.Kind == http2.Failed:
		st.arrived = true
		st.emit(side.Failed, side.ErrTerminated)
	}
}

// begin reports a request.
func (f *Front) begin(s *http2.Stream) {
	st := f.newStream(f, s)
	f.L.InputBy, f.heading = clock.Never, false // exchanges have deadlines of their own
	f.ev.Ending = side.EndsNow
	if !f.m.EndFollows(s) {
		f.ev.Ending = side.EndsLater
		st.expect = side.Expects(s.Message.Fields)
	}
	f.ev.Message, f.ev.Stream, f.ev.User, f.ev.Expects = &s.Message, st, &st.User, st.expect
	f.emit(side.Head, nil)
}

// head implements role.
func (f *Front) head(st *Stream, m *semantics.Message, e side.Ending) (err error) {
	if m.Status == 100 {
		if !st.expect {
			return nil
		}
		st.expect = false
	}
	if e == side.EndsByLength && m.ContentLength > 0 {
		st.left = m.ContentLength
	}
	f.L.Out, err = f.m.AppendResponse(f.output(), st.s, m, e == side.EndsNow)
	return err
}

// canceled implements role. The code has a meaning to clients: INTERNAL_ERROR is a failure, and after CANCEL the client may not take
// the response for complete either.
func (f *Front) canceled(st *Stream, gone bool) {
	code := http2.InternalError
	if gone {
		code = http2.Cancel
	}
	f.m.Reset(st.s, code)
	f.control()
}

// released implements role.
func (f *Front) released(st *Stream, s *http2.Stream) {
	if !st.arrived && s.Ended() {
		f.m.Reset(s, http2.NoError) // RFC 9113 8.1: the rest of the request is of no use
	}
	f.m.Release(s)
	f.control()
	f.rest()
}

// Drain has the client open no more streams, and ends the connection after those that are open. What the client has sent by the
// time that it knows is still served (RFC 9113 6.8).
func (f *Front) Drain() {
	if f.state != side.Serving {
		return
	}
	f.state = side.Warned
	f.L.CloseBy(link.Linger)
	f.m.Shutdown()
	f.control()
	f.L.Runner.After(side.DrainGrace, f)
}

// Fired ends the time of drain.
func (f *Front) Fired() {
	if f.L.Open() {
		f.Leave()
		f.rest()
	}
}

// Leave makes the requests that have arrived the last.
func (f *Front) Leave() {
	if f.state == side.Refusing {
		return
	}
	if f.state == side.Serving {
		f.m.Shutdown()
	}
	f.state = side.Refusing
	f.m.GoAway(http2.NoError)
	f.control()
}

// rest acts on a connection without requests.
func (f *Front) rest() {
	switch {
	case f.m.Streams() > 0 || !f.L.Open():
	case f.state == side.Refusing:
		f.L.Close()
	default:
		f.L.Deadline(&f.L.InputBy, f.conf.Timeouts.Idle)
	}
}

// Each calls do with what the owner keeps with each stream in use.
func (f *Front) Each(do func(user any)) { f.EachStream(func(st *Stream) { do(st.User) }) }

// Expired implements link.Session.
func (f *Front) Expired(output bool) {
	if !output && !f.heading && f.m.Streams() > 0 {
		return
	}
	f.failAll(side.ErrTimeout)
	if output {
		f.emit(side.Stuck, nil)
		f.L.Abort()
		return
	}
	if f.heading {
		f.refused(side.Refusal(http1.Incomplete), 1, 0)
	}
	f.Leave()
	f.L.Close()
}

// Failed implements link.Session.
func (f *Front) Failed(err error) { f.failAll(err) }
