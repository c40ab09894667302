package h1side

import (
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// conn is the common part of both ends of HTTP/1.1: a connection that is one stream after the other.
type conn struct {
	L     *link.Link
	m     *http1.Machine
	owner side.Owner
	User  any // of the stream, nil without one
	ev    side.Event
	state responseState
	// tunnel is whether the connection carries another protocol. The machine forgets it at the end of the input.
	tunnel bool
}

// responseState is the progress of the response.
type responseState uint8

const (
	noResponse    responseState = iota
	responseBegun               // the header has passed
	responseEnded               // all of it has
)

// emit reports an event of the stream.
func (c *conn) emit(k side.Kind) {
	c.ev.Kind, c.ev.User = k, &c.User
	c.owner.Handle(&c.ev)
}

// fail reports that the stream has ended by an error.
func (c *conn) fail(err error) {
	if c.User != nil {
		c.ev.Err = err
		c.emit(side.Failed)
	}
}

// data reports content.
func (c *conn) data(p []byte) {
	c.ev.Payload, c.ev.Left = p, c.m.Left()
	c.emit(side.Data)
}

// Plain implements Direct.
func (c *conn) Plain() (*link.Link, *http1.Machine) { return c.L, c.m }

// Write implements Stream: content, or bytes of the protocol that a tunnel carries.
func (c *conn) Write(p []byte) int {
	l := c.L
	if !l.Accepts() {
		return 0
	}
	if !c.tunnel {
		var err error
		if l.Out, err = c.m.AppendDataHeader(l.Buffer(), len(p)); err != nil {
			return len(p) // more than its length: the machine that received it has checked it
		}
	}
	n := l.Through(p) // after the chunk's header, which it flushes; what it has not sent is gathered, so that all of p is taken
	l.Out = append(l.Buffer(), p[n:]...)
	if !c.tunnel {
		l.Out = c.m.AppendDataTail(l.Out)
	}
	l.Touch()
	return len(p)
}

// finish ends the message that is sent, and returns an error where its length is wrong.
func (c *conn) finish(trailers []semantics.Field) (err error) {
	if c.tunnel {
		c.L.CloseWrite()
		return nil
	}
	c.L.Out, err = c.m.AppendEnd(c.L.Buffer(), trailers)
	c.L.Touch()
	return err
}

// Pause implements Stream.
func (c *conn) Pause(on bool) {
	if on {
		c.L.Pause()
		return
	}
	c.L.Resume()
}

// detach ends the stream, and reports whether the loop holds content of its input, which must not get into another message.
func (c *conn) detach() (stuck bool) {
	stuck = c.L.Bypass != nil && c.L.Moves == link.Holding
	c.User, c.L.Bypass = nil, nil
	return stuck
}

// Writable implements link.Session.
func (c *conn) Writable() {
	if c.User != nil {
		c.emit(side.Writable)
	}
}
