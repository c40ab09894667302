package proxy

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Inspection names the policy whose rules the requests and responses of a listener, or of a rule, are inspected by.
type Inspection struct {
	Policy uint8           // its number, for Inspector; 0 inspects nothing
	choice *inspect.Choice // of a rule, see Choose; nil: the policy's mode and all of its rules
	kind   string          // names the choice in keys of caches: a response that was inspected in another way is none for the rule
	// Hold bounds the content that waits, with the header of its message, until all of it was inspected, in bytes. What is longer
	// passes piece by piece, each once it was inspected.
	Hold int
}

// InspectedRule names a rule of a policy.
type InspectedRule struct{ GID, SID uint32 }

// Choose has the requests of a rule inspected in another mode than others of the policy, without some rules. failOpen selects what follows from
// bounds where the mode is to prevent: the request passes.
func (i *Inspection) Choose(prevent, failOpen bool, except []InspectedRule) {
	i.choice = &inspect.Choice{Except: map[inspect.RuleID]bool{}}
	switch {
	case prevent && failOpen:
		i.choice.Mode = inspect.PreventOpen
	case prevent:
		i.choice.Mode = inspect.Prevent
	}
	list := slices.Clone(except)
	slices.SortFunc(list, func(a, b InspectedRule) int { return cmp.Or(cmp.Compare(a.GID, b.GID), cmp.Compare(a.SID, b.SID)) })
	i.kind = strconv.Itoa(int(i.choice.Mode))
	for _, r := range list {
		i.choice.Except[inspect.RuleID(r)] = true
		i.kind += fmt.Sprintf(" %d:%d", r.GID, r.SID)
	}
}

// Inspector returns the engine of a policy in a worker, with its present rules, and what follows from its results; nil where
// the policy is gone. request reports whether it is asked for a request, which counts. It belongs to the worker's loop.
type Inspector func(policy uint8, request bool) (*inspect.Engine, inspect.Mode)

// Inspect has the worker inspect requests of listeners with Inspection. It is called before the worker runs.
func (w *Worker) Inspect(f Inspector) { w.inspector = f }

// inspecting is an exchange whose messages are inspected: the methods are of this file.
type inspecting struct{ *exchange }

// inspected is the inspection of an exchange. It ends with the exchange.
type inspected struct {
	inspect.Exchange
	next     *inspected // of the free ones
	mode     inspect.Mode
	hold     int
	up, down watching
	reason   string // why the exchange was ended, for the access log

	// Of a request whose content is held: where it goes on.
	host, path, query string
	client            netip.Addr

	// Of a response: the content that has come of its length, and while it is held the header and the content.
	arrived, length int64
	message, out    *semantics.Message
	ending          side.Ending
	body            []byte
}

// watching is how the content of a message is inspected.
type watching uint8

const (
	unwatched watching = iota // no rule asks for more of it
	streaming                 // each piece before it passes on
	holding                   // and nothing passes on yet
)

// Failures of exchanges that inspection ends.
var (
	errInspectedRequest  = errForbidden
	errInspectedResponse = &failure{status: 502, name: "http_request_denied", class: pool.Canceled}
	errInspectionFull    = errUnavailable
	errInspectedCoding   = errForbidden.withStatus(415) // RFC 9110 15.5.16
)

// admits inspects the header of a request. It reports false where the request was answered, or where it waits for its content to be
// inspected: findRule goes on then.
//
// The order in route is: what is no valid request is answered before, and so is what the listener's Guard refuses, since that costs
// less; rules of the operator come after, whatever they answer.
func (x inspecting) admits(i *Inspection, host, path, query string, client netip.Addr) bool {
	if i.Policy == 0 {
		return true
	}
	e, mode := x.w.inspector(i.Policy, true)
	if e == nil {
		return true
	}
	if i.choice != nil {
		mode = i.choice.Mode
	}
	conn := x.client.inspect(i.Policy, e)
	if conn == nil {
		full := inspect.Result{Bound: true}
		if !mode.Ends(full) {
			return true
		}
		x.begin(mode, i.Hold)
		x.end(full, errInspectionFull)
		return false
	}
	q := x.begin(mode, i.Hold)
	q.host, q.path, q.query, q.client = host, path, query, client
	conn.Begin(&q.Exchange)
	q.Choice = i.choice
	head := x.requestHead()
	head.Ends = x.up.message == allArrived || isTunnel(x.request)
	if r := q.Head(int64(x.w.Now), signature.ToServer, &head); mode.Ends(r) {
		x.end(r, errInspectedRequest)
		return false
	}
	if !q.Wants(signature.ToServer) {
		return true
	}
	if mode != inspect.Detect && q.Unread(signature.ToServer) {
		x.stop(unreadCoding, errInspectedCoding)
		return false
	}
	if q.up = streaming; mode == inspect.Detect || q.hold == 0 || isStream(x.request.Fields) {
		return true
	}
	q.up = holding
	x.on(halted)
	x.progress = x.w.Now
	x.deadline()
	if x.expects { // else the client would wait for this, and the gateway for the content
		_ = x.front.Head(&continue100, side.EndsLater)
	}
	return false
}

