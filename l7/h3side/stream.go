package h3side

import (
	"errors"
	"io"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// Stream is a stream of HTTP/3. Those of requests have a user while one is in progress.
type Stream struct {
	conn *Conn
	S    *quicconn.Stream
	h    *http3.Stream
	User any
	next *Stream // of the free ones

	// index is its place in Conn.Streams, -1 for a stream that is not of a request.
	index      int
	datagramID uint64
	// section holds the header: the response to it is made while the trailers arrive, which are decoded into another one.
	section  qpack.Section
	out      []byte     // what is sent after the batch
	since    clock.Time // of its beginning
	Priority http3.Priority
	arrived  bool // the message has arrived as a whole
	last     bool // nothing but the end of the message follows the event
	input    link.Demand
	tasks    link.TaskSet
	state    outputState
	expect   bool // the client waits for 100 (Continue)
	takes    bool // datagrams, of the stream datagramID
	bodiless bool // the response to HEAD has no content
}

// outputState is the state of what is sent on a stream. The gateway makes none mute that has ended: a reset would take the place of the
// end (RFC 9000 3.1).
type outputState uint8

const (
	outputOpen   outputState = iota
	outputEnding             // the message ends with what is gathered
	outputEnded              // the end was sent
	outputMute               // nothing can be sent any more: it was reset, or the peer has stopped it
)

// complete reports whether what is sent ends regularly, as far as is known.
func (st *Stream) complete() bool { return st.state == outputEnding || st.state == outputEnded }

// advance reads a stream until it has no more or is paused.
//
// An event may end the stream, and the stream of quicconn that it has then is another request's, or none: so s is
// compared after each. Bytes are consumed after the event, and only then credited to the peer: a stream that is paused
// gives no more credit, so that its window bounds what the gateway holds of it (RFC 9000 4.1).
func (st *Stream) advance() {
	k := st.conn
	for st.S != nil && st.input != link.Paused && !k.closed {
		s := st.S
		if err := s.Err(); err != nil && err != io.EOF && !st.mayBelong() { //nolint:errorlint // package quic returns it as it is
			st.aborted(err)
			return
		}
		in, fin := s.Input(), s.Err() == io.EOF //nolint:errorlint // see above
		ev, n, err := k.m.Input(st.h, in, fin)
		if err != nil {
			st.malformed(err)
			return
		}
		if ev.Kind == http3.WebTransport {
			s.Consume(n)
			k.belongs(st, ev.ID)
			return
		}
		if st.last = fin && n == len(in); ev.Kind != http3.NeedInput {
			st.handle(&ev)
		}
		if st.S != s {
			return
		}
		s.Consume(n) // the payload of the event lies in the stream's buffer
		if ev.Kind == http3.NeedInput && (n == 0 || len(s.Input()) == 0 && s.Err() == nil) {
			break
		}
	}
	if _, encoder, decoder := k.m.Pending(); encoder || decoder {
		k.touch()
	}
}

// mayBelong reports whether a stream that was reset has a beginning which may name a session of WebTransport: the session learns of a
// stream that its peer has opened and reset at once (draft 4.4).
func (st *Stream) mayBelong() bool {
	return st.conn.m.Sessions() > 0 && st.User == nil && len(st.S.Input()) > 0
}

// handle acts on an event.
func (st *Stream) handle(ev *http3.Event) {
	k := st.conn
	switch ev.Kind {
	case http3.Headers, http3.TooLarge:
		if st.index >= 0 {
			k.session.message(st, ev)
		}
	case http3.Data:
		k.ev.Payload = ev.Payload
		st.emit(side.Data, nil)
	case http3.End:
		st.arrived = true
		k.ev.Trailers = st.trailers()
		st.emit(side.End, nil)
	case http3.Trailers: // End has them: after them nothing but the end may follow (RFC 9114 4.1)
	case http3.Unblocked: // this stream was QPACK's encoder, and others have waited for what it has inserted (RFC 9204 2.2.1)
		for h, found := ev.Blocked, true; found && !k.closed; h, found = k.m.NextUnblocked() {
			if other, ok := h.User.(*Stream); ok {
				other.Pause(false)
			}
		}
	case http3.Unknown:
		st.S.StopReading(uint64(http3.StreamCreationError)) // a stream of an unknown type has no use (RFC 9114 6.2)
	default:
		k.session.control(ev)
	}
}

// emit reports an event of a stream that is in use. One without a user has been released, or its header has not come:
// what happens to it concerns the connection alone.
func (st *Stream) emit(kind side.Kind, err error) {
	if st.User != nil {
		st.conn.ev.Stream, st.conn.ev.User = st, &st.User
		st.conn.emit(kind, err)
	}
}

// fail reports that the stream has ended by an error, or ends one that no one uses.
func (st *Stream) fail(err error) {
	if st.User == nil {
		st.drop(http3.RequestCancelled)
		return
	}
	st.emit(side.Failed, err)
}

// drop ends the stream, with a code where it is not complete. It may have been the last one of the connection.
func (st *Stream) drop(code http3.ErrorCode) {
	st.close(code)
	st.conn.session.ended()
}

// keepHeader has the strings and fields of the header stay when trailers come.
func (st *Stream) keepHeader() { st.section, st.h.Section = st.h.Section, st.section }

// trailers returns the fields after the content, nil if there were none.
func (st *Stream) trailers() []semantics.Field {
	if len(st.h.Section.Fields) == 0 {
		return nil
	}
	return st.h.Section.Fields
}

// aborted handles the reset of a stream by the peer. Only H3_REQUEST_REJECTED promises that the request was not processed (RFC 9114
// 4.1.1).
func (st *Stream) aborted(err error) {
	k := st.conn
	if errors.Is(err, quic.Err0RTTRejected) {
		k.Reject()
		return
	}
	var e *quic.StreamError
	remote := errors.As(err, &e) && e.Remote
	if more := k.m.Cancelled(st.h, remote); more != nil {
		k.fail(more)
		return
	}
	st.arrived = true
	switch {
	case st.index < 0:
		st.close(http3.NoError)
	case remote && http3.ErrorCode(e.Code) == http3.RequestRejected:
		st.fail(side.ErrUnprocessed)
	default:
		st.fail(side.ErrIncomplete)
	}
}

// malformed handles an error of the machine. A malformed message ends its stream alone (RFC 9114 4.1.2): other requests
// of the connection may be those of other users, behind another proxy. Errors of streams that carry no request end the
// connection.
func (st *Stream) malformed(err error) {
	k := st.conn
	var e *http3.StreamError
	if !errors.As(err, &e) || st.index < 0 {
		k.fail(err)
		return
	}
	st.abort(e.Code)
	k.refused(side.RefusedMessage, &st.User, 0)
	if e.Code == http3.ExcessiveLoad { // the machine of this end has this code for a header alone
		st.fail(side.ErrHeaderSize)
		return
	}
	st.fail(side.ErrProtocol)
}

// abort resets the stream in both directions. Each is reset only if it has not ended: a reset of what is complete would
// take away the only sign of that.
//
// Cancelled tells the peer's encoder of QPACK that the header may not have been read. Its error is of the connection,
// which must not end within a call of the exchange: Run reports it after the batch.
func (st *Stream) abort(code http3.ErrorCode) {
	if st.S == nil || st.state == outputMute && st.arrived {
		return
	}
	if st.state < outputEnded {
		st.state = outputMute
		st.S.Reset(uint64(code))
	}
	if !st.arrived {
		st.arrived = true
		st.S.StopReading(uint64(code))
		if err := st.conn.m.Cancelled(st.h, false); err != nil {
			st.conn.failure = err
			st.conn.touch()
		}
	}
}

// close gives the stream back. What is not complete is ended with the code. A request that is not read to its end is reported to
// QPACK (RFC 9204 2.2.2.2): the peer's encoder would else keep the table entries of its header referenced for ever, and could
// evict none of them.
func (st *Stream) close(code http3.ErrorCode) {
	k, s := st.conn, st.S
	if s == nil {
		return
	}
	if st.complete() {
		st.flush() // now, not after the batch: the stream of quicconn is given back below, and sends what it has been given
		k.m.Completed()
	} else if st.state == outputOpen && !k.closed {
		st.state = outputMute
		s.Reset(uint64(code))
	}
	k.w.PutBuffer(&st.out)
	if !st.arrived && !k.closed {
		s.StopReading(uint64(code))
		_ = k.m.Cancelled(st.h, false)
	}
	k.m.Release(st.h)
	s.Release()
	st.S, st.h, st.User = nil, nil, nil
	k.unlist(st)
	st.recycle()
}

// Pause implements Stream. Reading resumes after the batch: what is read may end the exchange whose call this is.
func (st *Stream) Pause(on bool) {
	if on {
		st.input = link.Paused
		return
	}
	if st.input = link.Wanted; st.S != nil {
		st.conn.w.Run.Add(link.Read, st, &st.tasks)
	}
}

// Head implements Stream.
func (st *Stream) Head(m *semantics.Message, e side.Ending) error {
	return st.conn.session.head(st, m, e)
}

// Cancel implements Stream.
func (st *Stream) Cancel(gone bool) { st.conn.session.canceled(st, gone) }

// Release implements Stream.
func (st *Stream) Release() {
	st.leaveDatagrams()
	st.conn.session.released(st)
}

// touch has the stream flushed after the batch.
func (st *Stream) touch() { st.conn.w.Run.Add(link.Flush, st, &st.tasks) }

// Run implements link.Runnable. A stream may have ended since the task was queued.
func (st *Stream) Run(t link.Task) {
	switch st.tasks.Clear(t); {
	case st.S == nil:
		st.recycle()
	case t == link.Flush:
		st.flush()
	default:
		st.advance()
	}
}

// output returns the buffer to append to.
func (st *Stream) output() []byte {
	st.touch()
	if st.out == nil {
		st.out = st.conn.w.GetBuffer()
	}
	return st.out
}

// largeContent is the size of content that bypasses the buffer: below it a copy costs less than a second write to QUIC,
// which takes its lock and may begin a packet that is not full.
const largeContent = 8 << 10

// Write implements Stream: content in DATA frames, as much as there is room for. QUIC would take any amount and queue
// it (RFC 9000 4.1 bounds only what is sent), so that room is what bounds the memory of a client that does not read.
func (st *Stream) Write(p []byte) (n int) {
	for n < len(p) && st.state != outputMute { // Failed follows for a mute stream
		size := min(len(p)-n, st.room())
		if size == 0 {
			return n
		}
		st.writeFrame(p[n : n+size])
		n += size
	}
	return len(p)
}

// room returns how much may be written now. What is gathered is sent first: it may be all that takes up the room. If it
// is 0, the owner gets Writable once there is room.
func (st *Stream) room() int {
	if n := st.S.Room() - len(st.out); n > 0 {
		return n
	}
	st.flush()
	return st.S.Room()
}

// writeFrame sends content as one DATA frame. Its header and what was gathered leave before large content, which QUIC
// copies itself.
func (st *Stream) writeFrame(p []byte) {
	st.out = http3.AppendDataHeader(st.output(), len(p))
	if len(p) < largeContent {
		st.out = append(st.out, p...)
		return
	}
	if st.flush(); st.state != outputMute {
		st.S.Write(p, false)
	}
}

// End implements Stream. FIN goes with the last bytes: alone it would cost a packet. Trailers are a second HEADERS
// frame (RFC 9114 4.1).
func (st *Stream) End(trailers []semantics.Field) {
	if st.state >= outputEnded {
		return
	}
	if st.touch(); len(trailers) > 0 {
		st.out = st.conn.m.AppendTrailers(st.output(), st.S.ID(), trailers)
	}
	st.state = outputEnding
}

// flush sends what is gathered. Instructions of QPACK come first, so that the peer need not wait for them: a header
// that refers to an entry that has not come blocks its stream (RFC 9204 2.1.2).
func (st *Stream) flush() {
	ending := st.state == outputEnding
	if st.S == nil || st.state >= outputEnded || len(st.out) == 0 && !ending {
		return
	}
	if _, encoder, _ := st.conn.m.Pending(); encoder {
		st.conn.flush()
	}
	if ending {
		st.state = outputEnded
	}
	st.S.Write(st.out, ending)
	st.conn.w.PutBuffer(&st.out)
}

// recycle puts a stream that has ended among the free ones, if the queue does not hold it any more: a task of the old request would
// run for the new one.
func (st *Stream) recycle() {
	if st.tasks == 0 {
		st.next, st.conn.free = st.conn.free, st
	}
}
