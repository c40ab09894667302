package socket

import (
	"io"
	"sync"
)

// copySize is the size of the buffer between a connection and another kind of reader or writer.
const copySize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// ReadFrom implements io.ReaderFrom. It sends the data of r until io.EOF.
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

// WriteTo implements io.WriterTo. It writes received data to w until io.EOF. If w is a connection on the
// same loop, the bytes are copied once, from its receive buffer to w's send buffer.
func (c *TCPConn) WriteTo(w io.Writer) (int64, error) {
	// Both connections are guarded by the same lock. Connections of two loops need a buffer in between.
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

// splice copies received data to another connection on the same loop until io.EOF.
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

// spliceOnce copies the data that is there. If it cannot continue it returns a parked waiter, for data of c
// or for room in to. op is the operation, "read" of c or "write" of to, that the waiter or the error is for.
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

// spliceNext parks a waiter for the next step of splice, after n bytes.
func (c *TCPConn) spliceNext(to *TCPConn, n int64) (int64, *waiter, string, error) {
	switch {
	// The send buffer of to is full: continue when it has room.
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
