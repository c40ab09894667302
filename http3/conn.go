package http3

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/quic"
)

// conn drives a Machine over a connection of QUIC, by goroutines under one lock: one accepts each kind of
// stream, one reads each unidirectional stream, and each request has its own.
type conn struct {
	q   *quic.Conn
	ctx context.Context // of the connection

	mu        sync.Mutex
	m         *Machine
	out       [3]*quic.SendStream // control, encoder, decoder
	flushing  bool
	known     chan struct{} // closed when the peer's settings are known
	sessions  map[uint64]*Session
	reserved  int                         // places for sessions that are being accepted
	early     map[uint64][]*SessionStream // streams of sessions that are not there yet
	datagrams map[uint64]chan []byte

	event func(Event) // of the control stream, under the lock
	push  func(*reader, uint64)
}

func newConn(q *quic.Conn, role Role, o MachineOptions) *conn {
	return &conn{q: q, ctx: q.Context(), m: NewMachine(role, o), known: make(chan struct{})}
}

// start opens our three streams and accepts those of the peer. Settings are sent before anything else.
func (c *conn) start() error {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	var out [3]*quic.SendStream
	for i := range out {
		s, err := c.q.OpenUniStream(ctx)
		if errors.Is(err, quic.Err0RTTRejected) {
			return err // another connection, without early data, may do
		}
		if err != nil {
			return c.closed(connError(StreamCreationError, "the peer permits no three streams"))
		}
		s.SetPriority(0, false)
		s.AfterEnd(c.stopped)
		out[i] = s
	}
	c.mu.Lock()
	c.out = out
	c.mu.Unlock()
	c.flush()
	go c.acceptUni()
	if c.m.own.Datagrams {
		go c.receiveDatagrams()
	}
	return nil
}

// stopped ends the connection where the peer has stopped one of our three streams (RFC 9114 6.2.1). Little is written to them, by which
// it would be noticed.
func (c *conn) stopped(err error) {
	if e := new(quic.StreamError); errors.As(err, &e) && e.Remote {
		_ = c.closed(connError(ClosedCriticalStream, "a critical stream was stopped"))
	}
}

// flush sends what is due on our three streams. While one goroutine does, others leave it to that one: it
// may wait for the peer's flow control, and no other stream has to.
func (c *conn) flush() {
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
}

func (c *conn) flushLocked() {
	if c.flushing || c.out[0] == nil {
		return
	}
	c.flushing = true
	for {
		var s *quic.SendStream
		b := getBuffer()
		control, encoder, decoder := c.m.Pending()
		switch {
		case control:
			s, *b = c.out[0], c.m.AppendControl(*b)
		case encoder:
			s, *b = c.out[1], c.m.AppendEncoder(*b)
		case decoder:
			s, *b = c.out[2], c.m.AppendDecoder(*b)
		}
		if s == nil {
			putBuffer(b)
			break
		}
		c.mu.Unlock()
		_, _ = s.Write(*b) // an error is the end of the connection
		putBuffer(b)
		c.mu.Lock()
	}
	c.flushing = false
}

// acceptUni reads the unidirectional streams of the peer.
func (c *conn) acceptUni() {
	for {
		s, err := c.q.AcceptUniStream(c.ctx)
		if err != nil {
			return
		}
		go c.serveUni(s)
	}
}

// serveUni reads one of them to its end.
func (c *conn) serveUni(qs *quic.ReceiveStream) {
	r, err := c.newReader(qs, uint64(qs.ID()))
	if err != nil {
		_ = c.closed(err)
		return
	}
	for {
		ev, err := r.next()
		switch {
		case err != nil || ev.Kind == End:
			r.release()
			return
		case ev.Kind == WebTransport:
			c.incoming(r, qs, nil, ev.ID)
			return
		case ev.Kind == PushStream:
			c.push(r, ev.ID)
			return
		}
		c.uniEvent(qs, ev)
		c.flush()
	}
}

// uniEvent handles the events of streams that serveUni keeps.
func (c *conn) uniEvent(qs *quic.ReceiveStream, ev Event) {
	switch ev.Kind {
	case Unknown:
		qs.CancelRead(uint64(StreamCreationError)) // the next read returns an error
	case Unblocked:
		c.wake(ev.Blocked)
	case PeerSettings:
		close(c.known)
	}
	c.event(ev)
}

// wake has the readers of streams go on that are no longer blocked.
func (c *conn) wake(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for found := true; found; s, found = c.m.NextUnblocked() {
		if r, ok := s.User.(*reader); ok {
			r.wake <- struct{}{}
		}
	}
}

// closed closes the connection for an error of the machine, and returns the error. Errors of streams close
// nothing.
func (c *conn) closed(err error) error {
	var e *ConnError
	if errors.As(err, &e) && !e.Remote {
		_ = c.q.CloseWithError(uint64(e.Code), e.Text)
	}
	return err
}

// converted returns our form of an error of package quic.
func converted(err error) error {
	switch e := err.(type) { //nolint:errorlint // package quic returns them as they are
	case *quic.StreamError:
		return &StreamError{Code: ErrorCode(e.Code), Remote: e.Remote}
	case *quic.ApplicationError:
		return &ConnError{Code: ErrorCode(e.Code), Text: e.Reason, Remote: e.Remote}
	}
	return err
}

// buffers are for reading a stream, and for what is written at once.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

const bufferSize = 4096

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= 4*bufferSize {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
