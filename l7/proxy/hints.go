package proxy

import (
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// EarlyHints is an interim response that clients get while a backend works (RFC 8297). All requests share it: it is not changed.
type EarlyHints struct{ message semantics.Message }

// NewEarlyHints returns the response with values of Link.
func NewEarlyHints(links []string) *EarlyHints {
	h := &EarlyHints{semantics.Message{Status: 103, ContentLength: -1}}
	for _, l := range links {
		h.message.Fields = append(h.message.Fields, semantics.Field{Name: "link", Value: l})
	}
	return h
}

// hinting is an exchange whose rule has EarlyHints.
type hinting struct{ *exchange }

// send sends the hints: to GET by HTTP/2 and HTTP/3 alone, as some clients of HTTP/1.1 take an interim response for the final one (RFC
// 8297 3), and to none that loads a part of a page, which needs no other parts.
func (x hinting) send(h *EarlyHints) (ok bool) {
	if x.request.Method != "GET" || !x.caps.Shared || x.hold != nil && x.hold.kind == internalHold {
		return true
	}
	for i := range x.request.Fields {
		if f := &x.request.Fields[i]; f.Name == "sec-fetch-mode" && f.Value != "navigate" {
			return true
		}
	}
	x.w.counters.hints.Add(1)
	if err := x.front.Head(&h.message, side.EndsLater); err != nil {
		x.frontFailed()
		return false
	}
	return true
}
