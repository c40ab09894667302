package proxy

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// front1 is a client's connection with HTTP/1.1.
type front1 struct {
	l        *link
	m        *http1.Machine
	x        *exchange // in progress
	info     *clientInfo
	requests int
	arrived  bool // the request has arrived as a whole,
	answered bool // and so was the response sent
	tunnel   bool // the connection carries another protocol: the machine forgets it at the end of the input
	heading  bool // the deadline of the header runs
	idle     bool // no request is in progress, and compact is next
	old      bool // the request has HTTP/1.0
	expect   bool // the client waits for 100 (Continue)
	dropping bool // what the client still sends of a request that was answered is dropped,
	dropped  int  // so many bytes
}

// maxDropped bounds what is read of a request that was answered. Beyond it the connection is closed.
const maxDropped = 256 << 10

func newFront1(l *link, info *clientInfo) {
	o := *info.listener.HTTP1
	if info.tls {
		o.Scheme = "https"
	}
	f := &front1{l: l, info: info, m: http1.NewMachine(http1.RoleServer, o)}
	l.session = f
	l.deadline(&l.inputBy, info.listener.Timeouts.Header) // of the first request
	if info.at.draining() {
		f.drain()
	}
}

func (f *front1) input(p []byte, fin bool) (taken int) {
	if !f.heading && f.x == nil && !f.dropping && len(p) > 0 {
		f.heading, f.idle = true, false
		f.l.deadline(&f.l.inputBy, f.info.listener.Timeouts.Header)
	}
	for f.l.demand != paused && f.l.stage != linkClosing {
		if f.x != nil && f.arrived && f.m.Idle() {
			// The response was complete with its header, and the end of the backend's is still to come. It must not meet the
			// next request, whose response it would end.
			if fin && taken == len(p) {
				f.m.CloseAfter()
			}
			return taken
		}
		ev, n, err := f.m.Input(p[taken:], fin)
		taken += n
		if err != nil {
			f.malformed(err)
			return len(p)
		}
		switch ev.Kind {
		case http1.NeedInput:
			if fin && f.x == nil {
				f.l.close()
			}
			return taken
		case http1.Headers:
			f.begin()
		case http1.Data:
			f.progress()
			f.requestData(ev.Payload)
			if f.x != nil && f.m.Left() >= bypassLeast {
				f.x.startBypass(&f.x.up)
			}
		case http1.Trailers:
		case http1.End:
			f.requestEnd(f.m.Trailers())
		}
	}
	return taken
}

// begin begins the exchange of a request.
func (f *front1) begin() {
	m := f.m.Message()
	f.heading, f.arrived, f.answered, f.tunnel, f.expect = false, false, false, false, m.Expect100
	f.old = m.Minor == 0
	f.requests++
	ln := f.info.listener
	if ln.Limits.Requests > 0 && f.requests >= ln.Limits.Requests || f.info.at.draining() {
		f.m.CloseAfter()
	}
	if m.Body == http1.NoBody {
		f.l.inputBy = clock.Never
	} else {
		f.progress()
	}
	x := f.l.w.newExchange(f, &m.Message)
	f.x = x
	if m.Body == http1.NoBody && m.Protocol == "" {
		x.up.ended = true // the event End follows
	}
	if ln.Limits.Body > 0 && m.ContentLength > ln.Limits.Body {
		x.answer(errBody)
		return
	}
	x.route()
}

// progress sets the deadline of the content.
func (f *front1) progress() {
	if f.tunnel {
		f.l.inputBy = clock.Never // the exchange has a time for both directions
		return
	}
	f.l.deadline(&f.l.inputBy, f.info.listener.Timeouts.Body)
}

func (f *front1) requestData(p []byte) {
	x := f.x
	if x == nil {
		if f.dropped += len(p); f.dropped > maxDropped {
			f.l.closeBy(closeLinger)
			f.l.close()
		}
		return
	}
	if max := f.info.listener.Limits.Body; max > 0 && !f.tunnel && x.up.bytes+uint64(len(p)) > uint64(max) {
		if x.phase.answered() {
			x.frontFailed()
			f.l.abort()
			return
		}
		f.m.CloseAfter()
		x.abandon(errBody)
		return
	}
	x.requestData(p)
}

func (f *front1) requestEnd(trailers []semantics.Field) {
	f.arrived, f.dropping = true, false
	if f.x == nil {
		f.next()
		return
	}
	f.l.inputBy = clock.Never
	if f.x.outgoing.Protocol != "" && !f.tunnel {
		return // the bytes of the other protocol follow
	}
	if f.x.up.sent { // it was sent with the header
		f.x.finishIfDone()
		return
	}
	f.x.requestEnd(trailers)
}

// malformed answers a request that cannot be understood, and closes.
func (f *front1) malformed(err error) {
	var e *http1.Error
	if x := f.x; x != nil { // within the content
		f.l.w.refuse(f.info, refusalOf(err), 1)
		if f.tunnel || x.phase.answered() || !errors.As(err, &e) {
			x.frontFailed()
			f.l.abort()
			return
		}
		x.abandon(&failure{status: e.Status, name: errRequest.name})
		return
	}
	status := 0
	if errors.As(err, &e) && !f.dropping { // otherwise its request was answered
		status = e.Status
	}
	f.l.w.refuseInput(f.info, f.protocol(), status, refusalOf(err), 1)
	if f.dropping {
		f.l.abort()
		return
	}
	f.refuse(status)
}

