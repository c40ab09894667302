package quicconn

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/quic"
)

// sender and receiver are the halves of the streams of package quic.
type sender interface {
	Write(b []byte) (int, error)
	TryWrite(b []byte) error
	Close() error
	CancelWrite(code uint64)
	AfterEnd(f func(error)) func() bool
	SetWriteDeadline(t time.Time) error
	SetPriority(urgency uint8, incremental bool)
	SetReliableBoundary()
}

type receiver interface {
	Read(b []byte) (int, error)
	CancelRead(code uint64)
}

// Stream is a stream of a connection. Its methods are called on the loop.
type Stream struct {
	// User is the handler's.
	User any

	conn *Conn
	id   quic.StreamID
	out  sender   // nil if only the peer sends
	in   receiver // nil if only we do

	// Of the loop.
	chunk  *chunk // what was taken, from at on
	at     int
	err    error // what follows the chunk: io.EOF, or the failure
	direct int   // bytes that QUIC has queued without a write goroutine
	seen   bool  // the handler has been called for its input
	closed bool  // the end was written
	reset  bool  // by Reset, or by the peer
	over   bool  // by Release: nothing is reported
	unstop func() bool

	// Between the loop and the goroutines of the stream.
	mu      sync.Mutex
	queued  bool          // it is in the queue of the hub
	news    news          // what is to be reported
	pending *chunk        // what was read and not taken yet
	ended   error         // what follows it
	discard bool          // what is read has no use
	room    chan struct{} // signals that pending was taken; nil while no goroutine reads
	stopErr error

	held    *chunk // what waits to be written
	bound   bool   // what is written next must arrive, reset or not
	end     bool   // the stream ends after that
	writing bool   // a goroutine writes
	starved bool   // Room was 0
	failed  bool   // nothing can be written
}

// news says what happened to a stream.
type news uint8

const (
	readable news = 1 << iota
	writable
	stopped
)

func (c *Conn) newStream(id quic.StreamID, out sender, in receiver) *Stream {
	return &Stream{conn: c, id: id, out: out, in: in}
}

// ID returns the ID of the stream.
func (s *Stream) ID() uint64 { return uint64(s.id) }

// Conn returns the connection.
func (s *Stream) Conn() *Conn { return s.conn }

// SetPriority orders the stream among those of its connection that have something to send, as quic.SendStream has it.
func (s *Stream) SetPriority(urgency uint8, incremental bool) {
	s.out.SetPriority(urgency, incremental)
}

// notifyLocked puts the stream into the queue of the hub, once.
func (s *Stream) notifyLocked(n news) {
	s.news |= n
	if !s.queued {
		s.queued = true
		s.conn.hub.post(event{conn: s.conn, stream: s})
	}
}

// report calls the handler, on the loop.
func (s *Stream) report() {
	s.mu.Lock()
	n, ended := s.news, s.ended
	s.queued, s.news = false, 0
	s.mu.Unlock()
	if ended != nil && ended != io.EOF && s.err == nil { //nolint:errorlint // package quic returns it as it is
		if s.seen {
			s.dropInput() // a stream that was reset has no use for what came before (RFC 9000 3.2)
		} else {
			s.take() // but for its beginning, which may say what else ends with it
		}
		s.err = ended
	}
	h := s.conn.handler
	if n&readable != 0 && !s.gone() && s.err != errStopped { //nolint:errorlint // it is set here
		s.seen = true
		s.take()
		h.Readable(s)
	}
	if n&writable != 0 && !s.gone() {
		h.Writable(s)
	}
	if n&stopped != 0 && !s.gone() && !s.reset {
		s.reset = true
		h.Stopped(s, s.stopErr)
	}
}

func (s *Stream) gone() bool { return s.over || s.conn.over }

// Input returns what was received and not consumed. It is valid until Consume.
func (s *Stream) Input() []byte {
	if s.chunk == nil {
		return nil
	}
	return s.chunk.b[s.at:]
}

// Err returns what follows Input: nil, io.EOF for the end, or why the stream failed, a *quic.StreamError if the peer has
// reset it. A reset is seen although Input is not empty, unless so much has come that the stream is no longer read. Input that the handler
// has been called for is dropped then.
func (s *Stream) Err() error { return s.err }

// Consume drops n bytes of Input, if StopReading has not dropped all of it. After all of them Input may have more, which is not reported: a handler that leaves
// nothing looks again.
func (s *Stream) Consume(n int) {
	if n == 0 || s.chunk == nil {
		return
	}
	if s.at += n; s.at == len(s.chunk.b) {
		s.chunk.free()
		s.chunk, s.at = nil, 0
		s.take()
	}
}

// take gets what the reader has, if all before was consumed.
func (s *Stream) take() {
	if s.chunk != nil || s.err != nil {
		return
	}
	s.mu.Lock()
	s.chunk, s.pending, s.err = s.pending, nil, s.ended
	s.readOnLocked()
	s.mu.Unlock()
	if s.chunk != nil && len(s.chunk.b) == 0 {
		s.chunk.free()
		s.chunk = nil
	}
}

// readOnLocked has the reader hand over its next chunk.
func (s *Stream) readOnLocked() {
	if s.room == nil {
		return
	}
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// StopReading asks the peer to send no more, and drops what has come.
func (s *Stream) StopReading(code uint64) {
	if s.in != nil && s.err == nil {
		s.in.CancelRead(code)
		s.err = errStopped
	}
	s.dropInput()
}

var errStopped = errors.New("quicconn: reading was stopped")

func (s *Stream) dropInput() {
	s.chunk.free()
	s.chunk, s.at = nil, 0
	s.mu.Lock()
	s.pending.free()
	s.pending, s.discard = nil, true
	s.readOnLocked()
	s.mu.Unlock()
}

// Release ends the use of the stream: nothing is reported any more. What was written is still sent. Input must have ended,
// or StopReading been called: otherwise the peer goes on sending.
func (s *Stream) Release() {
	s.over, s.User = true, nil
	s.unwatch()
	s.dropInput()
}

// readOnce reads into a chunk and hands it over. It reports whether there may be more.
func (s *Stream) readOnce(size *chunks) bool {
	c := size.get()
	n, err := s.in.Read(c.b[:cap(c.b)])
	c.b = c.b[:n]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = nil; n == 0 {
			c.free()
			return true
		}
	}
	return s.deliver(c, err)
}

// read reads to the end of the stream. It waits while the loop has not taken the chunk before.
func (s *Stream) read() {
	s.mu.Lock()
	s.room = make(chan struct{}, 1)
	s.mu.Unlock()
	for s.readOnce(large) {
	}
}

// deliver hands a chunk over, and reports whether there may be more.
func (s *Stream) deliver(c *chunk, err error) bool {
	s.mu.Lock()
	for s.pending != nil {
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-s.conn.q.Context().Done():
			c.free()
			return false
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.discard {
		c.free()
		return err == nil
	}
	s.pending, s.ended = c, err
	s.notifyLocked(readable)
	return err == nil
}
