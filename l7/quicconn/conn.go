package quicconn

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/quic"
)

// Handler receives the events of a connection, on its loop.
type Handler interface {
	// Readable reports that s has input, its end or its failure: see Stream.Input and Stream.Err. For a stream of the peer
	// the first call is the first sign of it.
	Readable(s *Stream)
	// Writable reports that s has room again, after Stream.Room was 0.
	Writable(s *Stream)
	// Stopped reports that nothing more can be sent on s: the peer asked for that, with the code in err if it is a
	// *quic.StreamError. What was written may be lost. It comes after a write that failed, and
	// at once to streams that Watch was called for.
	Stopped(s *Stream, err error)
	// Closed reports that the connection has ended. No other call follows.
	Closed(err error)
}

// Conn is a connection. Its methods are called on the loop.
type Conn struct {
	// Uni has the streams of Options.Uni.
	Uni []*Stream

	hub     *Hub
	q       *quic.Conn
	made    func(*Conn) Handler // until it was reported
	handler Handler
	counted bool
	closed  atomic.Bool // the end is to be reported
	over    bool        // it was

	datagrams *datagrams // nil until some are taken

	held      atomic.Int64 // bytes that QUIC has not taken, of all streams
	timeout   atomic.Int64 // of writes, in nanoseconds; 0 is none
	resetCode atomic.Uint64
}

// SetWriteTimeout has streams reset of which QUIC takes nothing for so long: the peer grants no credit, or acknowledges nothing.
// Handler.Stopped reports it, with ErrWriteTimeout, unless the stream was released. 0 is no bound. It holds for what is written from
// now on.
func (c *Conn) SetWriteTimeout(t time.Duration, code uint64) {
	c.timeout.Store(int64(t))
	c.resetCode.Store(code)
}

// ErrWriteTimeout is the error of a stream whose peer took nothing of what was written for too long.
var ErrWriteTimeout = errors.New("quicconn: the peer takes nothing")

// QUIC returns the connection itself, for its addresses, state and statistics.
func (c *Conn) QUIC() *quic.Conn { return c.q }

// Remote returns the peer's address at present.
func (c *Conn) Remote() net.Addr { return c.q.RemoteAddr() }

// HandshakeComplete reports whether the handshake is complete. What comes before may have been repeated by an attacker.
func (c *Conn) HandshakeComplete() bool {
	select {
	case <-c.q.HandshakeComplete():
		return true
	default:
		return false
	}
}

// Close closes the connection. Handler.Closed follows.
func (c *Conn) Close(code uint64, reason string) {
	go func() { _ = c.q.CloseWithError(code, reason) }() // it waits for the goroutines of the connection
}

// Open opens a bidirectional stream. The error is quic.ErrStreamLimit while the peer permits no more.
func (c *Conn) Open() (*Stream, error) {
	q, err := c.q.TryOpenStream()
	if err != nil {
		return nil, err
	}
	return c.opened(q), nil
}

// OpenUni opens a unidirectional stream, as Open.
func (c *Conn) OpenUni() (*Stream, error) {
	q, err := c.q.TryOpenUniStream()
	if err != nil {
		return nil, err
	}
	return c.newStream(q.ID(), q, nil), nil
}

func (c *Conn) opened(q *quic.Stream) *Stream {
	s := c.newStream(q.ID(), q, q)
	go s.read()
	return s
}

// OpenLater has f called on the loop with a stream once the peer permits one more, after Open or OpenUni has failed for that. It is not
// called once ctx or the connection has ended; a stream that has come by then must be reset by f.
func (c *Conn) OpenLater(ctx context.Context, uni bool, f func(s *Stream)) {
	go func() {
		var s *Stream
		if uni {
			q, err := c.q.OpenUniStream(ctx)
			if err != nil {
				return
			}
			s = c.newStream(q.ID(), q, nil)
		} else {
			q, err := c.q.OpenStream(ctx)
			if err != nil {
				return
			}
			s = c.opened(q)
		}
		c.hub.loop.Do(func() {
			if !c.over {
				f(s)
			}
		})
	}()
}

// report calls the handler for the connection's own events.
func (c *Conn) report() {
	if c.made != nil {
		c.handler, c.made = c.made(c), nil
	}
	if c.closed.Load() && !c.over {
		c.over = true
		c.handler.Closed(context.Cause(c.q.Context()))
	}
}

func (c *Conn) ended() {
	c.closed.Store(true)
	c.hub.post(event{conn: c})
}

func (c *Conn) openUni(o *Options) error {
	ctx, cancel := context.WithTimeout(c.q.Context(), cmp.Or(o.Wait, DefaultWait))
	defer cancel()
	for range o.Uni {
		q, err := c.q.OpenUniStream(ctx)
		if err != nil {
			return err
		}
		q.SetPriority(0, false) // what they carry lets other streams go on
		c.Uni = append(c.Uni, c.newStream(q.ID(), q, nil))
	}
	return nil
}

func (c *Conn) acceptUni() {
	for {
		q, err := c.q.AcceptUniStream(c.q.Context())
		if err != nil {
			return
		}
		go c.newStream(q.ID(), nil, q).read()
	}
}

// firstRead is the time that the goroutine that accepts streams waits for the first bytes of one: mostly they are there, and
// often all of them, so that the stream needs no goroutine.
const firstRead = 200 * time.Microsecond

func (c *Conn) acceptStreams() {
	for {
		q, err := c.q.AcceptStream(c.q.Context())
		if err != nil {
			return
		}
		s := c.newStream(q.ID(), q, q)
		_ = q.SetReadDeadline(time.Now().Add(firstRead))
		if s.readOnce(small) {
			_ = q.SetReadDeadline(time.Time{})
			go s.read()
		}
	}
}
