package h3side

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// role is the part that differs between the ends of a connection of HTTP/3: Front and Back.
type role interface {
	// opened reports whether a stream that the peer has opened for a request is taken.
	opened(st *Stream) bool
	// message is the header of a message, or that it is too large. It borrows the event.
	message(st *Stream, ev *http3.Event)
	// control is an event of the control stream.
	control(ev *http3.Event)
	// stopped is called where the peer wants no more of what is sent on a stream.
	stopped(st *Stream, err error)
	// ended is called when a stream of a request has ended.
	ended()
	// passed is called at the time that the session armed its timer for.
	passed()

	head(st *Stream, m *semantics.Message, e side.Ending) error
	canceled(st *Stream, gone bool)
	released(st *Stream)
}

// Conn is a connection of HTTP/3: its machine, which the loop alone drives, over streams of package quicconn.
//
// The loop gets events of streams in any order, as QUIC delivers streams independently (RFC 9000 2.2). All that depends
// on the order of two streams is in the machine: settings before requests, and inserts of QPACK before the headers that
// refer to them. Such a header waits as Blocked (RFC 9204 2.1.2).
type Conn struct {
	w       *link.Runner
	C       *quicconn.Conn
	m       *http3.Machine
	owner   side.Owner
	ev      side.Event
	session role
	Streams []*Stream // of requests
	free    *Stream
	timer   uint32
	armed   clock.Time // when it fires
	tasks   link.TaskSet
	takers  map[uint64]func(p []byte) // of datagrams, by stream; nil until a stream takes some

	// Of WebTransport.
	sessions     map[uint64]*Session
	reserved     int                        // sessions that are open, or asked for
	early        []*sessionStream           // that wait for their session
	goneSessions [rememberedSessions]uint64 // IDs of the last ones that have ended, plus 1

	failure error // by which the connection is to end, after the call of the exchange that has found it
	closed  bool
}

// newConn begins HTTP/3 on a connection with three unidirectional streams: control, and QPACK's encoder and decoder
// (RFC 9114 6.2.1, RFC 9204 4.2). SETTINGS must be the first frame, and are due at once, so that the peer need not
// assume initial values for long (RFC 9114 7.2.4.2).
func newConn(w *link.Runner, c *quicconn.Conn, m *http3.Machine, owner side.Owner) *Conn {
	k := &Conn{w: w, C: c, m: m, owner: owner, armed: clock.Never}
	k.timer = w.NewTimer(k)
	for _, s := range c.Uni { // little is written to them, by which it would be noticed that the peer has stopped one
		s.Watch()
	}
	k.touch()
	return k
}

// touch has what the machine sends by itself sent after the batch.
func (k *Conn) touch() { k.w.Run.Add(link.Flush, k, &k.tasks) }

// Run implements link.Runnable.
func (k *Conn) Run(t link.Task) {
	if k.tasks.Clear(t); k.failure != nil {
		k.fail(k.failure)
	}
	k.flush()
}

// emit reports an event of the connection.
func (k *Conn) emit(kind side.Kind, err error) {
	k.ev.Kind, k.ev.Err = kind, err
	k.owner.Handle(&k.ev)
}

// refused reports input that was refused, of a request if user is not nil. The peer was answered a status, or nothing with 0.
func (k *Conn) refused(r side.Refusal, user *any, status int) {
	k.ev.Reason, k.ev.N, k.ev.User, k.ev.Status = r, 1, user, status
	k.emit(side.Refused, nil)
}

// flush sends what the machine has for the three streams. They are never closed: their end is an error of the connection (RFC 9114
// 6.2.1, RFC 9204 4.2).
func (k *Conn) flush() {
	control, encoder, decoder := k.m.Pending()
	for i, due := range [3]bool{control, encoder, decoder} {
		if !due || k.closed {
			continue
		}
		b := k.w.GetBuffer() // quicconn copies what is written, so that the buffer is free again at once
		switch i {
		case 0:
			b = k.m.AppendControl(b)
		case 1:
			b = k.m.AppendEncoder(b)
		case 2:
			b = k.m.AppendDecoder(b)
		}
		k.C.Uni[i].Write(b, false)
		k.w.PutBuffer(&b)
	}
}

// arm has the session's passed called at a time, or before. A deadline that moves on does not touch the timer: it fires
// early, and is armed again.
func (k *Conn) arm(by clock.Time) {
	if by < k.armed {
		k.armed = by
		k.w.Wheel.Arm(k.timer, by)
	}
}

// Fired is called by the runner.
func (k *Conn) Fired() {
	k.armed = clock.Never
	if len(k.early) > 0 && !k.closed {
		k.expireEarly()
	}
	if !k.closed {
		k.session.passed()
	}
}

// Readable implements quicconn.Handler.
func (k *Conn) Readable(s *quicconn.Stream) {
	k.w.Enter()
	if k.closed {
		return
	}
	if ss, ok := s.User.(*sessionStream); ok {
		ss.readable()
		return
	}
	st, _ := s.User.(*Stream)
	if st == nil {
		if st = k.take(s); st == nil {
			return
		}
	}
	st.advance()
}

// take begins a stream that the peer has opened. Bit 1 of the ID is set in those of one direction, and bit 0 in those of a server (RFC
// 9000 2.1), which carry no request: the machine finds out what they are by their first bytes (RFC 9114 6.2).
func (k *Conn) take(s *quicconn.Stream) *Stream {
	h, err := k.m.Open(s.ID())
	if err != nil {
		k.fail(err)
		return nil
	}
	st := k.newStream(s, h)
	if s.ID()&3 != 0 {
		return st
	}
	k.enlist(st)
	if !k.session.opened(st) {
		st.close(http3.RequestRejected)
		return nil
	}
	return st
}

