package proxy

import (
	"errors"
	"strconv"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// front1 is a client's connection with HTTP/1.1.
type front1 struct {
	conn1
	conf    *Conf
	request request1
	old     bool // the request has HTTP/1.0
	expect  bool // the client waits for 100 (Continue)
	leaving bool // no request follows the one in progress
	dropped int  // bytes of a request that was answered
}

// request1 is how far the request is.
type request1 uint8

const (
	rested    request1 = iota // there is none
	idle1                     // as rested, but the buffers of the machine have not been given back
	heading                   // its header arrives
	receiving                 // its content arrives
	bodiless                  // it has none: its end follows
	arrived                   // it is complete
	dropping                  // its content arrives and is dropped: it was answered
)

// maxDropped bounds what is read of a request that was answered. Beyond it the connection is closed.
const maxDropped = 256 << 10

// newFront1 has HTTP/1.1 on a link. It calls nothing of the owner.
func newFront1(l *link, o http1.Options, conf *Conf, owner Owner) *front1 {
	f := &front1{conf: conf, conn1: conn1{l: l, m: http1.NewMachine(http1.RoleServer, o), owner: owner}}
	f.ev.Stream, f.ev.Caps = f, Caps{Protocol: "HTTP/1.1", Direct: f}
	l.session = f
	l.deadline(&l.inputBy, conf.Timeouts.Header) // of the first request
	return f
}

func (f *front1) input(p []byte, fin bool) (taken int) {
	if len(p) > 0 && f.request <= idle1 {
		f.request = heading
		f.l.deadline(&f.l.inputBy, f.conf.Timeouts.Header)
	}
	for f.l.demand != paused && f.l.open() {
		if f.user != nil && f.request == arrived && f.m.Idle() {
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
			if fin && f.user == nil {
				f.l.close()
			}
			return taken
		case http1.Headers:
			f.begin()
		case http1.Data:
			f.progress()
			f.content(ev.Payload)
		case http1.Trailers:
		case http1.End:
			f.ended()
		}
	}
	return taken
}

// begin reports a request.
func (f *front1) begin() {
	m := f.m.Message()
	f.request, f.state, f.tunnel = receiving, noResponse, false
	f.expect, f.old = m.Expect100, m.Minor == 0
	if f.leaving {
		f.m.CloseAfter()
	}
	f.l.inputBy = clock.Never
	if m.Body != http1.NoBody {
		f.progress()
	}
	f.ev.Ending = EndsLater
	if m.Body == http1.NoBody && m.Protocol == "" {
		f.request, f.ev.Ending = bodiless, EndsNow
	}
	if f.ev.Caps.Protocol = "HTTP/1.1"; f.old {
		f.ev.Caps.Protocol = "HTTP/1.0"
	}
	f.ev.Message = &m.Message
	f.emit(Head)
}

// progress sets the deadline of the content.
func (f *front1) progress() {
	if f.tunnel {
		f.l.inputBy = clock.Never // the exchange has a time for both directions
		return
	}
	f.l.deadline(&f.l.inputBy, f.conf.Timeouts.Body)
}

// content reports content, or drops that of a request that was answered.
func (f *front1) content(p []byte) {
	if f.user != nil {
		f.data(p)
		return
	}
	if f.dropped += len(p); f.dropped > maxDropped {
		f.l.closeBy(closeLinger)
		f.l.close()
	}
}

// ended reports the end of a request.
func (f *front1) ended() {
	f.request = arrived
	if f.user == nil {
		f.next()
		return
	}
	f.l.inputBy = clock.Never
	f.ev.Trailers = f.m.Trailers()
	f.emit(End)
}

// malformed handles a request that cannot be understood, and closes.
func (f *front1) malformed(err error) {
	var e *http1.Error
	wrong := errors.As(err, &e)
	f.ev.Reason, f.ev.N, f.ev.Status = refusalOf(err), 1, 0
	if wrong && f.request != dropping { // otherwise its request was answered
		f.ev.Status = e.Status
	}
	f.emit(Refused)
	switch {
	case f.user != nil && !f.tunnel && f.state == noResponse && wrong: // within the content
		f.emit(Malformed)
	case f.user != nil, f.request == dropping: // its request was answered
		f.fail(err)
		f.l.abort()
	case wrong && e.Status != 0:
		f.refuse(e.Status)
	default:
		f.l.closeBy(closeLinger)
		f.l.close()
	}
}

// refuse answers a request whose header is not understood, and closes.
func (f *front1) refuse(status int) {
	b := strconv.AppendInt(append(f.l.buffer(), "HTTP/1.1 "...), int64(status), 10)
	b = append(append(append(b, ' '), semantics.Reason(status)...), "\r\nproxy-status: millrace; error=http_request_error"...)
	f.l.out = append(b, "\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"...)
	f.l.closeBy(closeLinger)
	f.l.close()
}

// Head implements Stream.
func (f *front1) Head(m *semantics.Message, e Ending) (err error) {
	switch f.tunnel = f.tunnel || m.Status == 101; {
	case m.Status == 100 && !f.expect, m.Status < 200 && f.old && !f.tunnel: // RFC 9110 15.2
		return nil
	case m.Status == 100:
		f.expect = false
	case f.tunnel:
		f.state = responseBegun
	case m.Status >= 200:
		f.state = responseBegun
		if f.request == receiving && (e == EndsNow || f.expect || f.m.Left() > maxDropped) {
			f.m.CloseAfter() // an early answer: what the client still sends is not waited for
		}
	}
	f.l.out, err = f.m.AppendResponse(f.l.buffer(), m, e == EndsNow)
	f.l.touch()
	return err
}

// End implements Stream.
func (f *front1) End(trailers []semantics.Field) {
	if err := f.finish(trailers); err != nil {
		f.Cancel(false)
		return
	}
	f.expect = false
}

// Cancel implements Stream. A client knows it only by the end of the connection.
func (f *front1) Cancel(bool) {
	f.l.closeBy(closeReset)
	f.l.close()
}

// Release implements Stream.
func (f *front1) Release() {
	stuck := f.detach()
	if !f.l.open() {
		return
	}
	switch {
	case f.tunnel: // what the client still sends would make the end a reset
		f.l.closeBy(closeLinger)
		f.l.close()
	case !stuck && (f.request == arrived || f.m.Idle()):
		f.next()
	case f.request == bodiless: // it was answered at once: the event End follows, and then the next request
	case stuck || !f.m.KeepAlive() || f.leaving || f.m.Left() > maxDropped:
		f.m.CloseAfter()
		f.l.closeBy(closeLinger)
		f.l.close()
	default: // the client still sends: it may have sent all by now, and begin another request
		f.request, f.dropped = dropping, 0
		f.progress()
		f.l.resume()
	}
}

// next waits for another request.
func (f *front1) next() {
	if !f.m.KeepAlive() || f.leaving {
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
	t := f.conf.Timeouts.Idle
	if f.request = rested; t == 0 || t > compactTime {
		f.request, t = idle1, compactTime
	}
	f.l.deadline(&f.l.inputBy, t)
}

// leave makes the request in progress the last.
func (f *front1) leave() { f.m.CloseAfter() }

// drain ends the connection after the request in progress, or now.
func (f *front1) drain() {
	f.leaving = true
	if f.user != nil || f.request == heading || f.request == dropping {
		f.m.CloseAfter()
		return
	}
	f.l.closeBy(closeLinger)
	if f.request == idle1 {
		f.request = rested
	}
	f.l.deadline(&f.l.inputBy, drainGrace) // a request may be on its way: begin makes it the last
}

func (f *front1) each(do func(user any)) {
	if f.user != nil {
		do(f.user)
	}
}

func (f *front1) expired(output bool) {
	switch {
	case !output && f.user != nil && f.l.demand == paused: // it is the gateway that does not read: the backend, or the exchange, has a time for that
		f.progress()
	case output || f.user != nil && f.state != noResponse:
		if output {
			f.emit(Stuck)
		}
		f.fail(ErrTimeout)
		f.l.abort()
	case f.user != nil:
		f.m.CloseAfter()
		f.emit(Late)
	case f.request == heading:
		f.ev.Reason, f.ev.N, f.ev.Status = Refusal(http1.Incomplete), 1, 408
		f.emit(Refused)
		f.refuse(408)
	case f.request == idle1:
		f.request = rested
		f.m.Compact()
		if t := f.conf.Timeouts.Idle; t > 0 {
			f.l.deadline(&f.l.inputBy, t-compactTime)
		}
	default:
		f.l.close()
	}
}

func (f *front1) failed(err error) { f.fail(err) }
