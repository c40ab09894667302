package http3

import (
	"context"
	"errors"
	"net"
)

// ErrNoDatagrams is returned for datagrams on a connection for which an end did not enable them.
var ErrNoDatagrams = errors.New("http3: datagrams are not enabled at both ends")

// AppendDatagram appends the payload of a QUIC datagram: an HTTP datagram of a request's stream
// (RFC 9297 2.1).
func AppendDatagram(dst []byte, stream uint64, payload []byte) []byte {
	return append(appendVarint(dst, stream/4), payload...)
}

// ParseDatagram returns stream and payload of an HTTP datagram. An error is a *ConnError.
func ParseDatagram(p []byte) (stream uint64, payload []byte, err error) {
	quarter, n := varint(p)
	if n == 0 || quarter > maxVarint/4 {
		return 0, nil, connError(DatagramError, "a datagram without a valid stream")
	}
	return quarter * 4, p[n:], nil
}

// datagramQueue is the number of datagrams of a stream that wait to be received. Further ones are dropped.
const datagramQueue = 64

// receiveDatagrams sorts the datagrams of the connection. Those of streams that do not take any are
// dropped (RFC 9297 2.1).
func (c *conn) receiveDatagrams() {
	for {
		p, err := c.q.ReceiveDatagram(c.ctx)
		if err != nil {
			return
		}
		stream, payload, err := ParseDatagram(p)
		if err != nil {
			_ = c.closed(err)
			return
		}
		c.mu.Lock()
		queue := c.datagrams[stream]
		c.mu.Unlock()
		select {
		case queue <- payload:
		default:
		}
	}
}

// expectDatagrams makes the queue of a stream, for which forgetDatagrams must be called.
func (c *conn) expectDatagrams(stream uint64) chan []byte {
	queue := make(chan []byte, datagramQueue)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datagrams == nil {
		c.datagrams = map[uint64]chan []byte{}
	}
	c.datagrams[stream] = queue
	return queue
}

func (c *conn) forgetDatagrams(stream uint64) {
	c.mu.Lock()
	delete(c.datagrams, stream)
	c.mu.Unlock()
}

// sendDatagram sends a datagram once the peer's settings permit it (RFC 9297 2.1.1).
func (c *conn) sendDatagram(stream uint64, p []byte) error {
	c.mu.Lock()
	permitted := c.m.own.Datagrams && c.m.peer.Datagrams
	c.mu.Unlock()
	if !permitted {
		return ErrNoDatagrams
	}
	b := getBuffer()
	defer putBuffer(b)
	*b = AppendDatagram(*b, stream, p)
	return converted(c.q.SendDatagram(*b))
}

// Tunnel is the stream of a CONNECT that was accepted: bytes both ways, and datagrams.
type Tunnel struct {
	c     *conn
	id    uint64
	read  func(p []byte) (int, error)
	write func(p []byte) (int, error)
	end   func(err error)
	// closeWrite ends the sending side.
	closeWrite func() error
	// abort resets both directions.
	abort  func(ErrorCode)
	queue  chan []byte
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (c *conn) newTunnel(id uint64) *Tunnel {
	t := &Tunnel{c: c, id: id, queue: c.expectDatagrams(id)}
	t.ctx, t.cancel = context.WithCancelCause(c.ctx)
	return t
}

// gone takes notice that the stream works no more.
func (t *Tunnel) gone(err error) {
	t.c.forgetDatagrams(t.id)
	t.cancel(err)
}

// Read reads bytes.
func (t *Tunnel) Read(p []byte) (int, error) { return t.read(p) }

// Write sends bytes, at once.
func (t *Tunnel) Write(p []byte) (int, error) { return t.write(p) }

// CloseWrite ends the sending. Reads go on.
func (t *Tunnel) CloseWrite() error { return t.closeWrite() }

// Close ends both directions.
func (t *Tunnel) Close() error {
	err := t.closeWrite()
	t.end(nil)
	t.gone(net.ErrClosed)
	return err
}

// Context ends with Close, the handler or the connection.
func (t *Tunnel) Context() context.Context { return t.ctx }

// SendDatagram sends an HTTP datagram, unreliably. It borrows p.
func (t *Tunnel) SendDatagram(p []byte) error { return t.c.sendDatagram(t.id, p) }

// ReceiveDatagram returns the next datagram, which is the caller's. 64 wait; further ones are dropped.
func (t *Tunnel) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case p := <-t.queue:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.ctx.Done():
		return nil, context.Cause(t.ctx)
	}
}
