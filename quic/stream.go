package quic

import (
	"context"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// sender is the sending side of quic-go's streams.
type sender interface {
	StreamID() quicgo.StreamID
	Write(b []byte) (int, error)
	TryWriteAll(b []byte) error
	Close() error
	CancelWrite(code quicgo.StreamErrorCode)
	SetWriteDeadline(t time.Time) error
	SetPriority(urgency int8, incremental bool)
	SetReliableBoundary()
	Context() context.Context
}

// receiver is the receiving side of quic-go's streams.
type receiver interface {
	StreamID() quicgo.StreamID
	Read(b []byte) (int, error)
	Peek(b []byte) (int, error)
	CancelRead(code quicgo.StreamErrorCode)
	SetReadDeadline(t time.Time) error
}

// SendStream is a unidirectional stream to the peer. One goroutine at a time may write.
type SendStream struct {
	q    sender
	once sync.Once
	ctx  context.Context
}

// ID returns the stream's ID.
func (s *SendStream) ID() StreamID { return StreamID(s.q.StreamID()) }

// Write sends b, which is the caller's again when it returns. It blocks until all of it is sent or
// copied: flow control and the congestion window permitting. After CancelWrite, or CancelRead of the
// peer, the error is a *StreamError.
func (s *SendStream) Write(b []byte) (int, error) {
	n, err := s.q.Write(b)
	return n, convert(err)
}

// TryWrite is Write for an event loop: it does not block. All of b is queued, in a copy, or nothing and the error is
// ErrWouldBlock: the peer's flow control has no room, or a Write is under way. The queue has no other bound, so the caller
// must have one: a Write that has returned means that the queue is empty.
func (s *SendStream) TryWrite(b []byte) error { return convert(s.q.TryWriteAll(b)) }

// Close ends the stream. What was written still arrives. It must not be called beside Write.
func (s *SendStream) Close() error { return convert(s.q.Close()) }

// CancelWrite aborts the stream: what is under way is not sent again, and the peer's reads return a
// *StreamError (RESET_STREAM, RFC 9000 19.4).
func (s *SendStream) CancelWrite(code uint64) { s.q.CancelWrite(quicgo.StreamErrorCode(code)) }

// SetWriteDeadline bounds writes, those under way included. After os.ErrDeadlineExceeded the stream
// works on; n bytes were taken.
func (s *SendStream) SetWriteDeadline(t time.Time) error { return convert(s.q.SetWriteDeadline(t)) }

// SetPriority orders the stream among those that have data to send: lower urgency first, 0 to 7;
// within an urgency, incremental streams share and others follow one another (RFC 9218 4). Streams
// start with urgency 3, incremental.
func (s *SendStream) SetPriority(urgency uint8, incremental bool) {
	s.q.SetPriority(int8(min(urgency, 7)), incremental)
}

// SetReliableBoundary has what was written so far arrive even if CancelWrite comes later. It has an effect if
// both ends have Config.ResetAt. It may be called again, after more was written.
func (s *SendStream) SetReliableBoundary() { s.q.SetReliableBoundary() }

// Context returns a context that ends when the stream can take no more: by Close, CancelWrite, the
// peer's CancelRead or the end of the connection.
func (s *SendStream) Context() context.Context {
	s.once.Do(func() { s.ctx = convertContext(s.q.Context()) })
	return s.ctx
}

// AfterEnd has f run on a goroutine of its own when the stream can take no more, as Context has it. The error is the cause.
// stop reports whether it has prevented that.
func (s *SendStream) AfterEnd(f func(error)) (stop func() bool) {
	ctx := s.q.Context()
	return context.AfterFunc(ctx, func() { f(convert(context.Cause(ctx))) })
}

// ReceiveStream is a unidirectional stream from the peer. One goroutine at a time may read.
type ReceiveStream struct{ q receiver }

// ID returns the stream's ID.
func (s *ReceiveStream) ID() StreamID { return StreamID(s.q.StreamID()) }

// Read reads what has arrived, in order. The end of the stream is io.EOF, and an abort by the peer a
// *StreamError.
func (s *ReceiveStream) Read(b []byte) (int, error) {
	n, err := s.q.Read(b)
	return n, convert(err)
}

// Peek fills b with what the next Read returns. It waits for len(b) bytes; at the end of the stream it
// returns fewer and io.EOF.
func (s *ReceiveStream) Peek(b []byte) (int, error) {
	n, err := s.q.Peek(b)
	return n, convert(err)
}

// CancelRead reports that the program reads no more: the peer's writes return a *StreamError
// (STOP_SENDING, RFC 9000 19.5).
func (s *ReceiveStream) CancelRead(code uint64) { s.q.CancelRead(quicgo.StreamErrorCode(code)) }

// SetReadDeadline bounds reads, those under way included. After os.ErrDeadlineExceeded the stream
// works on.
func (s *ReceiveStream) SetReadDeadline(t time.Time) error { return convert(s.q.SetReadDeadline(t)) }

// Stream is a bidirectional stream. One goroutine may read beside one that writes.
type Stream struct {
	send    SendStream
	receive ReceiveStream
	q       *quicgo.Stream
}

// ID returns the stream's ID.
func (s *Stream) ID() StreamID { return s.send.ID() }

// Read is ReceiveStream.Read.
func (s *Stream) Read(b []byte) (int, error) { return s.receive.Read(b) }

// Peek is ReceiveStream.Peek.
func (s *Stream) Peek(b []byte) (int, error) { return s.receive.Peek(b) }

// CancelRead is ReceiveStream.CancelRead.
func (s *Stream) CancelRead(code uint64) { s.receive.CancelRead(code) }

// Write is SendStream.Write.
func (s *Stream) Write(b []byte) (int, error) { return s.send.Write(b) }

// TryWrite is SendStream.TryWrite.
func (s *Stream) TryWrite(b []byte) error { return s.send.TryWrite(b) }

// AfterEnd is SendStream.AfterEnd.
func (s *Stream) AfterEnd(f func(error)) (stop func() bool) { return s.send.AfterEnd(f) }

// Close ends the sending side, as SendStream.Close does. Reads go on.
func (s *Stream) Close() error { return s.send.Close() }

// CancelWrite is SendStream.CancelWrite.
func (s *Stream) CancelWrite(code uint64) { s.send.CancelWrite(code) }

// SetReliableBoundary is SendStream.SetReliableBoundary.
func (s *Stream) SetReliableBoundary() { s.send.SetReliableBoundary() }

// SetPriority is SendStream.SetPriority.
func (s *Stream) SetPriority(urgency uint8, incremental bool) {
	s.send.SetPriority(urgency, incremental)
}

// Context is SendStream.Context: it ends with the sending side.
func (s *Stream) Context() context.Context { return s.send.Context() }

// SetReadDeadline is ReceiveStream.SetReadDeadline.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.receive.SetReadDeadline(t) }

// SetWriteDeadline is SendStream.SetWriteDeadline.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.send.SetWriteDeadline(t) }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error { return convert(s.q.SetDeadline(t)) }

func wrapStream(q *quicgo.Stream, err error) (*Stream, error) {
	if err != nil {
		return nil, convert(err)
	}
	return &Stream{send: SendStream{q: q}, receive: ReceiveStream{q}, q: q}, nil
}

func wrapSend(q *quicgo.SendStream, err error) (*SendStream, error) {
	if err != nil {
		return nil, convert(err)
	}
	return &SendStream{q: q}, nil
}

func wrapReceive(q *quicgo.ReceiveStream, err error) (*ReceiveStream, error) {
	if err != nil {
		return nil, convert(err)
	}
	return &ReceiveStream{q}, nil
}
