package proxy

import (
	"strconv"
	"unsafe"

	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// answer answers by itself. Proxy-Status names the cause in the terms of RFC 9209, so that the operator can distinguish
// a failure of the gateway from one of the backend with the same status.
func (x *exchange) answer(f *failure) {
	if x.cached != nil && (caching{x}).rescue(f) {
		return
	}
	x.failure = f.name
	x.scratch = append(append(x.scratch[:0], "millrace; error="...), f.name...)
	x.fields = append(x.fields[:0], semantics.Field{Name: "proxy-status", Value: string(x.scratch)})
	kind, body := "text/plain", []byte(nil)
	if page := (guarding{x}).page(f.status); page != nil {
		kind, body = page.Type, page.Body
	} else {
		body = strconv.AppendInt(nil, int64(f.status), 10)
		body = append(append(append(body, ' '), semantics.Reason(f.status)...), '\n')
	}
	x.fields = append(x.fields, semantics.Field{Name: "content-type", Value: kind})
	if f == errInspectedCoding {
		x.fields = append(x.fields, semantics.Field{Name: "accept-encoding", Value: "gzip, deflate"})
	}
	guarding{x}.announce()
	editor{x}.allowOrigin()
	x.send(f.status, body)
}

// respond sends a fixed response. Its fields are copied, since those of the configuration are shared by all requests.
func (x *exchange) respond(r *Response) {
	x.fields = x.fields[:0]
	editor{x}.edit(&r.Fields)
	editor{x}.response()
	guarding{x}.announce()
	editor{x}.allowOrigin()
	x.send(r.Status, r.Body)
}

// send sends a response of the gateway with x.fields, and ends the exchange. The request may still be coming: in HTTP/1.1 the front
// closes after the response, lingering (RFC 9112 9.6), and in HTTP/2 it resets the stream with NO_ERROR (RFC 9113 8.1).
func (x *exchange) send(status int, body []byte) {
	x.on(refused)
	x.status, x.progress = status, x.w.Now
	x.up.forget(x.w)
	editor{x}.setRequestID()
	if hsts := x.client.listener.HSTS; hsts != "" {
		x.fields = rewrite.Set(x.fields, semantics.Field{Name: strictTransport, Value: hsts})
	}
	m := semantics.Message{Status: status, ContentLength: int64(len(body)), Fields: x.fields}
	e := side.EndsLater
	if len(body) == 0 {
		e = side.EndsNow
	}
	if err := x.front.Head(&m, e); err != nil {
		x.frontFailed()
		return
	}
	// A response to HEAD has the length of the content that GET would get, and none of it (RFC 9110 9.3.2): content would be
	// taken for the beginning of the next response.
	if x.down.message = allArrived; x.request.Method != "HEAD" && len(body) > 0 {
		x.down.data(x.w, body)
	}
	x.down.end(x.w)
	x.finishIfDone()
	x.deadline() // of a client that does not take it
}

// interim passes an interim response on (RFC 9110 15.2): 103 (Early Hints) and what else there is, but not 100 where
// the gateway sends that by itself: it has asked for the content already when the backend does. They are not held back where the client
// does not read, and so are bounded: a backend could fill the memory of the gateway with them.
func (x *exchange) interim(m *semantics.Message) {
	if x.interims += semantics.Size(m.Fields) + 64; x.interims > maxInterim {
		x.backFailed(errProtocol)
		return
	}
	if m.Status == 100 && !x.rule.ForwardExpect {
		return
	}
	if err := x.front.Head(m, side.EndsLater); err != nil {
		x.frontFailed()
	}
}

// maxInterim bounds the interim responses to one request, in bytes: without fields there are 1024.
const maxInterim = 64 << 10

// responseMessage returns the response as the client gets it. The message of the backend's machine is copied before it is changed,
// because the machine still reads its fields for the framing of the content. Most responses change nothing, and cost no copy.
//
// A client that came with the cookie of its backend gets none again: many caches store no response with Set-Cookie.
//
// bodiless is whether nothing follows the header.
func (x *exchange) responseMessage(m *semantics.Message, bodiless bool) *semantics.Message {
	r, ln := x.rule, x.client.listener
	session := r.Sticky != nil && x.backend != nil && x.backend != x.kept
	ranges := 0
	if isPartial(m.Status) {
		ranges, _ = semantics.ContentRanges(m.Fields)
	}
	if r.ResponseHeaders == nil && r.CORS == nil && !session && ln.AltSvc == "" && ln.HSTS == "" && ln.RequestID == "" && ranges < 2 && x.hold == nil && ln.Compression == nil && x.cached == nil {
		return m
	}
	if x.hold != nil && x.hold.kind == internalHold {
		return m
	}
	if m != &x.reply {
		x.fields = append(x.fields[:0], m.Fields...)
		x.reply = *m
	}
	if ranges > 1 {
		x.fields = semantics.OneContentRange(x.fields)
	}
	if x.cached != nil {
		caching{x}.announce()
	}
	if ln.AltSvc != "" {
		x.fields = append(x.fields, semantics.Field{Name: "alt-svc", Value: ln.AltSvc})
	}
	if ln.HSTS != "" {
		x.fields = rewrite.Set(x.fields, semantics.Field{Name: strictTransport, Value: ln.HSTS})
	}
	if session {
		x.target = r.Sticky.AppendSetCookie(x.target[:0], x.pooled.Token(x.backend), x.client.tls)
		x.fields = append(x.fields, semantics.Field{Name: "set-cookie", Value: view(x.target)})
	}
	editor{x}.setRequestID()
	guarding{x}.announce()
	editor{x}.allowOrigin()
	if h := r.ResponseHeaders; h != nil {
		editor{x}.edit(h)
	}
	if ln.Compression != nil && x.phase != tunnel {
		coder{x}.compress(ln.Compression, bodiless)
	}
	x.reply.Fields = x.fields
	return &x.reply
}

// strictTransport is the field that has browsers use TLS alone (RFC 6797 6.1).
const strictTransport = "strict-transport-security"

// isPartial reports whether Content-Range has a meaning in a response of the status. Recipients ignore it in others
// (RFC 9110 14.4).
func isPartial(status int) bool { return status == 206 || status == 416 }

// redirect answers with another URL. It is made of the path in its normal form, which the rule has matched.
func (x editor) redirect(path, query string) {
	c, r := x.client, x.rule.Redirect
	if r.Location != nil {
		x.redirectTo(r)
		return
	}
	x.target = r.AppendLocation(x.target[:0], &rewrite.Target{
		TLS: c.tls, Port: c.listener.Address.Port(), Authority: x.request.Authority, Path: path, Query: query,
	})
	x.sendRedirect(r)
}

// redirectTo answers with a URL that has variables. A client can bring octets into them that no field may have.
func (x editor) redirectTo(r *rewrite.Redirect) {
	x.target = r.Location.Append(x.target[:0], x.values(&rewrite.Headers{Identifies: r.Location.Identifies()}))
	if !semantics.IsValue(view(x.target)) {
		x.refuse(side.RefusedPath)
		return
	}
	x.sendRedirect(r)
}

// response applies the edits of a rule to a response that the rule makes itself.
func (x editor) response() {
	if h := x.rule.ResponseHeaders; h != nil {
		x.edit(h)
	}
}

// sendRedirect sends the client to x.target.
func (x editor) sendRedirect(r *rewrite.Redirect) {
	x.fields = append(x.fields[:0], semantics.Field{Name: "location", Value: view(x.target)})
	x.response()
	guarding(x).announce()
	x.allowOrigin()
	x.send(r.Code(), nil)
}

// view returns b as a string without a copy. It is valid until b changes: for fields that are serialised before the call returns.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
