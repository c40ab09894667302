package websocket

import (
	"errors"
	"io"
	"os"
	"slices"
)

// ReadMessage reads the next message into buf, which it extends if needed, and returns its type and
// content. With a buffer that is large enough it allocates nothing. It discards what is left of a
// message begun by NextReader.
//
// A *CloseError reports that the peer closed the connection, a *ProtocolError that it broke the
// protocol or a limit; both and other errors are final, except os.ErrDeadlineExceeded: then the next
// call discards the rest of the message that it interrupted.
func (c *Conn) ReadMessage(buf []byte) (Opcode, []byte, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	op, err := c.nextMessage()
	if err != nil {
		return 0, buf[:0], err
	}
	if c.last { // the usual case: it is whole
		c.inside = false
		return op, append(buf[:0], c.part...), nil
	}
	buf = buf[:0]
	for c.inside {
		if len(buf) == cap(buf) {
			// By what arrived, not by what a header claims.
			buf = slices.Grow(buf, max(512, len(buf)))
		}
		n, err := c.readPart(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return 0, buf, err
		}
	}
	return op, buf, nil
}

// NextReader returns the type of the next message and a reader of its content, which is valid until the
// next call of NextReader or ReadMessage. It discards what is left of the message before.
func (c *Conn) NextReader() (Opcode, io.Reader, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	op, err := c.nextMessage()
	if err != nil {
		return 0, nil, err
	}
	return op, &c.reader, nil
}

// messageReader reads the current message of a connection.
type messageReader struct{ c *Conn }

// Read reads the next bytes of the message. io.EOF is its end.
func (r *messageReader) Read(p []byte) (int, error) {
	c := r.c
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if !c.inside {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := c.readPart(p)
		if n > 0 || err != nil {
			return n, err
		}
		if !c.inside {
			return 0, io.EOF
		}
	}
}

// nextMessage waits for the first part of the next message.
func (c *Conn) nextMessage() (Opcode, error) {
	for c.inside {
		c.part = nil
		if c.last {
			c.inside = false
			break
		}
		if _, err := c.messagePart(); err != nil {
			return 0, err
		}
	}
	return c.messagePart()
}

// readPart reads more of the current message into p, which is not empty. It may return no bytes. At the
// end of the message inside becomes false.
func (c *Conn) readPart(p []byte) (n int, err error) {
	if len(c.part) == 0 && !c.last {
		if len(c.in) == 0 && len(p) >= directRead && c.m.Needed() >= directRead {
			return c.readDirect(p)
		}
		if _, err := c.messagePart(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.part)
	if c.part = c.part[n:]; len(c.part) == 0 && c.last {
		c.inside = false
	}
	return n, nil
}

// readDirect reads payload of the current frame from the stream to where the caller wants it.
func (c *Conn) readDirect(p []byte) (int, error) {
	if need := c.m.Needed(); uint64(len(p)) > need {
		p = p[:need]
	}
	n, err := c.fill(p)
	if err != nil {
		return 0, err
	}
	ev, _, err := c.m.Next(p[:n]) // consumes all: it is payload
	if err != nil {
		return 0, c.fail(err)
	}
	if ev.Last {
		c.inside = false
	}
	return n, nil
}

// messagePart waits for the next part of a message, makes it the current one, and returns the message's type. It handles the
// other events that come before.
func (c *Conn) messagePart() (Opcode, error) {
	if len(c.in) == 0 && c.readErr == nil && c.m.atHeader() {
		c.m.releaseInput()
		n, err := c.fill(c.rbuf)
		if err != nil {
			return 0, err
		}
		c.in = c.rbuf[:n]
	}
	for c.readErr == nil {
		ev, n, err := c.m.Next(c.in)
		if c.in = c.in[n:]; err != nil {
			return 0, c.fail(err)
		}
		switch ev.Kind {
		case NeedInput:
			n, err := c.fill(c.rbuf)
			if err != nil {
				return 0, err
			}
			c.in = c.rbuf[:n]
		case Message:
			c.part, c.last, c.inside = ev.Payload, ev.Last, true
			return ev.Opcode, nil
		case Ping:
			c.queuePong(ev.Payload)
		case Pong:
			c.pong(ev.Payload)
		case Close:
			return 0, c.closed(ev)
		}
	}
	return 0, c.readErr
}

// fill reads at least one byte from the stream. It answers pings before it waits.
func (c *Conn) fill(p []byte) (int, error) {
	if c.readErr != nil {
		return 0, c.readErr
	}
	if err := c.answerPings(); err != nil {
		return 0, c.fail(err)
	}
	for empty := 0; ; empty++ {
		n, err := c.stream.Read(p)
		switch {
		case n > 0:
			return n, nil // an error comes again
		case err == nil && empty < 100:
		case err == nil:
			return 0, c.fail(io.ErrNoProgress)
		case err == io.EOF:
			return 0, c.fail(ErrAbnormal)
		case isTimeout(err):
			return 0, err
		default:
			return 0, c.fail(err)
		}
	}
}

// isTimeout reports whether a deadline passed, after which a stream works on.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
