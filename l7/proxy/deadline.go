package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// This file bounds the time of an exchange. It has one timer for all of its bounds: arming one for each would cost a request an
// operation of the wheel for each phase.

// deadline has the timer fire at the first of the exchange's bounds, or before: most bounds move on before they pass, and the
// timer with them only once it fires.
func (x *exchange) deadline() {
	if x.phase == done {
		return // the attempt has failed at once: the timer may serve another exchange by now
	}
	whole, attempt, idle := x.bounds()
	if by := min(whole, attempt, idle); by < x.armed {
		x.armed = by
		x.w.Wheel.Arm(x.timer, by)
	}
}

// bounds are the times at which the request as a whole, the attempt, and the wait for the next byte end. The pool's time for a
// response counts from the end of the request, however long that takes: nothing but the end sets progress then.
func (x *exchange) bounds() (whole, attempt, idle clock.Time) {
	whole, attempt, idle = clock.Never, clock.Never, clock.Never
	if r := x.rule; r != nil && x.phase != tunnel && x.phase != answering {
		if r.Request > 0 {
			whole = x.began.Add(r.Request)
		}
		switch waits := !x.phase.answered() && x.attempts > 0; {
		case x.phase == held:
			attempt = x.hold.until
		case waits && r.Attempt > 0:
			attempt = x.started.Add(r.Attempt)
		case x.phase == awaiting && x.pooled.Response > 0:
			attempt = x.progress.Add(x.pooled.Response)
		}
	}
	if t := x.idleTime(); t > 0 {
		idle = x.progress.Add(t)
	}
	return whole, attempt, idle
}

// idleTime returns the time that the exchange may go on without a byte in either direction, 0 for ever. Between the end
// of the request and the header of the response there is nothing to go on with. On a connection that requests share, a
// client that stops in the middle of one holds up nothing else: the connection has no deadline for it, as that of
// HTTP/1.1 has.
func (x *exchange) idleTime() (idle time.Duration) {
	t := &x.client.listener.Timeouts
	switch x.phase {
	case tunnel:
		if x.udp != nil {
			return x.udp.service.Idle
		}
		if x.session != nil {
			return x.session.idleTime()
		}
		return t.Tunnel
	case draining:
		if x.awaitsEnd() {
			return lateEnd
		}
		idle = x.pooled.Body
	case sending, responding:
		idle = x.pooled.Body
	}
	if !x.caps.Shared {
		return idle
	}
	shorten := func(by time.Duration) {
		if by > 0 && (idle == 0 || by < idle) {
			idle = by
		}
	}
	if x.stopped() {
		shorten(t.Body)
	}
	if len(x.down.held) > 0 {
		shorten(t.Write)
	}
	return idle
}

// stopped reports whether the exchange waits for content of the client, and the backend has not answered: it may have all that
// it wants of a request that goes on.
//
// Content that is paused waits for the backend, not for the client: a slow backend must not earn its client a 408.
func (x *exchange) stopped() bool {
	gathers := x.inspected != nil && x.inspected.up == holding || x.shield != nil && x.shield.up == shieldGathers
	waits := x.phase == held && !gathers // not for the client
	return !x.phase.answered() && !waits && x.up.message == flowing && !x.up.paused
}

// Fired is called at the deadline. The order of the cases decides who is at fault where several bounds have passed. A client that
// stops sending or taking comes first: the backend waits for it and must not be counted as slow, or clients could have backends
// ejected. Then come the bounds after which another attempt has no time left, and last those of the attempt, which may be retried.
func (x *exchange) Fired() {
	x.armed = clock.Never
	whole, attempt, idle := x.bounds()
	now := x.w.Now
	switch {
	case now < min(whole, attempt, idle):
		x.deadline()
	case x.awaitsEnd():
		x.giveUpEnd()
	case x.phase == tunnel && x.udp != nil:
		x.udp.idle()
	case x.phase == tunnel && x.session != nil && now >= idle:
		relayed{x}.idle()
	case x.phase == held && now >= attempt:
		guarding{x}.waitedTooLong()
	case now >= idle && x.stopped():
		x.abandon(errRequestTimeout)
	case now >= idle && len(x.down.held) > 0:
		x.w.counters.writeTimeouts.Add(1)
		x.abandon(errWriteTimeout)
	case now >= whole, now >= idle:
		x.abandon(errReadTimeout)
	case x.phase.connected():
		x.backFailed(errReadTimeout)
	default:
		x.backFailed(errConnectTimeout)
	}
}
