package proxy

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
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
	tasks   taskSet
	closed  bool
}

// newConn3 begins HTTP/3 on a connection with three unidirectional streams.
func (w *Worker) newConn3(c *quicconn.Conn, m *http3.Machine) *conn3 {
	k := &conn3{w: w, c: c, m: m, armed: clock.Never}
	k.timer = w.newTimer(k)
	k.touch()
	return k
}

// touch has what the machine sends by itself sent after the batch.
func (k *conn3) touch() { k.w.run.add(taskFlush, k, &k.tasks) }

// run implements runnable.
func (k *conn3) run(t task) {
	k.tasks.clear(t)
	k.flush()
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
	} else if errors.Is(err, quicconn.ErrWriteTimeout) {
		k.fail(&http3.ConnError{Code: http3.ExcessiveLoad, Text: "what the control streams carry is not taken"})
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