// by returns the inspection of a request, nil for none. Where rules of the listener have their own, that of the rule that is going to serve the
// request counts: the table is asked twice, as a request may wait in between. For a request of no rule it is the listener's.
func (x inspecting) by(host, path, query string, client netip.Addr) *Inspection {
	ln := x.client.listener
	if !ln.RulesInspect {
		return ln.Inspection
	}
	if n := ln.Table.Find(routedBy(x.exchange, host, path, query, client)); n >= 0 && ln.Rules[n].Inspection != nil {
		return ln.Rules[n].Inspection
	}
	return ln.Inspection
}

// ofRule returns the inspection of a request whose rule is known.
func (x inspecting) ofRule() *Inspection {
	if i := x.rule.Inspection; i != nil {
		return i
	}
	return x.client.listener.Inspection
}

// begin gives the exchange its inspection, one that is free or another.
func (x inspecting) begin(mode inspect.Mode, hold int) *inspected {
	q := x.w.inspections
	if q == nil {
		q = &inspected{}
	} else {
		x.w.inspections, q.next = q.next, nil
	}
	q.mode, q.hold, x.inspected = mode, hold, q
	return q
}

// isStream reports whether the messages of a request come one by one, with answers between: to wait for its end would be a deadlock.
func isStream(fields []semantics.Field) bool {
	for i := range fields {
		if f := &fields[i]; f.Name == "content-type" {
			return strings.HasPrefix(f.Value, "application/grpc") || strings.HasPrefix(f.Value, "application/connect+")
		}
	}
	return false
}

// requestContent inspects content of a request, and reports whether it passes on now.
func (x inspecting) requestContent(p []byte) bool {
	q := x.inspected
	last := x.request.ContentLength > 0 && int64(x.up.bytes)+int64(len(p)) >= x.request.ContentLength
	if r := q.content(x.w, signature.ToServer, p, last); q.mode.Ends(r) {
		x.end(r, errInspectedRequest)
		return false
	}
	wants := q.Wants(signature.ToServer)
	if q.up == holding {
		if x.up.hold(x.w, p); !wants || len(x.up.held) >= q.hold {
			x.release()
		}
		return false
	}
	if !wants {
		q.up = unwatched
	}
	return true
}

// content inspects content of a message. The last piece of it decides also what only the whole can: the receiver has no end without it.
func (q *inspected) content(w *Worker, d signature.Direction, p []byte, last bool) inspect.Result {
	r := q.Body(int64(w.Now), d, p)
	if last && !q.mode.Ends(r) {
		r = merged(r, q.End(int64(w.Now), d))
	}
	return r
}

// merged returns the stronger of two results.
func merged(a, b inspect.Result) inspect.Result {
	if b.Outcome > a.Outcome {
		a.Outcome, a.Rule = b.Outcome, b.Rule
	}
	a.Bound = a.Bound || b.Bound
	return a
}

// hold holds content although there is room for it.
func (r *relay) hold(w *Worker, p []byte) {
	r.bytes += uint64(len(p))
	*r.progress = w.Now
	if r.held == nil {
		r.held = w.GetBuffer()
	}
	r.held = append(r.held, p...)
}

// release has a request go on whose content was held.
func (x inspecting) release() {
	q := x.inspected
	if q.up = unwatched; q.Wants(signature.ToServer) {
		q.up = streaming
	}
	x.on(admitted)
	findRule(x.exchange, q.host, q.path, q.query, q.client)
}

