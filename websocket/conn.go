package websocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ConnOptions configures a Conn. The zero value is valid.
type ConnOptions struct {
	Limits Limits
	// Deflate is the result of the handshake. Dial and Accept offer and set it.
	Deflate Deflate
	// CloseTimeout bounds the closing handshake, and how long an answer to a ping may be stuck behind
	// a peer that does not read; 0 is DefaultCloseTimeout.
	CloseTimeout time.Duration
	// ReadBuffer and WriteBuffer are in bytes; 0 is DefaultBuffer. Longer messages pass by the
	// read buffer, and those of a server by the write buffer.
	ReadBuffer, WriteBuffer int
	// Subprotocol is the result of the handshake. Dial and Accept set it.
	Subprotocol string
	// Received holds bytes that were read from the stream beyond the handshake. NewConn takes it.
	Received []byte
}

// Defaults of ConnOptions.
const (
	DefaultCloseTimeout = 5 * time.Second
	DefaultBuffer       = 4096
)

const (
	// directRead is the least space for which reading past the read buffer pays.
	directRead = 1024
	// maxPongs bounds the payload of pings that wait for their answer. When a peer sends more before
	// it reads, only the latest are answered (RFC 6455 5.5.3).
	maxPongs = 4096
	// lingerTimeout and lingerBytes bound the reading on after a failure, by which the peer gets the
	// Close frame before a reset can overtake it (RFC 6455 7.1.1).
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20
)

// Errors of connections.
var (
	// ErrAbnormal is the end of a stream without a Close frame.
	ErrAbnormal = fmt.Errorf("websocket: stream ended without a Close frame: %w", io.ErrUnexpectedEOF)
	// ErrStalled ends a connection whose peer sends pings and does not read the answers.
	ErrStalled = errors.New("websocket: peer does not read the answers to its pings")
	// ErrWriterClosed is returned by the writer of a message after its Close.
	ErrWriterClosed = errors.New("websocket: writer of the message is closed")
)

// deadlines is the capability of a stream to bound its calls in time. Every net.Conn has it.
type deadlines interface {
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// Conn is a WebSocket connection. All methods may be called by several goroutines at once. Concurrent
// writes of messages follow one another; of several readers each gets a whole message by ReadMessage,
// but the reader that NextReader returns belongs to one.
//
// Pings are answered and Close frames are handled while some goroutine reads: a program that only
// writes must read too, if only to discard.
type Conn struct {
	stream       io.ReadWriteCloser
	times        deadlines // nil if the stream has none
	m            *Machine
	subprotocol  string
	deflate      Deflate
	closeTimeout time.Duration
	done         chan struct{} // closed with the stream
	closeOnce    sync.Once
	closeErr     error
	closing      atomic.Pointer[CloseError] // what Close was called with

	rmu     sync.Mutex // guards the reading half
	rbuf    []byte
	in      []byte // the part of rbuf that the machine has not consumed
	part    []byte // the rest of a message's current part
	inside  bool   // a message is under way, not yet delivered to its end
	last    bool   // part is the last of its message
	readErr error  // final
	reader  messageReader

	message messageLock // of the goroutine that writes a message in frames, and of those that wait for it
	wmu     sync.Mutex  // guards the sending half, frame by frame; after message
	wbuf    []byte
	out     []byte // what the stream has not taken yet: whole frames, the first perhaps cut
	sendErr error  // final
	writer  messageWriter

	wdmu          sync.Mutex // guards writeDeadline and its use
	writeDeadline time.Time  // the caller's

	pongmu  sync.Mutex
	pongs   []byte      // payloads to answer, each after its length in one byte
	pending atomic.Bool // pongs is not empty

	pingmu   sync.Mutex
	lastPing uint64
	waiting  map[uint64]chan struct{}
}

// NewConn returns a connection over a stream whose handshake is complete: a net.Conn, or a stream of
// HTTP/2 or HTTP/3 (RFC 8441, RFC 9220). It takes the stream. The stream must allow Close and a Write
// beside a Read; without SetReadDeadline and SetWriteDeadline it has no deadlines.
func NewConn(stream io.ReadWriteCloser, role Role, o ConnOptions) *Conn {
	size := func(n int) int {
		if n <= 0 {
			return DefaultBuffer
		}
		return max(n, 256) // room for a control frame
	}
	c := &Conn{
		stream:       stream,
		m:            NewMachine(role, MachineOptions{Limits: o.Limits, Deflate: o.Deflate}),
		subprotocol:  o.Subprotocol,
		deflate:      o.Deflate,
		closeTimeout: o.CloseTimeout,
		done:         make(chan struct{}),
		rbuf:         make([]byte, size(o.ReadBuffer)),
		in:           o.Received,
		message:      newMessageLock(),
		wbuf:         make([]byte, 0, size(o.WriteBuffer)),
		waiting:      map[uint64]chan struct{}{},
	}
	c.times, _ = stream.(deadlines)
	if c.closeTimeout <= 0 {
		c.closeTimeout = DefaultCloseTimeout
	}
	c.reader.c, c.writer.c = c, c
	return c
}

// Role returns the end of the connection that c is.
func (c *Conn) Role() Role { return c.m.role }

// Subprotocol returns the subprotocol that the handshake agreed on, or "".
func (c *Conn) Subprotocol() string { return c.subprotocol }

// Deflate returns what the handshake agreed on for compression.
func (c *Conn) Deflate() Deflate { return c.deflate }

// Stream returns the stream below. Reading or writing it breaks the connection.
func (c *Conn) Stream() io.ReadWriteCloser { return c.stream }

// SetReadDeadline bounds calls that read, those under way included; the zero time is no bound. After
// os.ErrDeadlineExceeded the connection works on, and nothing is lost.
// Without deadlines of the stream it returns os.ErrNoDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if c.times == nil {
		return os.ErrNoDeadline
	}
	return c.times.SetReadDeadline(t)
}

