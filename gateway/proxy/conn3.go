package proxy

import (
	"errors"
	"io"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/quicconn"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// session3 is what a connection of HTTP/3 is used for: front3 or back3.
type session3 interface {
	// opened says that the peer has opened a stream for a request. false refuses it.
	opened(st *stream3) bool
	// message is an event of a request's stream: Headers, TooLarge, Data, Trailers or End. It borrows the event.
	message(st *stream3, ev *http3.Event)
	// control is an event of the control stream.
	control(ev *http3.Event)
	// broken says that a stream cannot be read on: the peer has reset it, or what it carries is malformed.
	broken(st *stream3, err error)
	// writable says that a stream has room again.
	writable(st *stream3)
	// stopped says that the peer wants no more of what is sent on a stream.
	stopped(st *stream3, err error)
	// lost says that the connection has ended. Streams are still in conn3.streams.
	lost(err error)
	// passed is called at the time that the session armed its timer for.
	passed()
}

// conn3 is a connection of HTTP/3: its machine, which the loop alone drives, over streams of package quicconn.
type conn3 struct {
	w       *Worker
	c       *quicconn.Conn
	m       *http3.Machine
	session session3
	streams []*stream3 // of requests
	free    *stream3
	timer   uint32
	armed   clock.Time // when it fires
	dirty   bool
	closed  bool
}

// stream3 is a stream of HTTP/3. Those of requests have an exchange while one is in progress.
type stream3 struct {
	conn *conn3
	s    *quicconn.Stream
	h    *http3.Stream
	x    *exchange
	next *stream3 // of the free ones

	index   int           // in conn3.streams, -1 for one that is not of a request
	section qpack.Section // of the header: trailers are decoded into another
	out     []byte        // what is sent after the batch
	since   clock.Time    // of the last progress of the input
	stuck   clock.Time    // since when no output was taken, 0 while it is
	arrived bool          // the message has arrived as a whole
	last    bool          // nothing but the end of the message follows the event
	paused  bool
	queued  bool // in Worker.ready3
	dirty   bool // in Worker.dirty3
	fin     bool // the message ends with out,
	sent    bool // and that has been sent
	mute    bool // nothing can be sent any more
	expect  bool // the client waits for 100 (Continue)
	first   bool // of its connection
}

// newConn3 begins HTTP/3 on a connection with three unidirectional streams.
func (w *Worker) newConn3(c *quicconn.Conn, m *http3.Machine) *conn3 {
	k := &conn3{w: w, c: c, m: m, armed: clock.Never}
	k.timer = w.newTimer(k)
	k.touch()
	return k
}

// touch has what the machine sends by itself sent after the batch.
func (k *conn3) touch() {
	if !k.dirty {
		k.dirty = true
		k.w.dirtyConns = append(k.w.dirtyConns, k)
	}
}

// flush sends what the machine has for the three streams.
func (k *conn3) flush() {
	control, encoder, decoder := k.m.Pending()
	for i, due := range [3]bool{control, encoder, decoder} {
		if !due || k.closed {
			continue
		}
		b := k.w.getBuffer()
		switch i {
		case 0:
			b = k.m.AppendControl(b)
		case 1:
			b = k.m.AppendEncoder(b)
		case 2:
			b = k.m.AppendDecoder(b)
		}
		k.c.Uni[i].Write(b, false)
		k.w.putBuffer(&b)
	}
}

// arm has the session's passed called at a time, or before.
func (k *conn3) arm(by clock.Time) {
	if by < k.armed {
		k.armed = by
		k.w.wheel.Arm(k.timer, by)
	}
}

// fired is called by the worker.
func (k *conn3) fired() {
	k.armed = clock.Never
	if !k.closed {
		k.session.passed()
	}
}

// Readable implements quicconn.Handler.
func (k *conn3) Readable(s *quicconn.Stream) {
	k.w.enter()
	if k.closed {
		return
	}
	st, _ := s.User.(*stream3)
	if st == nil {
		if st = k.take(s); st == nil {
			return
		}
	}
	st.advance()
}

// take begins a stream that the peer has opened.
func (k *conn3) take(s *quicconn.Stream) *stream3 {
	h, err := k.m.Open(s.ID())
	if err != nil {
		k.fail(err)
		return nil
	}
	st := k.newStream(s, h)
	if s.ID()&2 != 0 {
		return st
	}
	k.enlist(st)
	if !k.session.opened(st) {
		st.end(http3.RequestRejected)
		return nil
	}
	return st
}

func (k *conn3) newStream(s *quicconn.Stream, h *http3.Stream) *stream3 {
	st := k.free
	if st == nil {
		st = &stream3{}
	} else {
		k.free = st.next
	}
	clear(st.section.Fields)
	st.section.Fields = st.section.Fields[:0]
	*st = stream3{conn: k, s: s, h: h, index: -1, section: st.section, since: k.w.now}
	s.User, h.User = st, st
	return st
}

// enlist notes a stream as one of a request.
func (k *conn3) enlist(st *stream3) {
	st.index = len(k.streams)
	k.streams = append(k.streams, st)
}

// Writable implements quicconn.Handler.
func (k *conn3) Writable(s *quicconn.Stream) {
	k.w.enter()
	if st, ok := s.User.(*stream3); ok && !k.closed {
		st.stuck = 0
		k.session.writable(st)
	}
}

// Stopped implements quicconn.Handler.
func (k *conn3) Stopped(s *quicconn.Stream, err error) {
	k.w.enter()
	if k.closed {
		return
	}
	if st, ok := s.User.(*stream3); ok {
		st.mute = true
		k.session.stopped(st, err)
	} else if slices.Contains(k.c.Uni, s) {
		k.fail(&http3.ConnError{Code: http3.ClosedCriticalStream, Text: "a critical stream was stopped"}) // RFC 9114 6.2.1
	}
}

// Closed implements quicconn.Handler.
func (k *conn3) Closed(err error) {
	k.w.enter()
	if !k.closed {
		k.end(err)
	}
}

// fail ends the connection by an error of ours.
func (k *conn3) fail(err error) {
	if k.closed {
		return
	}
	code, text := http3.InternalError, ""
	var e *http3.ConnError
	if errors.As(err, &e) {
		code, text = e.Code, e.Text
	}
	k.close(code, text, err)
}

// close closes the connection. The session hears err.
func (k *conn3) close(code http3.ErrorCode, text string, err error) {
	if k.closed {
		return
	}
	k.flush()
	k.c.Close(uint64(code), text)
	k.end(err)
}

// end gives back what the connection has.
func (k *conn3) end(err error) {
	k.closed = true
	k.session.lost(err)
	k.w.freeTimer(k.timer)
}

// advance reads a stream until it has no more or its exchange waits.
func (st *stream3) advance() {
	k := st.conn
	for st.s != nil && !st.paused && !k.closed {
		s := st.s
		if err := s.Err(); err != nil && err != io.EOF { //nolint:errorlint // package quic returns it as it is
			st.aborted(err)
			return
		}
		in, fin := s.Input(), s.Err() == io.EOF //nolint:errorlint // see above
		ev, n, err := k.m.Input(st.h, in, fin)
		if err != nil {
			st.malformed(err)
			return
		}
		if st.last = fin && n == len(in); ev.Kind != http3.NeedInput {
			st.handle(&ev)
		}
		if st.s != s {
			return
		}
		s.Consume(n)
		if ev.Kind == http3.NeedInput && (n == 0 || len(s.Input()) == 0 && s.Err() == nil) {
			break
		}
	}
	if _, encoder, decoder := k.m.Pending(); encoder || decoder {
		k.touch()
	}
}

// handle acts on an event.
func (st *stream3) handle(ev *http3.Event) {
	k := st.conn
	switch ev.Kind {
	case http3.Headers, http3.TooLarge, http3.Data, http3.Trailers, http3.End:
		st.since = k.w.now
		if st.index >= 0 {
			k.session.message(st, ev)
		}
	case http3.Unblocked:
		for h, found := ev.Blocked, true; found && !k.closed; h, found = k.m.NextUnblocked() {
			if other, ok := h.User.(*stream3); ok {
				other.resume()
			}
		}
	case http3.Unknown:
		st.s.StopReading(uint64(http3.StreamCreationError)) // RFC 9114 6.2
	default:
		k.session.control(ev)
	}
}

// keepHeader has the strings and fields of the header stay when trailers come.
func (st *stream3) keepHeader() { st.section, st.h.Section = st.h.Section, st.section }

// trailers returns the fields after the content, nil if there were none.
func (st *stream3) trailers() []semantics.Field {
	if len(st.h.Section.Fields) == 0 {
		return nil
	}
	return st.h.Section.Fields
}

// aborted handles the reset of a stream by the peer.
func (st *stream3) aborted(err error) {
	k := st.conn
	var e *quic.StreamError
	remote := errors.As(err, &e) && e.Remote
	if more := k.m.Cancelled(st.h, remote); more != nil {
		k.fail(more)
		return
	}
	st.arrived = true
	if st.index >= 0 {
		k.session.broken(st, err)
		return
	}
	st.end(http3.NoError)
}

// malformed handles an error of the machine: of the stream, or of the connection.
func (st *stream3) malformed(err error) {
	k := st.conn
	var e *http3.StreamError
	if !errors.As(err, &e) || st.index < 0 {
		k.fail(err)
		return
	}
	st.abort(e.Code)
	k.session.broken(st, err)
}

// abort resets the stream in both directions.
func (st *stream3) abort(code http3.ErrorCode) {
	if st.s == nil || st.mute && st.arrived {
		return
	}
	if !st.sent {
		st.mute = true
		st.s.Reset(uint64(code))
	}
	if !st.arrived {
		st.arrived = true
		st.s.StopReading(uint64(code))
		if err := st.conn.m.Cancelled(st.h, false); err != nil {
			st.conn.fail(err)
		}
	}
}

// end gives the stream back. What is not complete is ended with the code.
func (st *stream3) end(code http3.ErrorCode) {
	k, s := st.conn, st.s
	if s == nil {
		return
	}
	if st.fin && !st.mute {
		st.flush()
		k.m.Completed()
	} else if !st.mute && st.index >= 0 && !k.closed {
		st.mute = true
		s.Reset(uint64(code))
	}
	k.w.putBuffer(&st.out)
	if !st.arrived && !k.closed {
		s.StopReading(uint64(code))
		_ = k.m.Cancelled(st.h, false)
	}
	k.m.Release(st.h)
	s.Release()
	st.s, st.h, st.x = nil, nil, nil
	if i, last := st.index, len(k.streams)-1; i >= 0 {
		k.streams[i] = k.streams[last]
		k.streams[i].index = i
		k.streams = k.streams[:last]
		st.index = -1
	}
	st.recycle()
}

// resume has the stream read again, soon.
func (st *stream3) resume() {
	st.paused = false
	if !st.queued && st.s != nil {
		st.queued = true
		st.conn.w.ready3 = append(st.conn.w.ready3, st)
	}
}

func (st *stream3) pause() { st.paused = true }

// touch has the stream flushed after the batch.
func (st *stream3) touch() {
	if !st.dirty {
		st.dirty = true
		st.conn.w.dirty3 = append(st.conn.w.dirty3, st)
	}
}

// output returns the buffer to append to.
func (st *stream3) output() []byte {
	st.touch()
	if st.out == nil {
		st.out = st.conn.w.getBuffer()
	}
	return st.out
}

// largeContent is how much content passes by the buffer.
const largeContent = 8 << 10

// write sends content in DATA frames, as much as there is room for. With less than p, writable follows.
func (st *stream3) write(p []byte) (n int) {
	for n < len(p) && !st.mute { // the end of a mute stream's exchange follows
		size := min(len(p)-n, st.room())
		if size == 0 {
			return n
		}
		st.writeFrame(p[n : n+size])
		n += size
	}
	return len(p)
}

// room returns how much may be written now. With 0 writable follows.
func (st *stream3) room() int {
	if n := st.s.Room() - len(st.out); n > 0 {
		return n
	}
	st.flush()
	n := st.s.Room()
	if n == 0 && st.stuck == 0 {
		st.stuck = st.conn.w.now
	}
	return n
}

// writeFrame sends content as one DATA frame.
func (st *stream3) writeFrame(p []byte) {
	st.out = http3.AppendDataHeader(st.output(), len(p))
	if len(p) < largeContent {
		st.out = append(st.out, p...)
		return
	}
	if st.flush(); !st.mute {
		st.s.Write(p, false)
	}
}

// finish ends the message.
func (st *stream3) finish(trailers []semantics.Field) {
	if st.mute {
		return
	}
	if st.touch(); len(trailers) > 0 {
		st.out = st.conn.m.AppendTrailers(st.output(), st.s.ID(), trailers)
	}
	st.fin = true
}

// flush sends what is gathered. Instructions of QPACK come first, so that the peer need not wait for them.
func (st *stream3) flush() {
	if st.s == nil || st.mute || st.sent || len(st.out) == 0 && !st.fin {
		return
	}
	if _, encoder, _ := st.conn.m.Pending(); encoder {
		st.conn.flush()
	}
	st.sent = st.fin
	st.s.Write(st.out, st.fin)
	st.conn.w.putBuffer(&st.out)
}

// advance3 flushes and resumes what the batch has left of HTTP/3.
func (w *Worker) advance3() {
	for i := 0; i < len(w.dirty3); i++ {
		st := w.dirty3[i]
		st.dirty = false
		if st.s == nil {
			st.recycle()
			continue
		}
		st.flush()
	}
	w.dirty3 = w.dirty3[:0]
	for i := 0; i < len(w.ready3); i++ {
		st := w.ready3[i]
		st.queued = false
		if st.s == nil {
			st.recycle()
			continue
		}
		st.advance()
	}
	w.ready3 = w.ready3[:0]
	for i := 0; i < len(w.dirtyConns); i++ {
		k := w.dirtyConns[i]
		k.dirty = false
		k.flush()
	}
	w.dirtyConns = w.dirtyConns[:0]
}

// recycle puts a stream that has ended among the free ones, if no list has it any more.
func (st *stream3) recycle() {
	if !st.queued && !st.dirty {
		st.next, st.conn.free = st.conn.free, st
	}
}

// pending3 reports whether advance3 has something to do.
func (w *Worker) pending3() bool { return len(w.dirty3)+len(w.ready3)+len(w.dirtyConns) > 0 }
