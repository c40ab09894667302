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
	info     *clientInfo
	free     *stream2 // for use again
	requests int
	allowance
	warned    bool   // GOAWAY was sent without a last stream,
	leaving   bool   // and with it
	heading   bool   // the deadline of a header runs
	malformed uint64 // of the machine's requests, as far as they are counted
}

// stream2 is a request of a client on one stream.
type stream2 struct {
	flow2
	f       *front2
	next    *stream2
	arrived bool // the request has arrived as a whole
	expect  bool // the client waits for 100 (Continue)
}

func newFront2(l *link, info *clientInfo) {
	f := &front2{info: info, conn2: conn2{
		l: l, m: http2.NewMachine(http2.RoleServer, *info.listener.HTTP2), goOn: (*exchange).frontWritable,
	}}
	l.session = f
	l.deadline(&l.inputBy, info.listener.Timeouts.Idle)
	f.control()
	if info.at.draining() {
		f.drain()
	}
}

func (f *front2) input(p []byte, fin bool) (taken int) {
	f.allowance.grant(f.m, f.l.w.now)
	for f.l.open() {
		ev, n, err := f.m.Input(p[taken:])
		taken += n
		if err != nil {
			f.l.w.refuseInput(f.info, "HTTP/2", 0, refusalOf(err), 1)
			f.control()
			f.l.closeBy(closeLinger)
			f.failAll()
			f.l.close()
			return len(p)
		}
		if ev.Kind == http2.NeedInput {
			break
		}
		f.handle(&ev)
	}
	f.control()
	f.boundHeader()
	if n := f.m.Malformed(); n > f.malformed {
		f.l.w.refuseInput(f.info, "HTTP/2", 0, RefusedMessage, n-f.malformed)
		f.malformed = n
	}
	if fin {
		f.failAll()
		f.l.close()
	}
	return len(p)
}

// boundHeader has the deadline of a header run while one is being received. No other frame can arrive meanwhile.
func (f *front2) boundHeader() {
	in := f.m.InHeader()
	if in == f.heading || !f.l.open() {
		return
	}
	f.heading = in
	t := &f.info.listener.Timeouts
	switch {
	case in && t.Header > 0:
		f.l.deadline(&f.l.inputBy, t.Header)
	case !in && f.m.Streams() > 0:
		f.l.inputBy = clock.Never
	case !in:
		f.l.deadline(&f.l.inputBy, t.Idle)
	}
}

// handle acts on an event.
func (f *front2) handle(ev *http2.Event) {
	if ev.Kind == http2.Headers {
		f.begin(ev.Stream)
		return
	}
	if ev.Kind == http2.PeerSettings || ev.Kind == http2.Window && ev.Stream == nil { // RFC 9113 6.9.2
		f.unblock()
		return
	}
	if ev.Stream == nil {
		return
	}
	st, _ := ev.Stream.User.(*stream2)
	switch ev.Kind {
	case http2.TooLarge:
		f.tooLarge(ev.Stream)
		return
	case http2.Data:
		if st == nil || st.x == nil {
			f.m.Consumed(ev.Stream, len(ev.Payload))
			return
		}
		st.data(ev.Payload)
		return
	}
	if st == nil {
		if ev.Kind == http2.Failed {
			f.m.Release(ev.Stream)
		}
		return
	}
	switch ev.Kind {
	case http2.End:
		st.arrived = true
		if x := st.x; x != nil {
			if x.up.sent {
				x.finishIfDone()
			} else {
				x.requestEnd(ev.Stream.Trailers)
			}
		}
	case http2.Failed:
		st.arrived = true
		if st.x != nil {
			st.x.frontFailed()
		}
	case http2.Window:
		if st.x != nil {
			st.x.frontWritable()
		}
	}
}

// begin begins the exchange of a request.
func (f *front2) begin(s *http2.Stream) {
	st := f.free
	if st == nil {
		st = &stream2{}
	} else {
		f.free = st.next
	}
	*st = stream2{f: f, flow2: flow2{c: &f.conn2, s: s, left: -1}}
	s.User = st
	ln := f.info.listener
	if f.requests++; ln.Limits.Requests > 0 && f.requests >= ln.Limits.Requests {
		f.leave()
	}
	f.l.inputBy, f.heading = clock.Never, false // exchanges have deadlines of their own
	x := f.l.w.newExchange(st, &s.Message)
	st.x = x
	if f.m.EndFollows(s) {
		x.up.ended = true
	} else {
		st.expect = expects(s.Message.Fields)
	}
	if ln.Limits.Body > 0 && s.Message.ContentLength > ln.Limits.Body {
		x.answer(errBody)
		return
	}
	x.route()
}

