package proxy

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/semantics"
)

// uncoded has the backend send content as it is: rules read no coding. What the client accepts the gateway may still apply.
func (x shielding) uncoded() {
	if !x.shield.f.Responses {
		return
	}
	x.fields = slices.DeleteFunc(x.fields, func(f semantics.Field) bool { return f.Name == "accept-encoding" })
	x.fields = append(x.fields, semantics.Field{Name: "accept-encoding", Value: "identity"})
}

// evaluates reports whether responses are evaluated: those that a cache has must have been, too.
func evaluates(f *waf.Firewall) bool { return f != nil && f.Responses }

// responseHead evaluates the header of a response, and reports whether it passes on now. out is what the client gets.
//
// Rules evaluate one response. A second one, of another attempt, follows only where the first was evaluated in part.
func (x shielding) responseHead(m, out *semantics.Message, e side.Ending) bool {
	s := x.shield
	switch {
	case !s.f.Responses || out == &x.reply: // what follows in a tunnel is no content
		return true
	case s.downBefore || !s.Usable():
		return x.unseen()
	}
	s.downBefore = true
	s.message, s.out, s.ending, s.ended = m, out, e, false
	ends := e == side.EndsNow || bodiless(x.outgoing.Method, m.Status)
	r := &waf.Response{Status: m.Status, Protocol: x.caps.Protocol, Fields: waf.CloneFields(m.Fields)}
	if e != side.EndsNow {
		x.back.Pause(true)
	}
	x.judgeResponse(func(t waf.Transaction) waf.Verdict { return t.Response(r, ends) }, func(v *waf.Verdict) {
		if !v.Content || ends {
			x.release()
			return
		}
		if s.down = shieldGathers; s.ended || len(s.body) > s.f.Content {
			x.judgeResponseContent()
			return
		}
		x.back.Pause(false)
	})
	return false
}

// judgeResponse has a goroutine evaluate a response.
func (x shielding) judgeResponse(f func(waf.Transaction) waf.Verdict, then func(v *waf.Verdict)) {
	s := x.shield
	s.down = shieldJudges
	result := s.Do(f, x.w.Loop.Do, func(r waf.Result) {
		if x.shield != s || s.down != shieldJudges { // the attempt has failed meanwhile
			return
		}
		x.w.Enter()
		x.judgedResponse(r, then)
	})
	if result != waf.Evaluated {
		x.judgedResponse(result, then)
	}
}

// judgedResponse goes on with a response by the result of an evaluation.
func (x shielding) judgedResponse(r waf.Result, then func(v *waf.Verdict)) {
	s := x.shield
	v := s.Verdict()
	switch {
	case r != waf.Evaluated:
		s.reason = append(s.reason[:0], failedShields[r]...)
		if s.Close(); s.f.Mode == waf.Prevent {
			x.refuseResponse(errShieldResponse)
			return
		}
		x.release()
		return
	case v.Status > 0:
		s.reason = v.AppendReason(s.reason[:0])
		x.refuseResponse(errForbidden.withStatus(v.Status))
		return
	}
	s.reason = v.AppendReason(s.reason[:0])
	then(v)
}

// unseen handles a response that rules cannot evaluate, and reports whether it passes.
func (x shielding) unseen() bool {
	s := x.shield
	if s.f.Mode != waf.Prevent {
		return true
	}
	s.reason = append(s.reason[:0], "waf failure"...)
	x.refuseResponse(errShieldResponse)
	return false
}

// refuseResponse answers in place of the backend, of whose response nothing has left.
func (x shielding) refuseResponse(f *failure) {
	x.shield.down = shieldPasses
	x.abandon(f)
}

// responseContent gathers content of a response, and reports whether it passes on now.
func (x shielding) responseContent(p []byte) bool {
	s := x.shield
	if s.down == shieldPasses {
		return true
	}
	if s.body == nil {
		s.body = x.w.GetBuffer()
	}
	x.progress = x.w.Now
	if s.body = append(s.body, p...); s.down == shieldGathers && len(s.body) > s.f.Content {
		x.back.Pause(true)
		x.judgeResponseContent()
	}
	return false
}

// responseEnd notes the end of a response that waits, and reports whether there is none that waits.
func (x shielding) responseEnd(trailers []semantics.Field) bool {
	s := x.shield
	if s.down == shieldPasses {
		return true
	}
	s.ended, s.trailers = true, cloneFields(trailers)
	if s.down == shieldGathers {
		x.judgeResponseContent()
	}
	return false
}

// judgeResponseContent evaluates the content that was gathered: the beginning, where there is more than rules see.
func (x shielding) judgeResponseContent() {
	s := x.shield
	p := bytes.Clone(s.body[:min(len(s.body), s.f.Content)])
	x.judgeResponse(func(t waf.Transaction) waf.Verdict { return t.ResponseContent(p) }, func(*waf.Verdict) { x.release() })
}

// release passes a response on that has waited.
func (x shielding) release() {
	s := x.shield
	s.down = shieldPasses
	body := s.body
	s.body = nil
	sendHead(x.exchange, s.message, s.out, s.ending)
	if x.shield == s && x.back != nil && len(body) > 0 {
		passContent(x.exchange, body)
	}
	x.w.PutBuffer(&body)
	if x.shield != s || x.back == nil {
		return
	}
	if !x.down.paused {
		x.back.Pause(false)
	}
	if s.ended {
		x.exchange.responseEnd(s.trailers)
	}
}

// dropResponse forgets a response whose attempt has ended.
func (x shielding) dropResponse() {
	s := x.shield
	if s.down == shieldPasses {
		return
	}
	if s.down == shieldJudges {
		s.Close() // the goroutine ends what it has
	}
	s.down = shieldPasses
	x.w.PutBuffer(&s.body)
}
