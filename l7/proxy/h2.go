package proxy

import (
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// conn2 is what both ends of HTTP/2 share: the machine, its output, and the streams that wait for windows.
type conn2 struct {
	l       *link
	m       *http2.Machine
	owner   Owner
	event   http2.Event // of the machine
	ev      Event
	blocked []*stream2
	free    *stream2 // for use again
	allowance
}

// session2 is what differs between the ends: front2 and back2.
type session2 interface {
	handle(ev *http2.Event, st *stream2)
	head(st *stream2, m *semantics.Message, e Ending) error
	canceled(st *stream2, gone bool)
	// released gives the stream s of the machine back, which st had.
	released(st *stream2, s *http2.Stream)
}

// stream2 is a request on one stream.
type stream2 struct {
	c       *conn2
	end     session2
	s       *http2.Stream
	user    any
	next    *stream2 // of the free ones
	unread  int      // content that was not consumed
	left    int64    // content that is to be sent, -1 if not known
	input   demand
	waiting bool // in conn2.blocked
	arrived bool // the message has arrived as a whole
	expect  bool // a client waits for 100 (Continue)
}

// newStream returns a stream for one of the machine.
func (c *conn2) newStream(end session2, s *http2.Stream) *stream2 {
	st := c.free
	if st == nil {
		st = &stream2{}
	} else {
		c.free = st.next
	}
	*st = stream2{c: c, end: end, s: s, left: -1}
	s.User = st
	return st
}

// emit reports an event of the connection.
func (c *conn2) emit(k Kind, err error) {
	c.ev.Kind, c.ev.Err = k, err
	c.owner.Handle(&c.ev)
}

// emit reports an event of a stream that is in use.
func (st *stream2) emit(k Kind, err error) {
	if st.user != nil {
		st.c.ev.Stream, st.c.ev.User = st, &st.user
		st.c.emit(k, err)
	}
}

// pull passes input to the machine, and its events on.
func (c *conn2) pull(end session2, p []byte) error {
	c.allowance.grant(c.m, c.l.w.now)
	for c.l.open() {
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
func (c *conn2) handle(end session2, ev *http2.Event) {
	if ev.Kind == http2.PeerSettings || ev.Stream == nil {
		end.handle(ev, nil)
		if ev.Kind == http2.PeerSettings || ev.Kind == http2.Window { // RFC 9113 6.9.2
			c.unblock()
		}
		return
	}
	st, _ := ev.Stream.User.(*stream2)
	switch {
	case ev.Kind == http2.Data && (st == nil || st.user == nil):
		c.m.Consumed(ev.Stream, len(ev.Payload))
	case ev.Kind == http2.Data:
		c.ev.Payload = ev.Payload
		st.emit(Data, nil)
		st.consumed(len(ev.Payload))
	case ev.Kind == http2.End && st != nil:
		st.arrived = true
		c.ev.Trailers = ev.Stream.Trailers
		st.emit(End, nil)
	case ev.Kind == http2.Window && st != nil:
		st.emit(Writable, nil)
	default:
		end.handle(ev, st)
	}
}

// eachStream calls do for each stream in use.
func (c *conn2) eachStream(do func(st *stream2)) {
	c.m.Each(func(s *http2.Stream) {
		if st, ok := s.User.(*stream2); ok && st.user != nil {
			do(st)
		}
	})
}

// failAll reports that all streams have ended by an error.
func (c *conn2) failAll(err error) { c.eachStream(func(st *stream2) { st.emit(Failed, err) }) }

// control gathers what the machine sends by itself.
func (c *conn2) control() {
	if c.m.Pending() {
		c.l.out = c.m.AppendControl(c.l.buffer())
		c.l.touch()
	}
}

// output returns the buffer to append to. Control frames come first.
func (c *conn2) output() []byte {
	c.l.touch()
	return c.m.AppendControl(c.l.buffer())
}

// unblock lets the streams that wait go on.
func (c *conn2) unblock() {
	list := c.blocked
	c.blocked = nil
	for _, st := range list {
		st.waiting = false
		st.emit(Writable, nil)
	}
	if c.blocked == nil {
		c.blocked = list[:0]
	}
}

func (c *conn2) writable() { c.unblock() }

// Head implements Stream.
func (st *stream2) Head(m *semantics.Message, e Ending) error { return st.end.head(st, m, e) }

// Write implements Stream.
func (st *stream2) Write(p []byte) int {
	c := st.c
	if st.s.Ended() {
		return len(p)
	}
	if !c.l.accepts() {
		st.wait()
		return 0
	}
	out, n, err := c.m.AppendData(c.output(), st.s, p, st.left == int64(len(p)))
	c.l.out = out
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
func (st *stream2) wait() {
	if !st.waiting {
		st.waiting = true
		st.c.blocked = append(st.c.blocked, st)
	}
}

// End implements Stream.
func (st *stream2) End(trailers []semantics.Field) {
	c := st.c
	switch {
	case st.s.Ended():
	case len(trailers) > 0:
		c.l.out, _ = c.m.AppendTrailers(c.output(), st.s, trailers)
	default:
		c.l.out, _, _ = c.m.AppendData(c.output(), st.s, nil, true)
	}
}

// consumed notes that n bytes of content were passed on, or are held.
func (st *stream2) consumed(n int) {
	switch {
	case st.input == paused:
		st.unread += n
	case st.s != nil:
		st.c.m.Consumed(st.s, n)
	}
}

// Pause implements Stream.
func (st *stream2) Pause(on bool) {
	if on {
		st.input = paused
		return
	}
	st.input = wanted
	if n := st.unread; n > 0 {
		st.unread = 0
		st.c.m.Consumed(st.s, n)
		st.c.control()
	}
}

// Cancel implements Stream.
func (st *stream2) Cancel(gone bool) { st.end.canceled(st, gone) }

// Release implements Stream.
func (st *stream2) Release() {
	c, s := st.c, st.s
	if s == nil {
		return
	}
	st.user, st.s = nil, nil
	s.User = nil
	if !st.waiting {
		st.next, c.free = c.free, st
	}
	st.end.released(st, s)
}
