package h3side

import (
	"errors"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Front is a client's connection with HTTP/3.
type Front struct {
	*Conn
	conf       *side.Conf
	Priorities map[uint64]http3.Priority // of requests to come
	next       uint64                    // the ID after that of the last request
	early      bool                      // the handshake is not complete: requests may have been repeated (RFC 8470 3)
	State      side.Departure
	by         clock.Time // of the next state, or of an idle connection's end
}

// NewFront has HTTP/3 on a connection. It calls nothing of the owner.
func NewFront(w *link.Runner, c *quicconn.Conn, o http3.MachineOptions, conf *side.Conf, owner side.Owner) *Front {
	f := &Front{conf: conf, Conn: newConn(w, c, http3.NewMachine(http3.RoleServer, o), owner), by: clock.Never, early: true}
	f.session = f
	f.ev.Caps = side.Caps{Protocol: "HTTP/3", Shared: true}
	c.SetWriteTimeout(conf.Timeouts.Write, uint64(http3.RequestCancelled))
	f.rest()
	return f
}

// opened implements role. IDs of requests are multiples of 4, in the order in which the client opens them (RFC 9000
// 2.1): the next one is what GOAWAY names, so that the client knows which requests it may send again.
func (f *Front) opened(st *Stream) bool {
	if f.State >= side.Refusing {
		// RFC 9114 5.2: it was not processed, so the client may send it again. Sessions go on, and may have more streams.
		return len(f.sessions) > 0
	}
	f.next = st.S.ID() + 4
	f.arm(f.w.Now.Add(f.interval()))
	return true
}

// message implements role.
//
// The timeout of writes is set for each request, as the settings of the listener may have changed since the last. Watch
// reports a client that stops reading at once: without it the gateway would find out only by its next write, and have
// the backend work in vain.
func (f *Front) message(st *Stream, ev *http3.Event) {
	if f.State >= side.Refusing && st.S.ID() >= f.next {
		st.drop(http3.RequestRejected)
		return
	}
	if ev.Kind == http3.TooLarge { // RFC 6585 5
		f.refused(side.Refusal(http1.Size), nil, side.TooLarge.Status)
		st.out = f.m.AppendResponse(st.output(), st.S.ID(), &side.TooLarge)
		st.state = outputEnding
		st.drop(http3.NoError)
		return
	}
	st.keepHeader()
	m := &st.h.Message
	f.prioritise(st, m.Fields)
	f.C.SetWriteTimeout(f.conf.Timeouts.Write, uint64(http3.RequestCancelled))
	st.expect = !st.last && side.Expects(m.Fields)
	st.S.Watch()
	f.early = f.early && !f.C.HandshakeComplete() // it never becomes true again: the look-up costs a channel operation
	f.ev.Caps.Datagrams = st
	f.ev.Message, f.ev.Early, f.ev.Ending = m, f.early, side.EndsLater
	if st.last && m.ContentLength <= 0 { // otherwise the content is missing, which the next event reports
		f.ev.Ending = side.EndsNow
	}
	f.ev.Stream, f.ev.User, f.ev.Expects = st, &st.User, st.expect
	f.emit(side.Head, nil)
}

// stopped implements role. A client that sends STOP_SENDING has no use for the rest of the response, and HTTP has no
// half of a request: the exchange ends (RFC 9114 4.1.1). The machine counts such requests: many that are canceled at
// once are an attack (CVE-2023-44487). A reset after a timeout is the gateway's own and does not count.
func (f *Front) stopped(st *Stream, err error) {
	slow := errors.Is(err, quicconn.ErrWriteTimeout)
	if e := f.sessions[st.S.ID()]; e != nil && !slow { // a client that closes its session may do so, before what it has sent is read
		e.r.stopped = true
		st.emit(side.Writable, nil)
		return
	}
	if err := f.m.Cancelled(st.h, !slow); err != nil {
		f.fail(err)
		return
	}
	if slow {
		err = side.ErrStuck
	}
	st.fail(err)
}

// ended implements role.
func (f *Front) ended() {
	switch {
	case len(f.Streams) > 0 || f.closed:
	case f.State == side.Refusing:
		f.part()
	default:
		f.rest()
	}
}

// rest sets the deadline of a connection without requests. QUIC has an idle timeout of its own (RFC 9000 10.1), which keep-alives
// prolong: a client could hold a connection for ever by PING frames.
func (f *Front) rest() {
	if f.State == side.Serving {
		if f.by = clock.Never; f.conf.Timeouts.Idle > 0 {
			f.by = f.w.Now.Add(f.conf.Timeouts.Idle)
		}
		f.arm(f.by)
	}
}

// Leave makes the requests that are under way the last.
func (f *Front) Leave() { f.Drain() }

// Drain ends the connection after the requests in progress. First GOAWAY announces the end: what the client has sent
// by the time that it knows is still served (RFC 9114 5.2).
func (f *Front) Drain() {
	if f.State == side.Serving {
		f.goAway(side.Warned, http3.MaxRequestID)
		f.after(min(2*f.C.QUIC().Stats().SmoothedRTT+link.Tick, time.Second))
	}
}

// goAway makes the client begin no requests from an ID on. Drain sends it twice: the first ID is the largest there is,
// since requests that are under way would be refused by a lower one; a round trip later the second has the ID that
// really holds (RFC 9114 5.2).
func (f *Front) goAway(state side.Departure, id uint64) {
	f.State, f.by = state, clock.Never
	f.m.GoAway(id)
	f.touch()
	f.drainSessions(ClientEnd)
}

// after sets the time of the next state.
func (f *Front) after(d time.Duration) {
	f.by = f.w.Now.Add(d)
	f.arm(f.by)
}

// part gives the last response the time to arrive: closing a connection of QUIC abandons what is under way. A client that
// has nothing left to receive closes by itself.
func (f *Front) part() {
	f.State = side.Parting
	f.after(lastTime(f.Conn))
}

// lastTime is the time that what was sent last gets to arrive.
func lastTime(k *Conn) time.Duration {
	return min(max(3*k.C.QUIC().Stats().SmoothedRTT, 50*time.Millisecond), time.Second)
}

// interval is the interval at which the deadlines of headers are checked. A timer for each stream would cost more than
// a look at all of them: most have their header with the first packet. A quarter of the time bounds the error.
func (f *Front) interval() time.Duration {
	t := f.conf.Timeouts.Header
	if t == 0 {
		t = time.Hour
	}
	return max(t/4, link.Tick)
}

// passed implements role.
func (f *Front) passed() {
	now := f.w.Now
	if f.by <= now {
		f.by = clock.Never
		switch {
		case f.State == side.Serving && len(f.Streams) == 0:
			f.Drain()
		case f.State == side.Warned:
			f.goAway(side.Refusing, f.next)
			f.ended()
		case f.State == side.Parting:
			f.Close(http3.NoError, "", nil)
			return
		}
	}
	for i := len(f.Streams) - 1; i >= 0 && !f.closed; i-- { // from the end: a stream that ends is replaced by the last one
		if i < len(f.Streams) {
			f.overdue(f.Streams[i])
		}
	}
	next := f.by
	if len(f.Streams) > 0 {
		next = min(next, now.Add(f.interval()))
	}
	if !f.closed {
		f.arm(next)
	}
}

// overdue ends a stream whose header has taken too long. Streams that only begin cost memory, as half-open connections
// do. The exchange bounds what follows.
func (f *Front) overdue(st *Stream) {
	if t := f.conf.Timeouts.Header; st.User == nil && t > 0 && f.w.Now >= st.since.Add(t) {
		f.refused(side.Refusal(http1.Incomplete), nil, 0)
		st.drop(http3.RequestIncomplete)
	}
}

// head implements role. 100 (Continue) goes only to a client that waits for it (RFC 9110 10.1.1). Any other response
// ends that wait, as it comes in place of 100.
func (f *Front) head(st *Stream, m *semantics.Message, e side.Ending) error {
	if st.state == outputMute || m.Status == 100 && !st.expect {
		return nil // of a mute stream the end follows
	}
	st.out = f.m.AppendResponse(st.output(), st.S.ID(), m)
	if st.expect = st.expect && m.Status != 100 && m.Status < 200; m.Status >= 200 {
		if e == side.EndsNow {
			st.state = outputEnding
		}
		st.reprioritise(m.Fields)
	}
	return nil
}

// canceled implements role. A response that is complete stays so: only the rest of the request is of no use then.
func (f *Front) canceled(st *Stream, gone bool) {
	code := http3.InternalError
	if gone {
		code = http3.RequestCancelled
	}
	if !st.complete() {
		st.abort(code)
	}
}

// released implements role. What the client still sends is of no use (RFC 9114 4.1.1).
func (f *Front) released(st *Stream) {
	code := http3.NoError
	if !st.complete() {
		code = http3.RequestCancelled
	}
	st.drop(code)
}
