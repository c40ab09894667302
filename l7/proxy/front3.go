package proxy

import (
	"errors"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/semantics"
)

// front3 is a client's connection with HTTP/3.
type front3 struct {
	*conn3
	conf       *Conf
	priorities map[uint64]http3.Priority // of requests to come
	next       uint64                    // the ID after that of the last request
	early      bool                      // the handshake is not complete: requests may have been repeated
	state      departure
	by         clock.Time // of the next state, or of an idle connection's end
}

// newFront3 has HTTP/3 on a connection. It calls nothing of the owner.
func newFront3(w *runner, c *quicconn.Conn, o http3.MachineOptions, conf *Conf, owner Owner) *front3 {
	f := &front3{conf: conf, conn3: newConn3(w, c, http3.NewMachine(http3.RoleServer, o), owner), by: clock.Never, early: true}
	f.session = f
	f.ev.Caps = Caps{Protocol: "HTTP/3", Shared: true}
	c.SetWriteTimeout(conf.Timeouts.Write, uint64(http3.RequestCancelled))
	f.rest()
	return f
}

func (f *front3) opened(st *stream3) bool {
	if f.state >= refusing {
		return false // RFC 9114 5.2: it was not processed, so the client may send it again
	}
	f.next = st.s.ID() + 4
	f.arm(f.w.now.Add(f.interval()))
	return true
}

// message implements session3.
func (f *front3) message(st *stream3, ev *http3.Event) {
	if ev.Kind == http3.TooLarge { // RFC 6585 5
		f.refused(Refusal(http1.Size), nil, tooLarge.Status)
		st.out = f.m.AppendResponse(st.output(), st.s.ID(), &tooLarge)
		st.fin = true
		f.drop(st, http3.NoError)
		return
	}
	st.keepHeader()
	m := &st.h.Message
	f.prioritise(st, m.Fields)
	f.c.SetWriteTimeout(f.conf.Timeouts.Write, uint64(http3.RequestCancelled))
	st.expect = !st.last && expects(m.Fields)
	st.s.Watch()
	f.early = f.early && !f.c.HandshakeComplete()
	f.ev.Message, f.ev.Early, f.ev.Ending = m, f.early, EndsLater
	if st.last && m.ContentLength <= 0 { // otherwise the content is missing, which the next event reports
		f.ev.Ending = EndsNow
	}
	f.ev.Stream, f.ev.User = st, &st.user
	f.emit(Head, nil)
}

// refused reports input that was refused, of a request if user is not nil. The client was answered a status, or nothing with 0.
func (f *front3) refused(r Refusal, user *any, status int) {
	f.ev.Reason, f.ev.N, f.ev.User, f.ev.Status = r, 1, user, status
	f.emit(Refused, nil)
}

// drop ends a stream without a user.
func (f *front3) drop(st *stream3, code http3.ErrorCode) {
	st.close(code)
	f.ended()
}

// fault reports that a stream has ended by an error.
func (f *front3) fault(st *stream3, err error) {
	if st.user == nil {
		f.drop(st, http3.RequestCancelled)
		return
	}
	st.emit(Failed, err)
}

func (f *front3) broken(st *stream3, err error) {
	var malformed *http3.StreamError
	if errors.As(err, &malformed) {
		f.refused(RefusedMessage, &st.user, 0)
	}
	f.fault(st, err)
}

func (f *front3) stopped(st *stream3, err error) {
	slow := errors.Is(err, quicconn.ErrWriteTimeout)
	if err := f.m.Cancelled(st.h, !slow); err != nil {
		f.fail(err)
		return
	}
	if slow {
		err = ErrStuck
	}
	f.fault(st, err)
}

func (f *front3) lost(err error) {
	var wrong *http3.ConnError
	if errors.As(err, &wrong) {
		f.refused(RefusedProtocol, nil, 0)
	}
	f.failAll(ErrTerminated)
	f.emit(Closed, err)
}

