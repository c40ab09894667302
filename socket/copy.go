package socket

import (
	"io"
	"sync"
)

// copySize is the length of a buffer between a connection and what is no connection.
const copySize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// ReadFrom implements io.ReaderFrom: it sends what r has until its end.
func (c *TCPConn) ReadFrom(r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	var total int64
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			m, werr := c.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// WriteTo implements io.WriterTo: it gives w what comes until the end. Where w is a connection on the same
// loop, bytes go from one to the other there, without a buffer between them.
func (c *TCPConn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*TCPConn); ok && to.h == c.h && to != c {
		return c.splice(to)
	}
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	var total int64
	for {
		n, err := c.Read(buf[:])
		if n > 0 {
			m, werr := w.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// splice moves what comes from c to another connection on its loop.
func (c *TCPConn) splice(to *TCPConn) (int64, error) {
	var total int64
	for {
		n, parked, op, err := c.spliceOnce(to)
		total += n
		if parked != nil {
			err = parked.waitAndFree()
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil && op == "write" {
			return total, to.wrapError(op, err)
		}
		if err != nil {
			return total, c.wrapError(op, err)
		}
	}
}

// spliceOnce moves what is there, or returns what waits: for data of c, or for room in the other one. op says
// for which of them, and whose error it is.
func (c *TCPConn) spliceOnce(to *TCPConn) (n int64, parked *waiter, op string, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if _, err := c.read(now, nil); err != nil {
		return 0, nil, "read", err
	}
	if err := to.writeError(now); err != nil {
		return 0, nil, "write", err
	}
	for _, p := range c.c.Peek() {
		m, sent := 0, 0
		for m < len(p) {
			if sent = to.c.Write(now, p[m:]); sent == 0 {
				break
			}
			m += sent
		}
		n += int64(m)
		if m < len(p) {
			break
		}
	}
	c.c.Discard(now, int(n))
	return c.spliceNext(to, n)
}

// spliceNext decides how move goes on after n bytes.
func (c *TCPConn) spliceNext(to *TCPConn, n int64) (int64, *waiter, string, error) {
	switch {
	case c.c.Readable() > 0:
		parked := newWaiter()
		to.wq.park(parked, to, to.writeDeadline())
		return n, parked, "write", nil
	case c.c.Finished():
		return n, nil, "read", c.endError(io.EOF)
	}
	parked := newWaiter()
	c.rq.park(parked, c, c.readDeadline())
	return n, parked, "read", nil
}
