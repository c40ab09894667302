package h2side

import (
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// conn is the common part of both ends of HTTP/2: the machine, its output, and the streams that wait for windows.
type conn struct {
	L       *link.Link
	m       *http2.Machine
	owner   side.Owner
	event   http2.Event // of the machine
	ev      side.Event
	blocked []*Stream
	free    *Stream // for use again
	allowance
}

// role is the part that differs between the ends: Front and Back.
type role interface {
	handle(ev *http2.Event, st *Stream)
	head(st *Stream, m *semantics.Message, e side.Ending) error
	canceled(st *Stream, gone bool)
	// released gives the stream s of the machine back, which st had.
	released(st *Stream, s *http2.Stream)
}

// Stream is a request on one stream.
type Stream struct {
	C       *conn
	end     role
	s       *http2.Stream
	User    any
	next    *Stream // of the free ones
	unread  int     // content that was not consumed
	left    int64   // content that is to be sent, -1 if not known
	input   link.Demand
	waiting bool // in conn.blocked
	arrived bool // the message has arrived as a whole
	expect  bool // a client waits for 100 (Continue)
}

// newStream returns a stream for one of the machine.
func (c *conn) newStream(end role, s *http2.Stream) *Stream {
	st := c.free
	if st == nil {
		st = &Stream{}
	} else {
		c.free = st.next
	}
	*st = Stream{C: c, end: end, s: s, left: -1}
	s.User = st
	return st
}

// emit reports an event of the connection.
func (c *conn) emit(k side.Kind, err error) {
	c.ev.Kind, c.ev.Err = k, err
	c.owner.Handle(&c.ev)
}

// emit reports an event of a stream that is in use.
func (st *Stream) emit(k side.Kind, err error) {
	if st.User != nil {
		st.C.ev.Stream, st.C.ev.User = st, &st.User
		st.C.emit(k, err)
	}
}

// pull passes input to the machine, and its events on.
func (c *conn) pull(end role, p []byte) error {
	c.allowance.grant(c.m, c.L.Runner.Now)
	for c.L.Open() {
		var n int
		var err error
		c.event, n, err = c.m.Input(p)
		p = p[n:]
		if err != nil || c.event.Kind == http2.NeedInput {
			c.control()
			return err
		}
		c.handle(end, &c.event)
	}
	c.control()
	return nil
}

// handle acts on an event of the machine.
func (c *conn) handle(end role, ev *http2.Event) {
	if ev.Kind == http2.PeerSettings || ev.Stream == nil {
		end.handle(ev, nil)
		if ev.Kind == http2.PeerSettings || ev.Kind == http2.Window { // RFC 9113 6.9.2
			c.unblock()
		}
		return
	}
	st, _ := ev.Stream.User.(*Stream)
	switch {
	case ev.Kind == http2.Data && (st == nil || st.User == nil): // the connection's window counts it, whoever wants it (RFC 9113 5.1)
		c.m.Consumed(ev.Stream, len(ev.Payload))
	case ev.Kind == http2.Data:
		c.ev.Payload = ev.Payload
		st.emit(side.Data, nil)
		st.consumed(len(ev.Payload))
	case ev.Kind == http2.End && st != nil:
		st.arrived = true
		c.ev.Trailers = ev.Stream.Trailers
		st.emit(side.End, nil)
	case ev.Kind == http2.Window && st != nil:
		st.emit(side.Writable, nil)
	default:
		end.handle(ev, st)
	}
}

// EachStream calls do for each stream in use.
func (c *conn) EachStream(do func(st *Stream)) {
	c.m.Each(func(s *http2.Stream) {
		if st, ok := s.User.(*Stream); ok && st.User != nil {
			do(st)
		}
	})
}

// failAll reports that all streams have ended by an error.
func (c *conn) failAll(err error) { c.EachStream(func(st *Stream) { st.emit(side.Failed, err) }) }

// control gathers what the machine sends by itself.
func (c *conn) control() {
	if c.m.Pending() {
		c.L.Out = c.m.AppendControl(c.L.Buffer())
		c.L.Touch()
	}
}

// output returns the buffer to append to. Control frames come first.
func (c *conn) output() []byte {
	c.L.Touch()
	return c.m.AppendControl(c.L.Buffer())
}

// unblock lets the streams that wait go on, in the order in which they began to wait. One that fills the window again enters a new
// list, at its end, so that streams take turns.
func (c *conn) unblock() {
	list := c.blocked
	c.blocked = nil
	for _, st := range list {
		st.waiting = false
		st.emit(side.Writable, nil)
	}
	if c.blocked == nil {
		c.blocked = list[:0]
	}
}

// Writable implements link.Session.
func (c *conn) Writable() { c.unblock() }

// Head implements Stream.
func (st *Stream) Head(m *semantics.Message, e side.Ending) error { return st.end.head(st, m, e) }

// Write implements Stream.
func (st *Stream) Write(p []byte) int {
	c := st.C
	if st.s.Ended() {
		return len(p)
	}
	if !c.L.Accepts() {
		st.wait()
		return 0
	}
	out, n, err := c.m.AppendData(c.output(), st.s, p, st.left == int64(len(p)))
	c.L.Out = out
	if err != nil {
		return len(p) // the stream has ended: Failed follows
	}
	if st.left >= 0 {
		st.left -= int64(n)
	}
	if n < len(p) {
		st.wait()
	}
	return n
}

// wait has the stream written to again when the link or the connection's window permits it.
func (st *Stream) wait() {
	if !st.waiting {
		st.waiting = true
		st.C.blocked = append(st.C.blocked, st)
	}
}

// End implements Stream.
func (st *Stream) End(trailers []semantics.Field) {
	c := st.C
	switch {
	case st.s.Ended():
	case len(trailers) > 0:
		c.L.Out, _ = c.m.AppendTrailers(c.output(), st.s, trailers)
	default:
		c.L.Out, _, _ = c.m.AppendData(c.output(), st.s, nil, true)
	}
}

// consumed notes that n bytes of content were passed on, or are held. While the stream is paused they are not credited to the peer:
// the window of the stream then bounds what the gateway holds of it (RFC 9113 6.9).
func (st *Stream) consumed(n int) {
	switch {
	case st.input == link.Paused:
		st.unread += n
	case st.s != nil:
		st.C.m.Consumed(st.s, n)
	}
}

// Pause implements Stream.
func (st *Stream) Pause(on bool) {
	if on {
		st.input = link.Paused
		return
	}
	st.input = link.Wanted
	if n := st.unread; n > 0 {
		st.unread = 0
		st.C.m.Consumed(st.s, n)
		st.C.control()
	}
}

// Cancel implements Stream.
func (st *Stream) Cancel(gone bool) { st.end.canceled(st, gone) }

// Release implements Stream.
func (st *Stream) Release() {
	c, s := st.C, st.s
	if s == nil {
		return
	}
	st.User, st.s = nil, nil
	s.User = nil
	if !st.waiting { // blocked still names it otherwise, and would wake the request that uses it next
		st.next, c.free = c.free, st
	}
	st.end.released(st, s)
}
