package proxy

import (
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// conn2 is what the ends of HTTP/2 share, front2 and back2: the machine, its output, and the streams that wait for windows.
type conn2 struct {
	l       *link
	m       *http2.Machine
	goOn    func(x *exchange) // says that the stream of an exchange may be written to again
	blocked []*flow2
}

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
	for _, s := range list {
		if s.waiting = false; s.x != nil {
			c.goOn(s.x)
		}
	}
	if c.blocked == nil {
		c.blocked = list[:0]
	}
}

// flow2 is the content of one stream, in both directions: stream2 of a client and request2 to a backend have one.
type flow2 struct {
	c       *conn2
	s       *http2.Stream
	x       *exchange
	unread  int   // content that was not consumed
	left    int64 // content that is to be sent, -1 if not known
	paused  bool
	waiting bool // in conn2.blocked
}

// write is that of a stream.
func (f *flow2) write(p []byte) int {
	c := f.c
	if f.s.Ended() {
		return len(p)
	}
	if !c.l.accepts() {
		f.wait()
		return 0
	}
	out, n, err := c.m.AppendData(c.output(), f.s, p, f.left == int64(len(p)))
	c.l.out = out
	if err != nil {
		return len(p) // the stream has ended: Failed follows
	}
	if f.left >= 0 {
		f.left -= int64(n)
	}
	if n < len(p) {
		f.wait()
	}
	return n
}

// wait has the stream written to again when the link or the connection's window permits it.
func (f *flow2) wait() {
	if !f.waiting {
		f.waiting = true
		f.c.blocked = append(f.c.blocked, f)
	}
}

func (f *flow2) end(trailers []semantics.Field) {
	c := f.c
	if f.s.Ended() {
		return
	}
	if len(trailers) > 0 {
		c.l.out, _ = c.m.AppendTrailers(c.output(), f.s, trailers)
		return
	}
	c.l.out, _, _ = c.m.AppendData(c.output(), f.s, nil, true)
}

// consumed says that n bytes of content were passed on, or are held.
func (f *flow2) consumed(n int) {
	switch {
	case f.paused:
		f.unread += n
	case f.s != nil:
		f.c.m.Consumed(f.s, n)
	}
}

func (f *flow2) pause() { f.paused = true }

func (f *flow2) resume() {
	if f.paused = false; f.unread > 0 {
		f.c.m.Consumed(f.s, f.unread)
		f.unread = 0
		f.c.control()
	}
}
