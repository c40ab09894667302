package proxy

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Mirror sends copies of requests to another pool, whose responses are thrown away.
type Mirror struct {
	Rule    *Rule // of the copies: the other pool alone, and what the rule changes in requests
	Percent int   // of the requests, drawn for each
	Most    int   // bytes of content; a request with more is not copied
}

// MirrorResult is the outcome of a copy.
type MirrorResult uint8

// Values of MirrorResult.
const (
	MirrorAnswered   MirrorResult = iota // the other pool has answered, whatever the status
	MirrorFailed                         // it has not
	MirrorTooLarge                       // the content exceeds Most
	MirrorIncomplete                     // the request has ended before all of its content had come
	MirrorBusy                           // too many copies were under way
	MirrorResults
)

// String returns a name for labels.
func (r MirrorResult) String() string {
	return [...]string{"answered", "failed", "too_large", "incomplete", "busy"}[r]
}

// maxMirrors bounds the copies of a worker that are gathered or under way. A pool that hangs must not take the memory of the others.
const maxMirrors = 256

// mirrored is the copy of a request: the client's side of an exchange of its own, in memory. The exchange is an internal one: it is not
// counted, and not in the access log.
type mirrored struct {
	w       *Worker
	of      *Mirror
	client  *clientInfo
	message semantics.Message
	content []byte
	hold    hold // what an Authority has found
	path    string
	query   string
	caps    side.Caps
	status  int  // of the response, 0 without one
	ended   bool // the exchange has
}

// mirroring copies the request of an exchange.
type mirroring struct{ *exchange }

// begin begins a copy. The request's own attempt goes on at once: the copy is sent in a later iteration of the loop, when all of its
// content has come.
func (x mirroring) begin(m *Mirror, path, query string) {
	if int(x.w.random()%100) >= m.Percent || x.outgoing.Protocol != "" || x.hold != nil && x.hold.kind == internalHold {
		return
	}
	switch {
	case x.request.ContentLength > int64(m.Most):
		x.w.counters.mirrored[MirrorTooLarge].Add(1)
		return
	case x.w.mirrors >= maxMirrors:
		x.w.counters.mirrored[MirrorBusy].Add(1)
		return
	}
	x.w.mirrors++
	q := &mirrored{w: x.w, of: m, client: x.client, message: *x.request, path: strings.Clone(path), query: strings.Clone(query), caps: side.Caps{Protocol: x.caps.Protocol, Shared: true}}
	c := &q.message
	for _, s := range []*string{&c.Method, &c.Scheme, &c.Authority, &c.Path} {
		*s = strings.Clone(*s)
	}
	c.Spellings = nil
	c.Fields = slices.DeleteFunc(cloneFields(c.Fields), func(f semantics.Field) bool { return f.Name == "expect" })
	if h := x.hold; h != nil {
		q.hold.names, q.hold.identity, q.hold.user = slices.Clone(h.names), cloneFields(h.identity), slices.Clone(h.user)
	}
	x.mirror = q
	x.content(x.up.held)
	if x.mirror != nil && x.up.message != flowing {
		x.end()
	}
}

// content adds content of the request to its copy.
func (x mirroring) content(p []byte) {
	q := x.mirror
	if len(q.content)+len(p) > q.of.Most {
		x.leave(MirrorTooLarge)
		return
	}
	q.content = append(q.content, p...)
}

// endMirror sends the copy of a request that is complete, if there is one.
func endMirror(x *exchange) {
	if x.mirror != nil {
		mirroring{x}.end()
	}
}

// end sends the copy: the request is complete.
func (x mirroring) end() {
	q := x.mirror
	x.mirror = nil
	if !x.w.Loop.Do(q.send) {
		x.w.mirrors--
	}
}

// leave gives up the copy.
func (x mirroring) leave(r MirrorResult) {
	x.mirror = nil
	x.w.mirrors--
	x.w.counters.mirrored[r].Add(1)
}

// send begins the exchange of the copy. It may end at once.
func (q *mirrored) send() {
	w := q.w
	w.Enter()
	e := side.EndsLater
	if len(q.content) == 0 {
		e = side.EndsNow
	}
	a := w.newExchange(q.client, &side.Event{Stream: q, Message: &q.message, Ending: e, Caps: q.caps})
	h := guarding{a}.holding()
	h.kind = internalHold
	h.names, h.identity, h.user = append(h.names, q.hold.names...), append(h.identity, q.hold.identity...), append(h.user, q.hold.user...)
	a.rule = q.of.Rule
	c := q.client
	a.toPool(q.path, q.query, c.listener.Forwarding.Client(q.message.Fields, c.addr.Addr()))
	if q.ended || e == side.EndsNow {
		return
	}
	if a.up.data(w, q.content); !q.ended {
		a.requestEnd(nil)
	}
}

// Head implements side.Stream.
func (q *mirrored) Head(m *semantics.Message, _ side.Ending) error {
	if m.Status >= 200 && !slices.ContainsFunc(m.Fields, isProxyStatus) {
		q.status = m.Status
	}
	return nil
}

// isProxyStatus reports whether a field is that of responses which the gateway makes for want of one of a backend.
func isProxyStatus(f semantics.Field) bool { return f.Name == "proxy-status" }

// Release implements side.Stream: the exchange has ended.
func (q *mirrored) Release() {
	q.ended = true
	q.w.mirrors--
	r := MirrorFailed
	if q.status != 0 {
		r = MirrorAnswered
	}
	q.w.counters.mirrored[r].Add(1)
}

// The rest of side.Stream throws the response away.

func (q *mirrored) Write(p []byte) int    { return len(p) }
func (q *mirrored) End([]semantics.Field) {}
func (q *mirrored) Pause(bool)            {}
func (q *mirrored) Cancel(bool)           { q.status = 0 }
