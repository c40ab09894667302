package socket

import (
	"io"
)

// Peek blocks until data arrives and calls f with all of it, as two slices of the receive buffer in order.
// They are valid until f returns. f runs with the loop held and returns how many bytes to discard.
func (c *TCPConn) Peek(f func(first, second []byte) (done int)) error {
	for {
		parked, err := c.tryPeek(f)
		if parked != nil {
			err = parked.waitAndFree()
		}
		if parked == nil || err != nil {
			return c.wrapError("read", err)
		}
	}
}

// tryPeek calls f, or parks a waiter for data and returns it.
func (c *TCPConn) tryPeek(f func(first, second []byte) int) (parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if _, err := c.read(now, nil); err != nil {
		return nil, err
	}
	if p := c.c.Peek(); len(p[0])+len(p[1]) > 0 {
		c.c.Discard(now, f(p[0], p[1]))
		return nil, nil
	}
	if c.c.Finished() {
		return nil, c.endError(io.EOF)
	}
	parked = newWaiter()
	c.rq.park(parked, c, c.readDeadline())
	return parked, nil
}

// WriteZeroCopy blocks until there is room and queues b itself. b must not change until the loop calls done:
// when the peer has acknowledged all of it or the connection has ended. After an error done is not called.
func (c *TCPConn) WriteZeroCopy(b []byte, done func()) error {
	for {
		parked, err := c.tryWriteZeroCopy(b, done)
		if parked != nil {
			err = parked.waitAndFree()
		}
		if parked == nil || err != nil {
			return c.wrapError("write", err)
		}
	}
}

// tryWriteZeroCopy queues b, or parks a waiter for room and returns it.
func (c *TCPConn) tryWriteZeroCopy(b []byte, done func()) (parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if err := c.writeError(now); err != nil {
		return nil, err
	}
	// Behind blocked writers b has to wait, because bytes of one connection keep the order of the calls.
	if c.wq.head == nil && c.c.WriteZeroCopy(now, b, done) {
		return nil, nil
	}
	parked = newWaiter()
	c.wq.park(parked, c, c.writeDeadline())
	return parked, nil
}
