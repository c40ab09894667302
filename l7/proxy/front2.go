package proxy

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// front2 is a client's connection with HTTP/2.
type front2 struct {
	conn2
	conf      *Conf
	state     departure
	heading   bool   // the deadline of a header runs
	malformed uint64 // of the machine's requests, as far as they are counted
}

// newFront2 has HTTP/2 on a link. It calls nothing of the owner.
func newFront2(l *link, o http2.Options, conf *Conf, owner Owner) *front2 {
	f := &front2{conf: conf, conn2: conn2{l: l, m: http2.NewMachine(http2.RoleServer, o), owner: owner}}
	f.ev.Caps = Caps{Protocol: "HTTP/2", Shared: true}
	l.session = f
	l.deadline(&l.inputBy, conf.Timeouts.Idle)
	f.control()
	return f
}

func (f *front2) input(p []byte, fin bool) int {
	if err := f.pull(f, p); err != nil {
		f.refused(refusalOf(err), 1, 0)
		f.l.closeBy(closeLinger)
		f.failAll(ErrProtocol)
		f.l.close()
		return len(p)
	}
	f.boundHeader()
	if n := f.m.Malformed(); n > f.malformed {
		f.refused(RefusedMessage, n-f.malformed, 0)
		f.malformed = n
	}
	if fin {
		f.failAll(ErrTerminated)
		f.l.close()
	}
	return len(p)
}

// refused reports input that was refused. The client was answered a status, or nothing with 0.
func (f *front2) refused(r Refusal, n uint64, status int) {
	f.ev.Reason, f.ev.N, f.ev.Status, f.ev.User = r, n, status, nil
	f.emit(Refused, nil)
}

// boundHeader has the deadline of a header run while one is being received. No other frame can arrive meanwhile.
func (f *front2) boundHeader() {
	in := f.m.InHeader()
	if in == f.heading || !f.l.open() {
		return
	}
	f.heading = in
	t := f.conf.Timeouts
	switch {
	case in && t.Header > 0:
		f.l.deadline(&f.l.inputBy, t.Header)
	case !in && f.m.Streams() > 0:
		f.l.inputBy = clock.Never
	case !in:
		f.l.deadline(&f.l.inputBy, t.Idle)
	}
}

// handle implements session2.
func (f *front2) handle(ev *http2.Event, st *stream2) {
	switch {
	case ev.Stream == nil:
	case ev.Kind == http2.Headers:
		f.begin(ev.Stream)
	case ev.Kind == http2.TooLarge: // RFC 6585 5
		f.refused(Refusal(http1.Size), 1, tooLarge.Status)
		f.l.out, _ = f.m.AppendResponse(f.output(), ev.Stream, &tooLarge, true)
		f.m.Release(ev.Stream)
	case ev.Kind == http2.Failed && st == nil:
		f.m.Release(ev.Stream)
	case ev.Kind == http2.Failed:
		st.arrived = true
		st.emit(Failed, ErrTerminated)
	}
}

// begin reports a request.
func (f *front2) begin(s *http2.Stream) {
	st := f.newStream(f, s)
	f.l.inputBy, f.heading = clock.Never, false // exchanges have deadlines of their own
	f.ev.Ending = EndsNow
	if !f.m.EndFollows(s) {
		f.ev.Ending = EndsLater
		st.expect = expects(s.Message.Fields)
	}
	f.ev.Message, f.ev.Stream, f.ev.User = &s.Message, st, &st.user
	f.emit(Head, nil)
}

// head implements session2.
func (f *front2) head(st *stream2, m *semantics.Message, e Ending) (err error) {
	if m.Status == 100 {
		if !st.expect {
			return nil
		}
		st.expect = false
	}
	if e == EndsByLength && m.ContentLength > 0 {
		st.left = m.ContentLength
	}
	f.l.out, err = f.m.AppendResponse(f.output(), st.s, m, e == EndsNow)
	return err
}

// canceled implements session2.
func (f *front2) canceled(st *stream2, gone bool) {
	code := http2.InternalError
	if gone {
		code = http2.Cancel
	}
	f.m.Reset(st.s, code)
	f.control()
}

// released implements session2.
func (f *front2) released(st *stream2, s *http2.Stream) {
	if !st.arrived && s.Ended() {
		f.m.Reset(s, http2.NoError) // RFC 9113 8.1: the rest of the request is of no use
	}
	f.m.Release(s)
	f.control()
	f.rest()
}

// drain has the client open no more streams, and ends the connection after those that are open. What the client has sent by the
// time that it knows is still served (RFC 9113 6.8).
func (f *front2) drain() {
	if f.state != serving {
		return
	}
	f.state = warned
	f.l.closeBy(closeLinger)
	f.m.Shutdown()
	f.control()
	f.l.w.after(drainGrace, f)
}

// fired ends the time of drain.
func (f *front2) fired() {
	if f.l.open() {
		f.leave()
		f.rest()
	}
}

// leave makes the requests that have arrived the last.
func (f *front2) leave() {
	if f.state == refusing {
		return
	}
	if f.state == serving {
		f.m.Shutdown()
	}
	f.state = refusing
	f.m.GoAway(http2.NoError)
	f.control()
}

// rest acts on a connection without requests.
func (f *front2) rest() {
	switch {
	case f.m.Streams() > 0 || !f.l.open():
	case f.state == refusing:
		f.l.close()
	default:
		f.l.deadline(&f.l.inputBy, f.conf.Timeouts.Idle)
	}
}

func (f *front2) each(do func(user any)) { f.eachStream(func(st *stream2) { do(st.user) }) }

func (f *front2) expired(output bool) {
	if !output && !f.heading && f.m.Streams() > 0 {
		return
	}
	f.failAll(ErrTimeout)
	if output {
		f.emit(Stuck, nil)
		f.l.abort()
		return
	}
	if f.heading {
		f.refused(Refusal(http1.Incomplete), 1, 0)
	}
	f.leave()
	f.l.close()
}

func (f *front2) failed(err error) { f.failAll(err) }