// SetWriteDeadline bounds calls that write, as SetReadDeadline does reads. A message during which the
// deadline passes is kept, and is sent ahead of the next.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if c.times == nil {
		return os.ErrNoDeadline
	}
	c.wdmu.Lock()
	defer c.wdmu.Unlock()
	c.writeDeadline = t
	return c.times.SetWriteDeadline(t)
}

// Ping sends a ping and waits for its answer, which arrives only while some goroutine reads.
func (c *Conn) Ping(ctx context.Context) error {
	answered := make(chan struct{})
	c.pingmu.Lock()
	c.lastPing++
	id := c.lastPing
	c.waiting[id] = answered
	c.pingmu.Unlock()
	defer func() {
		c.pingmu.Lock()
		delete(c.waiting, id)
		c.pingmu.Unlock()
	}()
	var payload [8]byte
	binary.BigEndian.PutUint64(payload[:], id)
	if err := c.control(opPing, payload[:]); err != nil {
		return err
	}
	select {
	case <-answered:
		return nil
	case <-c.done:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pong wakes the goroutine whose ping the payload answers.
func (c *Conn) pong(payload []byte) {
	if len(payload) != 8 {
		return
	}
	c.pingmu.Lock()
	defer c.pingmu.Unlock()
	if id := binary.BigEndian.Uint64(payload); c.waiting[id] != nil {
		close(c.waiting[id])
		delete(c.waiting, id)
	}
}

// CloseNow closes the stream without a Close frame. Calls under way return with an error.
func (c *Conn) CloseNow() error {
	c.closeOnce.Do(func() {
		close(c.done)
		c.closeErr = c.stream.Close()
	})
	return c.closeErr
}

// Close closes the connection: it sends a Close frame, discards what still arrives until the peer's
// Close frame, and closes the stream (RFC 6455 7.1.2). After ConnOptions.CloseTimeout it closes the
// stream in any case. The error reports that the handshake was not complete; the stream is closed then too,
// except after ErrCloseCode and ErrCloseReason.
func (c *Conn) Close(code CloseCode, reason string) error {
	if err := checkClose(code, reason); err != nil {
		return err
	}
	timer := time.AfterFunc(c.closeTimeout, func() { _ = c.CloseNow() })
	defer timer.Stop()
	c.closing.CompareAndSwap(nil, &CloseError{code, reason})
	// It reads while it sends: the peer may be sending, and may close at the same time.
	sent := make(chan error, 1)
	go func() {
		err := c.sendClose(code, reason)
		if errors.Is(err, ErrCloseSent) {
			err = nil
		}
		if err != nil {
			_ = c.CloseNow()
		}
		sent <- err
	}()
	ended := c.discard()
	_ = c.CloseNow()
	err := <-sent
	var closed *CloseError
	switch {
	case errors.As(ended, &closed):
		return nil
	case err != nil:
		return err
	}
	return ended
}

// discard reads until the connection ends and returns how it did.
func (c *Conn) discard() error {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if c.times != nil {
		_ = c.times.SetReadDeadline(time.Time{}) // that of a caller
	}
	for c.readErr == nil {
		if _, err := c.messagePart(); err != nil && c.readErr == nil {
			c.readErr = err
		}
	}
	return c.readErr
}

// bounded runs f, which is about to end the connection, and closes the stream if it takes too long.
func (c *Conn) bounded(limit time.Duration, f func()) {
	timer := time.AfterFunc(limit, func() { _ = c.CloseNow() })
	defer timer.Stop()
	f()
}

// fail ends the connection after a violation by the peer (RFC 6455 7.1.7) or an error of the stream.
func (c *Conn) fail(err error) error {
	c.readErr = err
	var violation *ProtocolError
	if errors.As(err, &violation) {
		c.bounded(lingerTimeout, func() {
			if c.sendClose(violation.Code, violation.Text) == nil {
				c.linger()
			}
		})
	}
	_ = c.CloseNow()
	return err
}

// linger reads on until the peer has closed the stream or sent lingerBytes.
func (c *Conn) linger() {
	if half, ok := c.stream.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	for left := lingerBytes; left > 0; {
		n, err := c.stream.Read(c.rbuf)
		if err != nil {
			return
		}
		left -= n
	}
}

// closed handles the peer's Close frame: it answers and closes the stream. The server does that first,
// so that TIME-WAIT is not the client's (RFC 6455 7.1.1).
func (c *Conn) closed(ev Event) error {
	c.readErr = &CloseError{Code: ev.Code, Reason: string(ev.Payload)}
	answer := CloseError{Code: ev.Code}
	if ours := c.closing.Load(); ours != nil {
		answer = *ours // both close, and ours has not left yet or is ignored
	}
	c.bounded(c.closeTimeout, func() {
		_ = c.sendClose(answer.Code, answer.Reason)
	})
	if c.m.role == Client {
		c.bounded(lingerTimeout, c.linger)
	}
	_ = c.CloseNow()
	return c.readErr
}