// requestEnd inspects the end of a request, and reports whether it passes on by requestEnd of the exchange.
func (x inspecting) requestEnd(trailers []semantics.Field) bool {
	q := x.inspected
	if q.up == unwatched {
		return true
	}
	if r := q.End(int64(x.w.Now), signature.ToServer); q.mode.Ends(r) {
		x.end(r, errInspectedRequest)
		return false
	}
	if q.up == holding {
		x.up.trailers, x.up.message = trailers, allArrived
		x.release()
		return false
	}
	q.up = unwatched
	return true
}

// responseHead inspects the header of a response, and reports whether it passes on now. out is what the client gets.
func (x inspecting) responseHead(m, out *semantics.Message, e side.Ending) bool {
	q := x.inspected
	x.w.PutBuffer(&q.body) // of an attempt that has failed
	q.down, q.arrived, q.length = unwatched, 0, m.ContentLength
	head := x.backHead(m)
	head.Ends = e == side.EndsNow || out == &x.reply || bodiless(x.outgoing.Method, m.Status)
	if r := q.Head(int64(x.w.Now), signature.ToClient, &head); q.mode.Ends(r) {
		x.end(r, errInspectedResponse)
		return false
	}
	if !q.Wants(signature.ToClient) {
		return true
	}
	if q.mode != inspect.Detect && q.Unread(signature.ToClient) {
		x.stop(unreadCoding, errInspectedResponse)
		return false
	}
	if q.down = streaming; q.mode == inspect.Detect || q.hold == 0 || m.ContentLength <= 0 { // of unknown length: perhaps events
		return true
	}
	q.down, q.message, q.out, q.ending = holding, m, out, e
	x.progress = x.w.Now
	x.deadline()
	return false
}

// responseContent inspects content of a response, and reports whether it passes on now.
func (x inspecting) responseContent(p []byte) bool {
	q := x.inspected
	q.arrived += int64(len(p))
	if r := q.content(x.w, signature.ToClient, p, q.length > 0 && q.arrived >= q.length); q.mode.Ends(r) {
		x.end(r, errInspectedResponse)
		return false
	}
	wants := q.Wants(signature.ToClient)
	if q.down == holding {
		x.progress = x.w.Now
		if q.body == nil {
			if !wants || len(p) >= q.hold { // what is decided by one piece needs no copy of it
				return x.releaseResponse()
			}
			q.body = x.w.GetBuffer()
		}
		if q.body = append(q.body, p...); !wants || len(q.body) >= q.hold {
			x.releaseResponse()
		}
		return false
	}
	if !wants {
		q.down = unwatched
	}
	return true
}

// releaseResponse passes a response on that was held. It reports false where the exchange has ended by that, or takes no more of it.
func (x inspecting) releaseResponse() bool {
	q := x.inspected
	if q.down = unwatched; q.Wants(signature.ToClient) {
		q.down = streaming
	}
	body := q.body
	q.body = nil
	passHead(x.exchange, q.message, q.out, q.ending)
	if x.inspected != q {
		return false
	}
	if x.back == nil { // a stored response has answered in its place
		x.w.PutBuffer(&body)
		return false
	}
	if len(body) > 0 {
		passContent(x.exchange, body)
	}
	x.w.PutBuffer(&body)
	return x.inspected == q
}

// responseEnd inspects the end of a response, and reports whether it passes on.
func (x inspecting) responseEnd() bool {
	q := x.inspected
	if r := q.End(int64(x.w.Now), signature.ToClient); q.mode.Ends(r) {
		x.end(r, errInspectedResponse)
		return false
	}
	if q.down == holding {
		return x.releaseResponse()
	}
	q.down = unwatched
	return true
}

// end ends the exchange: by an answer of the gateway where nothing of a response has left, or else by an end that the client sees. The
// backend's stream is canceled.
func (x inspecting) end(r inspect.Result, f *failure) {
	reason := "inspection"
	switch {
	case r.Outcome == inspect.Pass:
		reason, f = "inspection overload", errInspectionFull
	case r.Rule != nil:
		reason = "inspection " + strconv.FormatUint(uint64(r.Rule.GID), 10) + ":" + strconv.FormatUint(uint64(r.Rule.SID), 10)
	}
	x.stop(reason, f)
}

