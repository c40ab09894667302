package proxy

import (
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// conn1 is what both ends of HTTP/1.1 share: a connection that is one stream after the other.
type conn1 struct {
	l     *link
	m     *http1.Machine
	owner Owner
	user  any // of the stream, nil without one
	ev    Event
	state state1
	// tunnel is whether the connection carries another protocol. The machine forgets it at the end of the input.
	tunnel bool
}

// state1 is how far the response is.
type state1 uint8

const (
	noResponse    state1 = iota
	responseBegun        // the header has passed
	responseEnded        // all of it has
)

// emit reports an event of the stream.
func (c *conn1) emit(k Kind) {
	c.ev.Kind, c.ev.User = k, &c.user
	c.owner.Handle(&c.ev)
}

// fail reports that the stream has ended by an error.
func (c *conn1) fail(err error) {
	if c.user != nil {
		c.ev.Err = err
		c.emit(Failed)
	}
}

// data reports content.
func (c *conn1) data(p []byte) {
	c.ev.Payload, c.ev.Left = p, c.m.Left()
	c.emit(Data)
}

// plain implements Direct.
func (c *conn1) plain() (*link, *http1.Machine) { return c.l, c.m }

// Write implements Stream: content, or bytes of the protocol that a tunnel carries.
func (c *conn1) Write(p []byte) int {
	l := c.l
	if !l.accepts() {
		return 0
	}
	if !c.tunnel {
		var err error
		if l.out, err = c.m.AppendDataHeader(l.buffer(), len(p)); err != nil {
			return len(p) // more than its length: the machine that received it has checked it
		}
	}
	n := l.through(p)
	l.out = append(l.buffer(), p[n:]...)
	if !c.tunnel {
		l.out = c.m.AppendDataTail(l.out)
	}
	l.touch()
	return len(p)
}

// finish ends the message that is sent, and returns an error where its length is wrong.
func (c *conn1) finish(trailers []semantics.Field) (err error) {
	if c.tunnel {
		c.l.closeWrite()
		return nil
	}
	c.l.out, err = c.m.AppendEnd(c.l.buffer(), trailers)
	c.l.touch()
	return err
}

// Pause implements Stream.
func (c *conn1) Pause(on bool) {
	if on {
		c.l.pause()
		return
	}
	c.l.resume()
}

// detach ends the stream, and reports whether the loop holds content of its input, which must not get into another message.
func (c *conn1) detach() (stuck bool) {
	stuck = c.l.bypass != nil && c.l.moves == moveHolding
	c.user, c.l.bypass = nil, nil
	return stuck
}

func (c *conn1) writable() {
	if c.user != nil {
		c.emit(Writable)
	}
}
