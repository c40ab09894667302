package socket

import (
	"io"
)

// Peek waits for data and calls f on the loop with all of it, in two pieces in order, lent until f
// returns. f says how much of it is done with; the rest stays.
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

// tryPeek calls f, or returns what waits for data.
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

// WriteZeroCopy waits for room and gives b itself, which must stay as it is until done is called, on the
// loop: when the peer has all of it or the connection has ended. After an error done is not called.
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

// tryWriteZeroCopy gives b, or returns what waits for room.
func (c *TCPConn) tryWriteZeroCopy(b []byte, done func()) (parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if err := c.writeError(now); err != nil {
		return nil, err
	}
	if c.wq.head == nil && c.c.WriteZeroCopy(now, b, done) {
		return nil, nil
	}
	parked = newWaiter()
	c.wq.park(parked, c, c.writeDeadline())
	return parked, nil
}
