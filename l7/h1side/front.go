package h1side

import (
	"errors"
	"strconv"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Front is a client's connection with HTTP/1.1.
type Front struct {
	conn
	conf    *side.Conf
	Request requestState
	old     bool // the request has HTTP/1.0
	expect  bool // the client waits for 100 (Continue)
	leaving bool // no request follows the one in progress
	dropped int  // bytes of a request that was answered
}

// requestState is the progress of the request.
type requestState uint8

const (
	rested    requestState = iota // there is none
	idle                          // as rested, but the buffers of the machine have not been given back
	heading                       // its header arrives
	receiving                     // its content arrives
	bodiless                      // it has none: its end follows
	arrived                       // it is complete
	dropping                      // its content arrives and is dropped: it was answered
)

// maxDropped bounds what is read of a request that was answered. Beyond it the connection is closed: a new handshake costs less than
// reading gigabytes of an upload that was refused.
const maxDropped = 256 << 10

// NewFront has HTTP/1.1 on a link. It calls nothing of the owner.
func NewFront(l *link.Link, o http1.Options, conf *side.Conf, owner side.Owner) *Front {
	f := &Front{conf: conf, conn: conn{L: l, m: http1.NewMachine(http1.RoleServer, o), owner: owner}}
	f.ev.Stream, f.ev.Caps = f, side.Caps{Protocol: "HTTP/1.1", Direct: f}
	l.Session = f
	l.Deadline(&l.InputBy, conf.Timeouts.Header) // of the first request
	return f
}

// Input implements link.Session. One request is in progress at a time: what a client pipelines stays in the link until the response
// before has ended (RFC 9112 9.3.2), because responses must come in order, and one at a time needs no queue that a client could
// fill.
func (f *Front) Input(p []byte, fin bool) (taken int) {
	if len(p) > 0 && f.Request <= idle {
		f.Request = heading
		f.L.Deadline(&f.L.InputBy, f.conf.Timeouts.Header)
	}
	for f.L.Demand != link.Paused && f.L.Open() {
		if f.User != nil && f.Request == arrived && f.m.Idle() {
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
			if fin && f.User == nil {
				f.L.Close()
			}
			return taken
		case http1.Headers:
			f.begin()
		case http1.Data:
			f.Progress()
			f.content(ev.Payload)
		case http1.Trailers:
		case http1.End:
			f.ended()
		}
	}
	return taken
}

// begin reports a request.
func (f *Front) begin() {
	m := f.m.Message()
	f.Request, f.state, f.tunnel = receiving, noResponse, false
	f.expect, f.old = m.Expect100, m.Minor == 0
	if f.leaving {
		f.m.CloseAfter()
	}
	f.L.InputBy = clock.Never
	if m.Body != http1.NoBody {
		f.Progress()
	}
	f.ev.Ending = side.EndsLater
	if m.Body == http1.NoBody { // of an upgrade too: the bytes of the other protocol follow the answer
		f.Request, f.ev.Ending = bodiless, side.EndsNow
	}
	if f.ev.Caps.Protocol = "HTTP/1.1"; f.old {
		f.ev.Caps.Protocol = "HTTP/1.0"
	}
	f.ev.Message, f.ev.Expects = &m.Message, f.expect
	f.emit(side.Head)
}

// Progress sets the deadline of the content.
func (f *Front) Progress() {
	if f.tunnel {
		f.L.InputBy = clock.Never // the exchange has a time for both directions
		return
	}
	f.L.Deadline(&f.L.InputBy, f.conf.Timeouts.Body)
}

// content reports content, or drops that of a request that was answered.
func (f *Front) content(p []byte) {
	if f.User != nil {
		f.data(p)
		return
	}
	if f.dropped += len(p); f.dropped > maxDropped {
		f.L.CloseBy(link.Linger)
		f.L.Close()
	}
}

// ended reports the end of a request.
func (f *Front) ended() {
	f.Request = arrived
	if f.User == nil {
		f.next()
		return
	}
	f.L.InputBy = clock.Never
	f.ev.Trailers = f.m.Trailers()
	f.emit(side.End)
}

// malformed handles a request that cannot be understood, and closes. Where the message ends is not known then: the bytes after it
// could be read as a request that the client did not send (RFC 9112 11.2).
func (f *Front) malformed(err error) {
	var e *http1.Error
	wrong := errors.As(err, &e)
	f.ev.Reason, f.ev.N, f.ev.Status = side.RefusalOf(err), 1, 0
	if wrong && f.Request != dropping { // otherwise its request was answered
		f.ev.Status = e.Status
	}
	f.emit(side.Refused)
	switch {
	case f.User != nil && !f.tunnel && f.state == noResponse && wrong: // within the content
		f.emit(side.Malformed)
	case f.User != nil, f.Request == dropping: // its request was answered
		f.fail(err)
		f.L.Abort()
	case wrong && e.Status != 0:
		f.refuse(e.Status)
	default:
		f.L.CloseBy(link.Linger)
		f.L.Close()
	}
}

// refuse answers a request whose header is not understood, and closes.
func (f *Front) refuse(status int) {
	b := strconv.AppendInt(append(f.L.Buffer(), "HTTP/1.1 "...), int64(status), 10)
	b = append(append(append(b, ' '), semantics.Reason(status)...), "\r\nproxy-status: millrace; error=http_request_error"...)
	f.L.Out = append(b, "\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"...)
	f.L.CloseBy(link.Linger)
	f.L.Close()
}

// Head implements Stream.
func (f *Front) Head(m *semantics.Message, e side.Ending) (err error) {
	switch f.tunnel = f.tunnel || m.Status == 101; {
	case m.Status == 100 && !f.expect, m.Status < 200 && f.old && !f.tunnel: // RFC 9110 15.2
		return nil
	case m.Status == 100:
		f.expect = false
	case f.tunnel:
		f.state = responseBegun
		f.L.Resume() // what the client has sent ahead waits in the link
	case m.Status >= 200:
		f.state = responseBegun
		if f.Request == receiving && (e == side.EndsNow || f.expect || f.m.Left() > maxDropped) {
			// An early answer: what the client still sends is not waited for. Connection: close has to be in this header, as
			// it is too late to announce it afterwards (RFC 9112 9.6). A client that waits for 100 may or may not send the
			// content after a final status (RFC 9110 10.1.1): the next bytes would be either content or a request.
			f.m.CloseAfter()
		}
	}
	f.L.Out, err = f.m.AppendResponse(f.L.Buffer(), m, e == side.EndsNow)
	f.L.Touch()
	return err
}

// End implements Stream.
func (f *Front) End(trailers []semantics.Field) {
	if err := f.finish(trailers); err != nil {
		f.Cancel(false)
		return
	}
	f.expect = false
}

// Cancel implements Stream. A client knows it only by the end of the connection, which has to be a reset: a regular end is the end
// of the content where that has no length (RFC 9112 6.3).
func (f *Front) Cancel(bool) {
	f.L.CloseBy(link.Reset)
	f.L.Close()
}

// Release implements Stream.
func (f *Front) Release() {
	stuck := f.detach()
	if !f.L.Open() {
		return
	}
	switch {
	case f.tunnel: // what the client still sends would make the end a reset
		f.L.CloseBy(link.Linger)
		f.L.Close()
	case !stuck && (f.Request == arrived || f.m.Idle()):
		f.next()
	case f.Request == bodiless: // it was answered at once: the event End follows, and then the next request
	case stuck || !f.m.KeepAlive() || f.leaving || f.m.Left() > maxDropped:
		f.m.CloseAfter()
		f.L.CloseBy(link.Linger)
		f.L.Close()
	default: // the client still sends: it may have sent all by now, and begin another request
		f.Request, f.dropped = dropping, 0
		f.Progress()
		f.L.Resume()
	}
}

// next waits for another request.
func (f *Front) next() {
	if !f.m.KeepAlive() || f.leaving {
		if len(f.L.In) > 0 {
			f.L.CloseBy(link.Linger)
		}
		f.L.Close()
		return
	}
	f.wait()
	if f.L.Demand == link.Paused || len(f.L.In) > 0 || len(f.L.Raw) > 0 || f.L.Ended() {
		f.L.Resume()
	}
}

// wait sets the deadline of the next request. A connection that stays idle gives its buffers back first.
func (f *Front) wait() {
	t := f.conf.Timeouts.Idle
	if f.Request = rested; t == 0 || t > link.CompactTime {
		f.Request, t = idle, link.CompactTime
	}
	f.L.Deadline(&f.L.InputBy, t)
}

// Leave makes the request in progress the last.
func (f *Front) Leave() { f.m.CloseAfter() }

// Drain ends the connection after the request in progress, or now.
func (f *Front) Drain() {
	f.leaving = true
	if f.User != nil || f.Request == heading || f.Request == dropping {
		f.m.CloseAfter()
		return
	}
	f.L.CloseBy(link.Linger)
	if f.Request == idle {
		f.Request = rested
	}
	grace := side.DrainGrace // a request may be on its way: begin makes it the last
	if g := f.L.Runner.IdleGrace; g > grace {
		if grace = g; f.conf.Timeouts.Idle > 0 {
			grace = min(g, f.conf.Timeouts.Idle)
		}
	}
	f.L.Deadline(&f.L.InputBy, grace)
}

// Each calls do with what the owner keeps with each stream in use.
func (f *Front) Each(do func(user any)) {
	if f.User != nil {
		do(f.User)
	}
}

// Expired implements link.Session.
func (f *Front) Expired(output bool) {
	switch {
	case !output && f.User != nil && f.L.Demand == link.Paused: // it is the gateway that does not read: the backend, or the exchange, has a time for that
		f.Progress()
	case output || f.User != nil && f.state != noResponse:
		if output {
			f.emit(side.Stuck)
		}
		f.fail(side.ErrTimeout)
		f.L.Abort()
	case f.User != nil:
		f.m.CloseAfter()
		f.emit(side.Late)
	case f.Request == heading:
		f.ev.Reason, f.ev.N, f.ev.Status = side.Refusal(http1.Incomplete), 1, 408
		f.emit(side.Refused)
		f.refuse(408)
	case f.Request == idle:
		f.Request = rested
		f.m.Compact()
		if t := f.conf.Timeouts.Idle; t > 0 {
			f.L.Deadline(&f.L.InputBy, t-link.CompactTime)
		}
	default:
		f.L.Close()
	}
}

// Failed implements link.Session.
func (f *Front) Failed(err error) { f.fail(err) }
