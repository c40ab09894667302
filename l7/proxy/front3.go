package proxy

import (
	"errors"
	"net"
	"net/netip"
	"strings"
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
	l          *listening
	info       *clientInfo
	requests   int
	admitted   bool                      // by the listener's Admission
	priorities map[uint64]http3.Priority // of requests to come
	next       uint64                    // the ID after that of the last request
	early      bool                      // the handshake is not complete: requests may have been repeated
	phase      phase3                    // of the end
	by         clock.Time                // of the next phase, or of an idle connection's end
}

// phase3 is how far the end of a connection is.
type phase3 uint8

const (
	serving  phase3 = iota
	warned          // GOAWAY has been sent, but requests are taken that were under way
	leaving         // further requests are refused
	closing3        // all is sent
)

// accept3 takes a connection of a client.
func (w *Worker) accept3(l *listening, c *quicconn.Conn) quicconn.Handler {
	w.enter()
	ln := l.current
	w.counters.connections.Add(1)
	w.counters.open.Add(1)
	info := &clientInfo{at: l, listener: ln, tls: true}
	state := c.QUIC().State().TLS
	info.established(&state)
	if h, ok := c.QUIC().Attached().(*hello3); ok {
		info.ja4, info.alpn = h.ja4, h.alpn
	}
	f := &front3{l: l, info: info, conn3: w.newConn3(c, http3.NewMachine(http3.RoleServer, ln.HTTP3.Machine)), by: clock.Never, early: true}
	f.session = f
	w.fronts3[f] = struct{}{}
	if f.admitted = l.admit(); !f.admitted {
		f.close(http3.ExcessiveLoad, "", nil)
		return f.conn3
	}
	c.SetWriteTimeout(ln.Timeouts.Write, uint64(http3.RequestCancelled))
	f.rest()
	return f.conn3
}

func (f *front3) opened(st *stream3) bool {
	if f.phase >= leaving {
		return false // RFC 9114 5.2: it was not processed, so the client may send it again
	}
	f.next = st.s.ID() + 4
	f.arm(f.w.now.Add(f.interval()))
	return true
}

func (f *front3) message(st *stream3, ev *http3.Event) {
	switch ev.Kind {
	case http3.Headers:
		f.begin(st)
	case http3.TooLarge:
		f.tooLarge(st)
	case http3.Data:
		f.data(st, ev.Payload)
	case http3.End:
		st.arrived = true
		switch x := st.x; {
		case x == nil:
		case x.up.sent:
			x.finishIfDone()
		default:
			x.requestEnd(st.trailers())
		}
	}
}

// begin begins the exchange of a request.
func (f *front3) begin(st *stream3) {
	st.keepHeader()
	f.prioritise(st, st.h.Message.Fields)
	f.moved()
	ln, m := f.info.listener, &st.h.Message
	if f.requests++; ln.Limits.Requests > 0 && f.requests >= ln.Limits.Requests {
		f.drain()
	}
	x := f.w.newExchange(request3{st}, m)
	st.x = x
	f.c.SetWriteTimeout(f.info.listener.Timeouts.Write, uint64(http3.RequestCancelled))
	x.up.ended = st.last && m.ContentLength <= 0 // otherwise the content is missing, which the next event says
	st.expect = !st.last && expects(m.Fields)
	st.s.Watch()
	if f.early && !f.c.HandshakeComplete() {
		if !safe(m.Method) {
			x.answer(errTooEarly)
			return
		}
		m.Fields = append(m.Fields, semantics.Field{Name: "early-data", Value: "1"}) // RFC 8470 5.1
	} else {
		f.early = false
	}
	if ln.Limits.Body > 0 && m.ContentLength > ln.Limits.Body {
		x.answer(errBody)
		return
	}
	x.route()
}