// tooLarge answers a request whose header is above the limit (RFC 6585 5).
func (f *front2) tooLarge(s *http2.Stream) {
	f.l.w.refuseInput(f.info, "HTTP/2", errHeader.status, Refusal(http1.Size), 1)
	m := semantics.Message{Status: errHeader.status, ContentLength: 0}
	f.l.out, _ = f.m.AppendResponse(f.output(), s, &m, true)
	f.m.Release(s)
}

// leave says that the connection takes no more requests.
func (f *front2) leave() {
	if !f.leaving {
		f.leaving = true
		if !f.warned {
			f.m.Shutdown()
		}
		f.m.GoAway(http2.NoError)
		f.control()
	}
}

// data is content of the request. It borrows p.
func (st *stream2) data(p []byte) {
	x := st.x
	if max := st.f.info.listener.Limits.Body; max > 0 && x.phase != tunnel && x.up.bytes+uint64(len(p)) > uint64(max) {
		st.f.m.Consumed(st.s, len(p))
		x.abandon(errBody)
		return
	}
	x.requestData(p)
	st.consumed(len(p))
}

func (st *stream2) protocol() string { return "HTTP/2" }

func (st *stream2) client() *clientInfo { return st.f.info }

func (st *stream2) proceed() {
	if st.expect {
		st.expect = false
		_ = st.head(&continue100, false)
	}
}

func (st *stream2) head(m *semantics.Message, end bool) error {
	f := st.f
	if m.Status >= 200 && m.ContentLength > 0 && st.x.exact {
		st.left = m.ContentLength
	}
	var err error
	f.l.out, err = f.m.AppendResponse(f.output(), st.s, m, end)
	return err
}

func (st *stream2) cancel() {
	code := http2.InternalError
	if st.x != nil && st.x.canceled {
		code = http2.Cancel
	}
	st.f.m.Reset(st.s, code)
	st.f.control()
}

func (st *stream2) release() {
	f, s := st.f, st.s
	if s == nil {
		return
	}
	if !st.arrived && s.Ended() {
		f.m.Reset(s, http2.NoError) // RFC 9113 8.1: the rest of the request is of no use
	}
	st.x, st.s = nil, nil
	s.User = nil
	f.m.Release(s)
	f.control()
	if !st.waiting {
		st.next, f.free = f.free, st
	}
	if f.m.Streams() == 0 && f.l.open() {
		if f.leaving {
			f.l.close()
			return
		}
		f.l.deadline(&f.l.inputBy, f.info.listener.Timeouts.Idle)
	}
}

// failAll ends all exchanges: the client is gone.
func (f *front2) failAll() {
	f.m.Each(func(s *http2.Stream) {
		if st, ok := s.User.(*stream2); ok && st.x != nil {
			st.x.frontFailed()
		}
	})
}

// drain has the client open no more streams, and ends the connection after those that are open. What the client has sent by the
// time that it knows is still served (RFC 9113 6.8).
func (f *front2) drain() {
	if f.leaving || f.warned {
		return
	}
	f.warned = true
	f.l.closeBy(closeLinger)
	f.m.Shutdown()
	f.control()
	f.l.w.after(drainGrace, f)
}

// fired ends the time of drain.
func (f *front2) fired() {
	if !f.l.open() {
		return
	}
	f.leave()
	if f.m.Streams() == 0 {
		f.l.close()
	}
}

func (f *front2) writable() { f.unblock() }

func (f *front2) expired(output bool) {
	if !output && !f.heading && f.m.Streams() > 0 {
		return
	}
	f.failAll()
	if output {
		f.l.w.counters.writeTimeouts.Add(1)
		f.l.abort()
		return
	}
	if f.heading {
		f.l.w.refuseInput(f.info, "HTTP/2", 0, Refusal(http1.Incomplete), 1)
	}
	f.leave()
	f.l.close()
}

func (f *front2) failed(error) { f.failAll() }
