package proxy

import (
	"bytes"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/semantics"
)

// shielding is an exchange whose messages a firewall evaluates: the methods are of this file. A message waits meanwhile, and the loop does
// not: the rules run on a goroutine of their own.
type shielding struct{ *exchange }

// shielded is the evaluation of an exchange. It ends with the exchange.
type shielded struct {
	*waf.Evaluation
	f          *waf.Firewall
	up, down   shieldState
	reason     []byte // for the access log
	downBefore bool   // the response of an attempt was begun: rules evaluate one

	// Where a request goes on.
	rest routed

	// Of a response that waits: its header, the content so far, and its end.
	message, out *semantics.Message
	ending       side.Ending
	body         []byte
	ended        bool
	trailers     []semantics.Field
}

// routed is a request of which a rule is known.
type routed struct {
	path, query string
	client      netip.Addr
}

// shieldState is the event that a message waits for.
type shieldState uint8

const (
	shieldPasses  shieldState = iota // for nothing
	shieldGathers                    // for its content
	shieldJudges                     // for a goroutine
)

// Failures of exchanges that a firewall ends.
var (
	errShieldFailed   = errUnavailable
	errShieldContent  = errBody
	errShieldResponse = &failure{status: 502, name: "http_request_denied", class: errForbidden.class}
)

// evaluate evaluates the header of a request: serveRule goes on later, or the request is answered.
func (x shielding) evaluate() {
	s, f := x.shield, x.shield.f
	r := &waf.Request{Client: x.client.addr, Server: x.client.at.current.Address, Protocol: x.caps.Protocol}
	if x.caps.Direct != nil {
		_, m := x.caps.Direct.Plain()
		m.KeepHead(true)
		r.ParseHead(m.Head())
	} else {
		r.SetFields(x.request)
	}
	if x.request.ContentLength > int64(f.Content) && f.Reject {
		s.Excess()
		x.refuse("waf content", errShieldContent)
		return
	}
	ends := x.up.message == allArrived && len(x.up.held) == 0 || isTunnel(x.request) || isStream(x.request.Fields)
	x.judge(func(t waf.Transaction) waf.Verdict { return t.Request(r, ends) }, func(v *waf.Verdict) {
		if v.Content && !ends {
			x.gather()
			return
		}
		x.admit()
	})
}

// judge has a goroutine evaluate a request. then is called with a verdict by which it goes on.
func (x shielding) judge(f func(waf.Transaction) waf.Verdict, then func(v *waf.Verdict)) {
	s := x.shield
	s.up = shieldJudges
	result := s.Do(f, x.w.Loop.Do, func(r waf.Result) {
		x.w.Enter()
		x.waits, x.hold.until, x.hold.late = nil, clock.Never, nil
		x.on(admitted)
		x.judged(r, then)
	})
	if result != waf.Evaluated {
		x.judged(result, then)
		return
	}
	x.waits = s
	x.guarding().holding()
	x.guarding().holdUntil(s.f.Timeout, func(guarding) {
		s.TimedOut()
		x.on(admitted)
		x.hold.until, x.hold.late = clock.Never, nil
		x.failed("waf timeout")
	})
}

// judged goes on with a request by the result of an evaluation.
func (x shielding) judged(r waf.Result, then func(v *waf.Verdict)) {
	s := x.shield
	v := s.Verdict()
	switch {
	case r != waf.Evaluated:
		x.failed(failedShields[r])
		return
	case v.Status > 0:
		s.reason = v.AppendReason(s.reason[:0])
		x.refuse("", errForbidden.withStatus(v.Status))
		return
	}
	s.reason = v.AppendReason(s.reason[:0])
	then(v)
}

// failedShields are the reasons of results without a verdict.
var failedShields = map[waf.Result]string{waf.Overload: "waf overload", waf.Panicked: "waf failure"}

// failed goes on without a verdict: a firewall that prevents lets nothing through that it has not seen.
func (x shielding) failed(reason string) {
	s := x.shield
	s.Close()
	s.reason = append(s.reason[:0], reason...)
	if s.f.Mode == waf.Prevent {
		x.refuse("", errShieldFailed)
		return
	}
	x.admit()
}

// refuse answers the request. reason is that of the access log, where there is none yet.
func (x shielding) refuse(reason string, f *failure) {
	s := x.shield
	if s.up = shieldPasses; reason != "" {
		s.reason = append(s.reason[:0], reason...)
	}
	x.answer(f)
}

func (x shielding) guarding() guarding { return guarding{x.exchange} }

// withdraw implements awaited: the exchange has ended, or waits no more.
func (s *shielded) withdraw(*exchange) { s.Close() }

// admit has the request go on to what its rule does.
func (x shielding) admit() {
	s := x.shield
	s.up = shieldPasses
	serveRule(x.exchange, s.rest.path, s.rest.query, s.rest.client)
}

// gather waits for the content of the request, as far as rules see it. What has come before the verdict on the header is held already.
func (x shielding) gather() {
	s := x.shield
	s.up = shieldGathers
	x.hold.until = clock.Never
	x.outgoing = *x.request
	x.on(halted)
	x.progress = x.w.Now
	x.deadline()
	if x.up.message == allArrived || len(x.up.held) > s.f.Content {
		x.judgeContent()
		return
	}
	if x.expects { // else the client would wait for this, and the gateway for the content
		_ = x.front.Head(&continue100, side.EndsLater)
	}
	if x.up.paused {
		x.up.paused = false
		x.up.from.Pause(false)
	}
}

// requestContent gathers content of a request, and reports whether it passes on as other content does.
func (x shielding) requestContent(p []byte) bool {
	if x.shield.up != shieldGathers {
		return true
	}
	if x.up.hold(x.w, p); len(x.up.held) > x.shield.f.Content {
		x.judgeContent()
	}
	return false
}

// requestEnd evaluates the content of a request that was gathered, and reports whether there is none.
func (x shielding) requestEnd(trailers []semantics.Field) bool {
	if x.shield.up != shieldGathers {
		return true
	}
	x.up.trailers, x.up.message = trailers, allArrived
	x.judgeContent()
	return false
}

// judgeContent evaluates the content that was gathered.
func (x shielding) judgeContent() {
	s := x.shield
	x.on(admitted)
	p := x.up.held
	if len(p) > s.f.Content {
		if s.f.Reject {
			s.Excess()
			x.refuse("waf content", errShieldContent)
			return
		}
		p = p[:s.f.Content]
	}
	p = bytes.Clone(p) // the loop appends to it, and may give it back
	if x.up.trailers != nil {
		x.up.trailers = cloneFields(x.up.trailers)
	}
	x.judge(func(t waf.Transaction) waf.Verdict { return t.Content(p) }, func(*waf.Verdict) { x.admit() })
}

// leave ends the evaluation with the exchange.
func (x shielding) leave() {
	s := x.shield
	s.Close()
	x.w.PutBuffer(&s.body)
	x.shield = nil
}

// watches reports whether content of a direction has to pass here.
func (s *shielded) watches(response bool) bool {
	if response {
		return s.down != shieldPasses
	}
	return s.up != shieldPasses
}