// ended is called when a request has ended.
func (f *front3) ended() {
	switch {
	case len(f.streams) > 0 || f.closed:
	case f.state == refusing:
		f.part()
	default:
		f.rest()
	}
}

// rest sets the deadline of a connection without requests.
func (f *front3) rest() {
	if f.state == serving {
		if f.by = clock.Never; f.conf.Timeouts.Idle > 0 {
			f.by = f.w.now.Add(f.conf.Timeouts.Idle)
		}
		f.arm(f.by)
	}
}

// leave makes the requests that are under way the last.
func (f *front3) leave() { f.drain() }

// drain ends the connection after the requests in progress. First the client is told that the end is near: what it has sent
// by the time that it knows is still served (RFC 9114 5.2).
func (f *front3) drain() {
	if f.state == serving {
		f.goAway(warned, http3.MaxRequestID)
		f.after(min(2*f.c.QUIC().Stats().SmoothedRTT+tick, time.Second))
	}
}

// goAway has the client begin no requests from an ID on.
func (f *front3) goAway(state departure, id uint64) {
	f.state, f.by = state, clock.Never
	f.m.GoAway(id)
	f.touch()
}

// after sets the time of the next state.
func (f *front3) after(d time.Duration) {
	f.by = f.w.now.Add(d)
	f.arm(f.by)
}

// part gives the last response the time to arrive: closing a connection of QUIC abandons what is under way. A client that
// has nothing left to receive closes by itself.
func (f *front3) part() {
	f.state = parting
	f.after(min(max(3*f.c.QUIC().Stats().SmoothedRTT, 50*time.Millisecond), time.Second))
}

// interval is how often the deadlines of headers are looked at.
func (f *front3) interval() time.Duration {
	t := f.conf.Timeouts.Header
	if t == 0 {
		t = time.Hour
	}
	return max(t/4, tick)
}

func (f *front3) passed() {
	now := f.w.now
	if f.by <= now {
		f.by = clock.Never
		switch {
		case f.state == serving && len(f.streams) == 0:
			f.drain()
		case f.state == warned:
			f.goAway(refusing, f.next)
			f.ended()
		case f.state == parting:
			f.close(http3.NoError, "", nil)
			return
		}
	}
	for i := len(f.streams) - 1; i >= 0 && !f.closed; i-- {
		if i < len(f.streams) {
			f.overdue(f.streams[i])
		}
	}
	next := f.by
	if len(f.streams) > 0 {
		next = min(next, now.Add(f.interval()))
	}
	if !f.closed {
		f.arm(next)
	}
}

// overdue ends a stream whose header has taken too long. The exchange bounds what follows.
func (f *front3) overdue(st *stream3) {
	if t := f.conf.Timeouts.Header; st.user == nil && t > 0 && f.w.now >= st.since.Add(t) {
		f.refused(Refusal(http1.Incomplete), nil, 0)
		f.drop(st, http3.RequestIncomplete)
	}
}

// head implements session3.
func (f *front3) head(st *stream3, m *semantics.Message, e Ending) error {
	if st.mute || m.Status == 100 && !st.expect {
		return nil // of a mute stream the end follows
	}
	st.out = f.m.AppendResponse(st.output(), st.s.ID(), m)
	if st.expect = st.expect && m.Status != 100 && m.Status < 200; m.Status >= 200 {
		st.fin = e == EndsNow
		st.reprioritise(m.Fields)
	}
	return nil
}

// canceled implements session3. A response that is complete stays so: only the rest of the request is of no use then.
func (f *front3) canceled(st *stream3, gone bool) {
	code := http3.InternalError
	if gone {
		code = http3.RequestCancelled
	}
	if !st.fin {
		st.abort(code)
	}
}

// released implements session3. What the client still sends is of no use (RFC 9114 4.1.1).
func (f *front3) released(st *stream3) {
	code := http3.NoError
	if !st.fin {
		code = http3.RequestCancelled
	}
	f.drop(st, code)
}