// refuse closes the connection, after an answer if there is a status for it.
func (f *front1) refuse(status int) {
	if f.l.closeBy(closeLinger); status != 0 {
		f.l.out = appendRefusal(f.l.buffer(), status)
	}
	f.l.close()
}

func (f *front1) protocol() string {
	if f.old {
		return "HTTP/1.0"
	}
	return "HTTP/1.1"
}

func (f *front1) client() *clientInfo { return f.info }

func (f *front1) proceed() {
	if !f.expect || f.answered {
		return
	}
	f.expect = false
	f.l.out, _ = f.m.AppendResponse(f.l.buffer(), &continue100, false)
	f.l.touch()
}

var continue100 = semantics.Message{Status: 100, ContentLength: -1}

func (f *front1) head(m *semantics.Message, end bool) error {
	if f.tunnel = f.tunnel || m.Status == 101; m.Status < 200 && f.old && !f.tunnel {
		return nil // RFC 9110 15.2
	}
	if m.Status >= 200 && !f.arrived && f.x != nil && !f.x.up.ended && (end || f.expect || f.m.Left() > maxDropped) {
		f.m.CloseAfter() // an early answer: what the client still sends is not waited for
	}
	out, err := f.m.AppendResponse(f.l.buffer(), m, end)
	f.l.out = out
	f.l.touch()
	return err
}

func (f *front1) write(p []byte) int { return f.l.content(f.m, f.tunnel, p) }

func (f *front1) end(trailers []semantics.Field) {
	if f.tunnel {
		f.l.closeWrite()
		return
	}
	var err error
	if f.l.out, err = f.m.AppendEnd(f.l.buffer(), trailers); err != nil {
		f.cancel()
		return
	}
	f.answered = true
	f.l.touch()
}

func (f *front1) pause()  { f.l.pause() }
func (f *front1) resume() { f.l.resume() }

// cancel ends a response that is not complete. A client knows it only by the end of the connection.
func (f *front1) cancel() { f.l.closeBy(closeReset); f.l.close() }

// release ends the exchange.
func (f *front1) release() {
	bodiless := f.x != nil && f.x.up.ended && !f.arrived
	stuck := f.l.bypass != nil && f.l.moves == moveHolding // the loop holds content for the backend, which must not get into another request
	f.x, f.l.bypass = nil, nil
	if !f.l.open() {
		return
	}
	switch {
	case f.tunnel:
		f.l.close()
	case !stuck && (f.arrived || f.m.Idle()):
		f.next()
	case bodiless: // it was answered at once: the event End follows, and then the next request
	case stuck || !f.m.KeepAlive() || f.info.at.draining() || f.m.Left() > maxDropped:
		f.m.CloseAfter()
		f.l.closeBy(closeLinger)
		f.l.close()
	default: // the client still sends: it may have sent all by now, and begin another request
		f.dropping, f.dropped = true, 0
		f.progress()
		f.l.resume()
	}
}

// next waits for another request.
func (f *front1) next() {
	if !f.m.KeepAlive() || f.info.at.draining() {
		if len(f.l.in) > 0 {
			f.l.closeBy(closeLinger)
		}
		f.l.close()
		return
	}
	f.wait()
	if f.l.demand == paused || len(f.l.in) > 0 || len(f.l.raw) > 0 || f.l.ended() {
		f.l.resume()
	}
}

// wait sets the deadline of the next request. A connection that stays idle gives its buffers back first.
func (f *front1) wait() {
	t := f.info.listener.Timeouts.Idle
	f.idle = t == 0 || t > compactTime
	if f.idle {
		t = compactTime
	}
	f.l.deadline(&f.l.inputBy, t)
}

// drain ends the connection after the request in progress, or now.
func (f *front1) drain() {
	if f.x != nil || f.heading || f.dropping {
		f.m.CloseAfter()
		return
	}
	f.idle = false
	f.l.closeBy(closeLinger)
	f.l.deadline(&f.l.inputBy, drainGrace) // a request may be on its way: begin makes it the last
}

func (f *front1) writable() {
	if f.x != nil {
		f.x.frontWritable()
	}
}

func (f *front1) expired(output bool) {
	x := f.x
	switch {
	case !output && x != nil && f.l.demand == paused: // it is the gateway that does not read: the backend, or the exchange, has a time for that
		f.progress()
	case output || x != nil && x.phase.answered():
		if output {
			f.l.w.counters.writeTimeouts.Add(1)
		}
		if x != nil {
			x.frontFailed()
		}
		f.l.abort()
	case x != nil:
		f.m.CloseAfter()
		x.abandon(errRequestTimeout)
	case f.heading:
		f.l.w.refuseInput(f.info, f.protocol(), errRequestTimeout.status, Refusal(http1.Incomplete), 1)
		f.refuse(errRequestTimeout.status)
	case f.idle:
		f.idle = false
		f.m.Compact()
		if t := f.info.listener.Timeouts.Idle; t > 0 {
			f.l.deadline(&f.l.inputBy, t-compactTime)
		}
	default:
		f.l.close()
	}
}

func (f *front1) failed(error) {
	if f.x != nil {
		f.x.frontFailed()
	}
}
