package proxy

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// ForwardAuth asks a server whether a request is served: by a request of its own, which has the fields of the client's and no content.
// With a response 200 to 299 the request goes on, and gets fields of the response. Any other response is the client's.
type ForwardAuth struct {
	Rule *Rule    // its pool, and its time
	Path string   // with a query, if it has one
	Copy []string // fields of the response that the request gets; those of the client are removed
	// Send are the fields of the request that the server gets; nil is all.
	Send []string
}

// maxAnswer bounds the content of the server's response.
const maxAnswer = 64 << 10

// Names implements Authority.
func (f *ForwardAuth) Names() []string { return f.Copy }

func (f *ForwardAuth) authorize(x guarding, g *Guard) bool {
	q := &inquiry{of: f, guard: g, x: x.exchange}
	m := &q.message
	*m = semantics.Message{Method: "GET", Scheme: x.request.Scheme, Authority: x.request.Authority, Path: f.Path, ContentLength: -1}
	for i := range x.request.Fields {
		if field := &x.request.Fields[i]; f.sends(field.Name) {
			m.Fields = append(m.Fields, *field)
		}
	}
	x.waits = q
	x.holdUntil(f.Rule.Request, func(x guarding) { x.refuseBy(g, GuardAuth, "timeout", errReadTimeout) })
	q.ask()
	return false
}

// unsent are the fields of a request that say how it is framed, or what it asks of the gateway (RFC 9110 7.6.1), and those that the
// inquiry has by itself.
var unsent = []string{
	"connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	"sec-websocket-extensions", "sec-websocket-key", "sec-websocket-protocol", "sec-websocket-version", "x-forwarded-method", "x-forwarded-uri",
}

func (f *ForwardAuth) sends(name string) bool {
	return !slices.Contains(unsent, name) && (f.Send == nil || slices.Contains(f.Send, name))
}

// inquiry is the request to the server: the client's side of an exchange, in memory, and what the client's own exchange waits for. The
// exchange of the inquiry is an internal one: it is not counted, and not in the access log.
type inquiry struct {
	of      *ForwardAuth
	guard   *Guard
	x       *exchange // the client's
	asked   *exchange // nil once it has ended
	message semantics.Message
	state   inquiryState

	status int
	fields []semantics.Field
	body   []byte
}

// inquiryState is the state of an inquiry. Only the loop of its exchanges reads and writes it.
type inquiryState uint8

const (
	inquiring inquiryState = iota
	replied                // the response is complete
	broken                 // it is not, and will not be
	abandoned              // the client's exchange has ended
)

// ask begins the exchange. It may end at once.
func (q *inquiry) ask() {
	w, c := q.x.w, q.x.client
	a := w.newExchange(c, &side.Event{Stream: q, Message: &q.message, Ending: side.EndsNow, Caps: side.Caps{Protocol: q.x.caps.Protocol, Shared: true}})
	h := guarding{a}.holding()
	h.kind, h.names = internalHold, append(h.names, "x-forwarded-method", "x-forwarded-uri") // behind those of the client, which go
	h.identity = append(h.identity, semantics.Field{Name: "x-forwarded-method", Value: q.x.request.Method}, semantics.Field{Name: "x-forwarded-uri", Value: q.x.request.Path})
	if c.listener.RequestID != "" {
		a.id = append(a.id[:0], editor{q.x}.requestID()...)
	}
	q.asked, a.rule = a, q.of.Rule
	path, query := semantics.SplitTarget(q.of.Path)
	a.toPool(path, query, c.listener.Forwarding.Client(q.x.request.Fields, c.addr.Addr()))
}

// Head implements side.Stream. The fields are the backend's machine's, which serves other requests afterwards.
func (q *inquiry) Head(m *semantics.Message, e side.Ending) error {
	if m.Status < 200 {
		return nil
	}
	q.status, q.fields = m.Status, cloneFields(m.Fields)
	if e == side.EndsNow {
		q.state = max(q.state, replied)
	}
	return nil
}

// Write implements side.Stream. It takes everything: a response that is too long has none.
func (q *inquiry) Write(p []byte) int {
	if len(q.body)+len(p) > maxAnswer {
		q.state = max(q.state, broken)
		return len(p)
	}
	q.body = append(q.body, p...)
	return len(p)
}

// End implements side.Stream.
func (q *inquiry) End([]semantics.Field) { q.state = max(q.state, replied) }

// Pause implements side.Stream: there is nothing to stop.
func (q *inquiry) Pause(bool) {}

// Cancel implements side.Stream: the response is not complete.
func (q *inquiry) Cancel(bool) { q.state = max(q.state, broken) }

// Release implements side.Stream. The client's exchange goes on in the next iteration of the loop: this one is within a call of the
// backend's connection, which may be needed for it.
func (q *inquiry) Release() {
	q.asked = nil
	if q.state == inquiring { // it has ended without a response
		q.state = broken
	}
	if q.state != abandoned {
		q.x.w.Loop.Do(q.decide)
	}
}

// withdraw implements awaited: the client's exchange has ended.
func (q *inquiry) withdraw(*exchange) {
	q.state = abandoned
	if q.asked != nil {
		q.asked.frontFailed()
	}
}

// decide goes on with the client's exchange, or answers it.
func (q *inquiry) decide() {
	if q.state == abandoned {
		return
	}
	x := q.x
	x.w.Enter()
	x.waits = nil
	x.on(admitted)
	switch {
	case q.state == broken:
		guarding{x}.refuseBy(q.guard, GuardAuth, "no answer", errIncomplete)
	case q.status >= 200 && q.status <= 299:
		q.admit()
	default:
		q.pass()
	}
}

// admit gives the request the fields of the response.
func (q *inquiry) admit() {
	h := q.x.hold
	h.names = append(h.names, q.of.Copy...)
	for _, f := range q.fields {
		if slices.Contains(q.of.Copy, f.Name) {
			h.identity = append(h.identity, f)
		}
	}
	guarding{q.x}.resume()
}

// pass answers the client as the server has answered.
func (q *inquiry) pass() {
	x, h := q.x, q.x.hold
	q.guard.Counts.blocks[x.w.id].Add(int(GuardAuth), 1)
	h.reason = append(append(h.reason, GuardAuth.String()...), " forward"...)
	x.fields = x.fields[:0]
	for _, f := range q.fields {
		if !slices.Contains(unsent, f.Name) && !strings.HasPrefix(f.Name, "proxy-auth") {
			x.fields = append(x.fields, f)
		}
	}
	guarding{x}.announce()
	editor{x}.allowOrigin()
	x.send(q.status, q.body)
}