// moved notes the client's address, which may change (RFC 9000 9).
func (f *front3) moved() {
	if a, ok := f.c.Remote().(*net.UDPAddr); ok {
		f.info.addr = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
}

// safe reports whether a method changes nothing (RFC 9110 9.2.1).
func safe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// expects reports whether the client waits for 100 (Continue).
func expects(fields []semantics.Field) bool {
	for i := range fields {
		if fields[i].Name == "expect" {
			return strings.EqualFold(fields[i].Value, "100-continue")
		}
	}
	return false
}

// tooLarge answers a request whose header is above the limit (RFC 6585 5).
func (f *front3) tooLarge(st *stream3) {
	f.w.refuseInput(f.info, "HTTP/3", errHeader.status, Refusal(http1.Size), 1)
	st.out = f.m.AppendResponse(st.output(), st.s.ID(), &semantics.Message{Status: errHeader.status, ContentLength: 0})
	st.fin = true
	st.end(http3.NoError)
	f.ended()
}

// data is content of a request. It borrows p.
func (f *front3) data(st *stream3, p []byte) {
	x := st.x
	if x == nil {
		return
	}
	if max := f.info.listener.Limits.Body; max > 0 && x.phase != tunnel && x.up.bytes+uint64(len(p)) > uint64(max) {
		x.abandon(errBody)
		return
	}
	x.requestData(p)
}

func (f *front3) broken(st *stream3, err error) {
	var malformed *http3.StreamError
	wrong := errors.As(err, &malformed)
	if st.x != nil {
		if wrong {
			f.w.refuse(f.info, RefusedMessage, 1)
		}
		st.x.frontFailed()
		return
	}
	if wrong {
		f.w.refuseInput(f.info, "HTTP/3", 0, RefusedMessage, 1)
	}
	st.end(http3.RequestCancelled)
	f.ended()
}

func (f *front3) writable(st *stream3) {
	if st.x != nil {
		st.x.frontWritable()
	}
}

func (f *front3) stopped(st *stream3, err error) {
	slow := errors.Is(err, quicconn.ErrWriteTimeout)
	if err := f.m.Cancelled(st.h, !slow); err != nil {
		f.fail(err)
		return
	}
	if st.x != nil && slow {
		st.x.abandon(errWriteTimeout)
		return
	}
	if st.x != nil {
		st.x.frontFailed()
		return
	}
	st.end(http3.RequestCancelled)
	f.ended()
}

func (f *front3) lost(err error) {
	var e *http3.ConnError
	if errors.As(err, &e) {
		f.w.refuseInput(f.info, "HTTP/3", 0, RefusedProtocol, 1)
	}
	for len(f.streams) > 0 {
		st := f.streams[len(f.streams)-1]
		st.mute, st.arrived = true, true
		if st.x != nil {
			st.x.frontFailed()
		} else {
			st.end(http3.NoError)
		}
	}
	f.w.counters.open.Add(-1)
	if f.admitted {
		f.l.admission.leave()
	}
	delete(f.w.fronts3, f)
	if f.info.owns != nil {
		f.w.disown(f.info)
	}
}

// ended is called when a request has ended.
func (f *front3) ended() {
	if len(f.streams) > 0 || f.closed {
		return
	}
	if f.phase == leaving {
		f.linger()
		return
	}
	f.rest()
}

// rest sets the deadline of a connection without requests.
func (f *front3) rest() {
	if f.phase == serving {
		if f.by = clock.Never; f.info.listener.Timeouts.Idle > 0 {
			f.by = f.w.now.Add(f.info.listener.Timeouts.Idle)
		}
		f.arm(f.by)
	}
}

// drain ends the connection after the requests in progress. First the client is told that the end is near: what it has sent
// by the time that it knows is still served (RFC 9114 5.2).
func (f *front3) drain() {
	if f.phase != serving {
		return
	}
	f.phase = warned
	f.m.GoAway(http3.MaxRequestID)
	f.touch()
	f.by = f.w.now.Add(min(2*f.c.QUIC().Stats().SmoothedRTT+tick, time.Second))
	f.arm(f.by)
}

// leave refuses further requests.
func (f *front3) leave() {
	f.phase, f.by = leaving, clock.Never
	f.m.GoAway(f.next)
	f.touch()
	f.ended()
}

// linger gives the last response the time to arrive: closing a connection of QUIC abandons what is under way. A client that
// has nothing left to receive closes by itself.
func (f *front3) linger() {
	f.phase = closing3
	f.by = f.w.now.Add(min(max(3*f.c.QUIC().Stats().SmoothedRTT, 50*time.Millisecond), time.Second))
	f.arm(f.by)
}

// interval is how often the deadlines of headers are looked at.
func (f *front3) interval() time.Duration {
	t := f.info.listener.Timeouts.Header
	if t == 0 {
		t = time.Hour
	}
	return max(t/4, tick)
}

func (f *front3) passed() {
	now := f.w.now
	if f.by <= now {
		f.by = clock.Never
		switch f.phase {
		case serving:
			if len(f.streams) == 0 {
				f.drain()
			}
		case warned:
			f.leave()
		case closing3:
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
	if t := f.info.listener.Timeouts.Header; st.x == nil && t > 0 && f.w.now >= st.since.Add(t) {
		f.w.refuseInput(f.info, "HTTP/3", 0, Refusal(http1.Incomplete), 1)
		st.end(http3.RequestIncomplete)
		f.ended()
	}
}

// request3 is a request of a client on a stream: the exchange's side of it.
type request3 struct{ *stream3 }

func (r request3) f() *front3          { return r.conn.session.(*front3) }
func (r request3) client() *clientInfo { return r.f().info }

func (r request3) protocol() string { return "HTTP/3" }

func (r request3) proceed() {
	if r.expect {
		r.expect = false
		_ = r.head(&continue100, false)
	}
}

func (r request3) head(m *semantics.Message, end bool) error {
	st := r.stream3
	if st.mute {
		return nil // the end of the exchange follows
	}
	st.out = st.conn.m.AppendResponse(st.output(), st.s.ID(), m)
	if m.Status >= 200 {
		st.fin, st.expect = end, false
		st.reprioritise(m.Fields)
	}
	return nil
}

func (r request3) end(trailers []semantics.Field) { r.finish(trailers) }

// cancel ends the stream. A response that is complete stays so: only the rest of the request is of no use then.
func (r request3) cancel() {
	code := http3.InternalError
	if r.x != nil && r.x.canceled {
		code = http3.RequestCancelled
	}
	if st := r.stream3; !st.fin {
		st.abort(code)
	}
}

// release ends the exchange. What the client still sends is of no use (RFC 9114 4.1.1).
func (r request3) release() {
	st := r.stream3
	f := r.f()
	code := http3.NoError
	if !st.fin {
		code = http3.RequestCancelled
	}
	st.end(code)
	f.ended()
}