// newStream returns a stream for one of QUIC. The fields of the last header are cleared, because they would keep its strings alive.
func (k *Conn) newStream(s *quicconn.Stream, h *http3.Stream) *Stream {
	st := k.free
	if st == nil {
		st = &Stream{}
	} else {
		k.free = st.next
	}
	clear(st.section.Fields)
	st.section.Fields = st.section.Fields[:0]
	*st = Stream{conn: k, S: s, h: h, index: -1, section: st.section, since: k.w.Now}
	s.User, h.User = st, st
	return st
}

// enlist notes a stream as one of a request. It knows its index, so that no search is needed when it ends: a connection may have a
// hundred, and they end in any order.
func (k *Conn) enlist(st *Stream) {
	st.index = len(k.Streams)
	k.Streams = append(k.Streams, st)
}

// unlist takes a stream out of those of requests. The last one takes its place.
func (k *Conn) unlist(st *Stream) {
	if i, last := st.index, len(k.Streams)-1; i >= 0 {
		k.Streams[i] = k.Streams[last]
		k.Streams[i].index = i
		k.Streams = k.Streams[:last]
		st.index = -1
	}
}

// Writable implements quicconn.Handler.
func (k *Conn) Writable(s *quicconn.Stream) {
	k.w.Enter()
	if k.closed {
		return
	}
	switch u := s.User.(type) {
	case *Stream:
		u.emit(side.Writable, nil)
	case *sessionStream:
		u.writable()
	}
}

// Stopped implements quicconn.Handler. Streams of the gateway in one direction have no Stream: they are critical, and
// the connection ends with them. A peer that does not read them ends it as well, since what is due there would gather.
func (k *Conn) Stopped(s *quicconn.Stream, err error) {
	k.w.Enter()
	if k.closed {
		return
	}
	if errors.Is(err, quic.Err0RTTRejected) {
		k.Reject()
	} else if ss, ok := s.User.(*sessionStream); ok {
		ss.stopped(err)
	} else if st, ok := s.User.(*Stream); ok {
		st.state = outputMute
		k.session.stopped(st, err)
	} else if e := new(quic.StreamError); errors.Is(err, quicconn.ErrWriteTimeout) || errors.As(err, &e) && !e.Remote { // which ends the stream
		k.fail(&http3.ConnError{Code: http3.ExcessiveLoad, Text: "what the control streams carry is not taken"})
	} else if e.Remote && slices.Contains(k.C.Uni, s) { // other errors are of the connection, and Closed follows
		k.fail(&http3.ConnError{Code: http3.ClosedCriticalStream, Text: "a critical stream was stopped"}) // RFC 9114 6.2.1
	}
}

// Closed implements quicconn.Handler.
func (k *Conn) Closed(err error) {
	k.w.Enter()
	if !k.closed {
		k.end(err)
	}
}

// Reject ends the connection because the peer has rejected its early data, and with that all streams.
func (k *Conn) Reject() { k.Close(http3.NoError, "", quic.Err0RTTRejected) }

// fail ends the connection by an error of the peer. One that the machine does not name is the gateway's own (RFC 9114 8.1).
func (k *Conn) fail(err error) {
	if k.closed {
		return
	}
	code, text := http3.InternalError, ""
	var e *http3.ConnError
	if errors.As(err, &e) {
		code, text = e.Code, e.Text
	}
	k.Close(code, text, err)
}

// Close closes the connection. The session gets err. What the machine has for the peer is written first, but nothing
// makes it arrive: CONNECTION_CLOSE abandons all streams (RFC 9000 10.2).
func (k *Conn) Close(code http3.ErrorCode, text string, err error) {
	if k.closed {
		return
	}
	k.flush()
	k.C.Close(uint64(code), text)
	k.end(err)
}

// end gives back what the connection has. closed is set first: the session's calls of streams then send nothing. Leaving comes
// before the failures: requests that are sent again must not choose this connection.
func (k *Conn) end(err error) {
	k.closed, k.early = true, nil
	var wrong *http3.ConnError
	if errors.As(err, &wrong) {
		k.refused(side.RefusedProtocol, nil, 0)
	}
	k.emit(side.Leaving, side.ErrUnprocessed)
	failure := side.ErrTerminated
	if errors.Is(err, quic.Err0RTTRejected) { // the peer has dropped them unread (RFC 8446 4.2.10)
		failure = side.ErrUnprocessed
	}
	k.failAll(failure)
	k.emit(side.Closed, err)
	k.w.FreeTimer(k.timer)
}

// failAll reports that all streams have ended by an error. The owner releases each, which takes it out of the list.
// Those without a user are ended here.
func (k *Conn) failAll(err error) {
	for len(k.Streams) > 0 {
		st := k.Streams[len(k.Streams)-1]
		st.state, st.arrived = outputMute, true
		st.fail(err)
	}
}

// Each calls do for each stream in use, from the last one: do may end it, and with it others.
func (k *Conn) Each(do func(user any)) {
	for i := len(k.Streams) - 1; i >= 0; i-- {
		if i < len(k.Streams) && k.Streams[i].User != nil {
			do(k.Streams[i].User)
		}
	}
}