// stop is end for a reason.
func (x inspecting) stop(reason string, f *failure) {
	q, c := x.inspected, &x.w.counters
	q.up, q.down, q.reason = unwatched, unwatched, reason
	if x.mirror != nil { // no other server gets it either
		mirroring{x.exchange}.leave(MirrorIncomplete)
	}
	if f == errInspectionFull {
		c.inspectionFull.Add(1)
	} else {
		c.inspectionEnded.Add(1)
	}
	x.abandon(f)
}

// unreadCoding is the reason where content is in a coding that rules cannot read.
const unreadCoding = "inspection coding"

// readable takes from Accept-Encoding what rules cannot read, where they look at the content of responses and may end them. A client
// that sends none accepts every coding (RFC 9110 12.5.3); servers send it none.
func (x inspecting) readable() {
	q := x.inspected
	if q.mode == inspect.Detect || !q.ReadsBodies(signature.ToClient) {
		return
	}
	sent, left := false, false
	kept := x.fields[:0]
	for _, f := range x.fields {
		if f.Name == "accept-encoding" {
			if sent, f.Value = true, readableCodings(f.Value); f.Value == "" {
				continue
			}
			left = true
		}
		kept = append(kept, f)
	}
	if x.fields = kept; sent && !left {
		x.fields = append(x.fields, semantics.Field{Name: "accept-encoding", Value: "identity"})
	}
}

// readableCodings returns the codings of a list that rules can read, with their weights.
func readableCodings(list string) string {
	var kept []string
	for part := range strings.SplitSeq(list, ",") {
		name, _, _ := strings.Cut(part, ";")
		if name = strings.TrimSpace(name); name != "" && inspect.ReadsCoding(name) {
			kept = append(kept, strings.TrimSpace(part))
		}
	}
	return strings.Join(kept, ", ")
}

// leave ends the inspection with the exchange.
func (x inspecting) leave() {
	q := x.inspected
	q.Close(int64(x.w.Now))
	x.w.PutBuffer(&q.body)
	*q = inspected{next: x.w.inspections}
	x.w.inspections, x.inspected = q, nil
}

// requestHead returns the header of the request: as it came with HTTP/1.1, and the fields of later versions.
func (x inspecting) requestHead() inspect.Head {
	if x.caps.Direct != nil {
		_, m := x.caps.Direct.Plain()
		m.KeepHead(true)
		return inspect.Head{Raw: m.Head()}
	}
	return inspect.Head{Version: x.caps.Protocol, Fields: fieldsOf(x.request)}
}

// backHead is requestHead for the response of a backend.
func (x inspecting) backHead(m *semantics.Message) inspect.Head {
	if x.direct != nil {
		_, machine := x.direct.Plain()
		return inspect.Head{Raw: machine.Head()}
	}
	version := [...]string{HTTP1: "HTTP/1.1", HTTP2: "HTTP/2", HTTP3: "HTTP/3", Scripts: "HTTP/1.1"}[x.pooled.Protocol]
	return inspect.Head{Version: version, Fields: fieldsOf(m)}
}

// fieldsOf lists the fields of a message of HTTP/2 or HTTP/3, as a field section has them.
func fieldsOf(m *semantics.Message) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		pseudo := [...]semantics.Field{
			{Name: ":method", Value: m.Method},
			{Name: ":scheme", Value: m.Scheme},
			{Name: ":path", Value: m.Path},
			{Name: ":authority", Value: m.Authority},
			{Name: ":protocol", Value: m.Protocol},
		}
		list := pseudo[:]
		if m.Status > 0 {
			list = append(list[:0], semantics.Field{Name: ":status", Value: strconv.Itoa(m.Status)})
		}
		for _, f := range list {
			if f.Value != "" && !yield(f.Name, f.Value) {
				return
			}
		}
		for i := range m.Fields {
			if f := &m.Fields[i]; !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// keepsHead has a backend's machine keep the headers of responses that are inspected.
func (x inspecting) keepsHead(on bool) {
	if x.direct != nil {
		_, m := x.direct.Plain()
		m.KeepHead(on)
	}
}

// watches reports whether content of a direction is inspected, so that it has to pass here.
func (q *inspected) watches(response bool) bool {
	if response {
		return q.down != unwatched
	}
	return q.up != unwatched
}
