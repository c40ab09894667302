package transport

import "errors"

// relaySize is the amount that Relay reads at once. At 48 KiB the bytes are in the core's cache when they are written: relaying
// 1 MiB then costs less than by splice(2), and than by 64 KiB, see docs/design/027.
const relaySize = 48 << 10

// relayBuffer has bytes on their way between two kernel sockets: b[from:to].
type relayBuffer struct {
	from, to int
	b        [relaySize]byte
}

// relayBuffersKept is the number of unused buffers that a loop keeps.
const relayBuffersKept = 16

// Relay implements Conn. The bytes go through a buffer of the loop, which c keeps while dst does not take them.
func (c *epollConn) Relay(dst Conn, n int) (taken int, in, out error) {
	d, ok := dst.(*epollConn)
	switch {
	case !ok:
		return 0, nil, errors.ErrUnsupported
	case c.fd < 0:
		return 0, ErrClosed, nil
	case d.fd < 0:
		return 0, nil, ErrClosed
	}
	b := c.relaying
	if c.relaying = nil; b == nil {
		b = c.loop.relayBuffers.take()
	}
	for {
		if out = b.drain(d); out == ErrAgain {
			c.relaying = b
			return taken, nil, out
		}
		if in != nil || out != nil || taken == n {
			break
		}
		in = b.fill(c, n-taken)
		taken += b.to
	}
	c.loop.relayBuffers.put(b)
	return taken, in, out
}

// fill reads at most n bytes of c to b, which is empty. With the last that have arrived it returns ErrAgain.
func (b *relayBuffer) fill(c *epollConn, n int) error {
	n = min(n, relaySize)
	var err error
	b.from = 0
	if b.to, err = c.receive(b.b[:n]); err == nil && b.to < n && c.flags&readOn == 0 {
		return ErrAgain
	}
	return err
}

// drain writes what is in b to c. ErrAgain is that something is left.
func (b *relayBuffer) drain(c *epollConn) error {
	if b.from == b.to {
		return nil
	}
	n, err := c.Write(b.b[b.from:b.to])
	if b.from += n; err == nil && b.from < b.to {
		return ErrAgain
	}
	return err
}

// relayBuffers are the unused buffers of a loop. The one that was used last is the next: it is in the cache.
type relayBuffers []*relayBuffer

func (s *relayBuffers) take() *relayBuffer {
	n := len(*s)
	if n == 0 {
		return new(relayBuffer)
	}
	b := (*s)[n-1]
	*s = (*s)[:n-1]
	return b
}

func (s *relayBuffers) put(b *relayBuffer) {
	if len(*s) < relayBuffersKept {
		b.from, b.to = 0, 0
		*s = append(*s, b)
	}
}

// Relay implements Conn: bytes are copied once, from the receive ring of c to the send queue of dst.
func (c *stackConn) Relay(dst Conn, n int) (taken int, in, out error) {
	d, ok := dst.(*stackConn)
	switch {
	case !ok:
		return 0, nil, errors.ErrUnsupported
	case c.t == nil:
		return 0, ErrClosed, nil
	case d.t == nil:
		return 0, nil, ErrClosed
	}
	now := c.loop.h.Now()
	for taken < n {
		p := c.t.Peek()[0]
		if len(p) == 0 {
			return taken, c.readError(), nil
		}
		p = p[:min(len(p), n-taken)]
		k := d.t.Write(now, p)
		c.t.Discard(now, k)
		if taken += k; k < len(p) {
			d.flags |= wantWrite
			return taken, nil, d.writeError()
		}
	}
	return taken, nil, nil
}
