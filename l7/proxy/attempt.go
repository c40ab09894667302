package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// route finds the rule of the request and begins the first attempt, or answers.
//
// The order of the checks is a matter of safety. All checks of the request's form come before the table: a rule must match the
// path and host that the backend will see, because a client that can make the two differ gets past rules that deny.
func (x *exchange) route() {
	if x.client.listener.RequestID != "" { // few listeners have one, and each request asks
		editor{x}.identify()
	}
	if x.w.tree.Tracer != nil {
		tracing{x}.begin()
	}
	if !x.checkForm() {
		return
	}
	host, path, query, ok := x.normalize()
	if !ok {
		return
	}
	c := x.client
	client := c.listener.Forwarding.Client(x.request.Fields, c.addr.Addr())
	if c.listener.Challenge != nil && (editor{x}).challenge(path) { // before whatever keeps clients out: the authority is none
		return
	}
	if g := c.listener.Guard; g != nil && !(guarding{x}).passes(g, path, query, client) {
		return
	}
	if i := (inspecting{x}).by(host, path, query, client); i != nil && !(inspecting{x}).admits(i, host, path, query, client) {
		return
	}
	findRule(x, host, path, query, client)
}

// findRule finds the rule of the request and serves it.
func findRule(x *exchange, host, path, query string, client netip.Addr) {
	c, m := x.client, x.request
	r := routedBy(x, host, path, query, client)
	if c.listener.CORS && m.Method == "OPTIONS" && (editor{x}).preflight() {
		return
	}
	n := c.listener.Table.Find(r)
	if c.listener.Table.AmbiguousRepeats(r, n) {
		x.refuse(side.RefusedMessage)
		return
	}
	if x.client.listener.ambiguous(r, n, x.request.Path) {
		x.refuse(side.RefusedPath)
		return
	}
	if n < 0 {
		x.answer(errNoRoute)
		return
	}
	x.rule = c.listener.Rules[n]
	if x.rule.Guard != nil {
		guarding{x}.guarded(path, query, client)
		return
	}
	x.serve(path, query, client)
}

// routedBy returns the request in the form that rules are compared with. It is the worker's, and valid until the next call: none is allocated for
// each request.
func routedBy(x *exchange, host, path, query string, client netip.Addr) *route.Request {
	c, m, r := x.client, x.request, &x.w.routed
	*r = route.Request{
		Host: host, Path: path, Method: m.Method, Fields: m.Fields, SNI: c.sni, JA4: c.ja4, ALPN: c.alpn, Client: client,
	}
	if query != "" {
		r.Query = query[1:]
	}
	return r
}

// serve has the firewall of the rule evaluate a request, if there is one, and serves it.
func (x *exchange) serve(path, query string, client netip.Addr) {
	if f := x.rule.Firewall; f != nil {
		x.shield = &shielded{Evaluation: f.Begin(), f: f, rest: routed{path, query, client}}
		shielding{x}.evaluate()
		return
	}
	serveRule(x, path, query, client)
}

// serveRule answers a request as its rule does, or begins its first attempt.
func serveRule(x *exchange, path, query string, client netip.Addr) {
	switch {
	case x.rule.UDP != nil:
		relaying{x}.begin(path)
	case x.request.Method == "CONNECT" && isConnectUDP(x.request): // no other rule has tunnels to targets of clients
		x.answer(errDenied)
	case isSession(x.request):
		relayed{x}.begin(path, query, client)
	case x.rule.Response != nil:
		x.respond(x.rule.Response)
	case x.rule.Redirect != nil:
		editor{x}.redirect(path, query)
	case x.rule.Files != nil:
		editor{x}.serveFiles(path, query, client)
	case x.rule.Cache != nil:
		caching{x}.begin(path, query, client)
	default:
		x.toPool(path, query, client)
	}
}

// checkForm answers a request that must not be forwarded whatever the rules say, and reports whether there is none of that.
func (x *exchange) checkForm() bool {
	c, m := x.client, x.request
	switch max := c.listener.Limits.Target; {
	// A tunnel to a destination of the client's choice would make the gateway an open proxy (RFC 9110 9.3.6).
	case m.Method == "CONNECT" && !isTunnel(m):
		x.answer(errDenied)
	// HTTP/2 has room for other schemes (RFC 9113 8.3.1), whose paths have rules of their own.
	case m.Scheme != "http" && m.Scheme != "https", isWebSocket(m) && !isHandshake(m):
		x.refuse(side.Refusal(http1.Target))
	// 414 rather than 431, so that a client can distinguish its URL from its fields (RFC 9110 15.5.15, RFC 6585 5).
	case max > 0 && len(m.Path) > max:
		x.w.refuse(c, side.Refusal(http1.Size), 1)
		x.answer(errTarget)
	// Names such as X_Real_IP and X-Real-IP become one variable in CGI and its successors (RFC 3875 4.1.18): a client could
	// overwrite a field that the gateway sets, by a name that the gateway does not replace.
	case semantics.Repeats(m.Fields), c.listener.Colliding == RejectColliding && c.listener.Names.Any(m.Fields):
		x.refuse(side.RefusedMessage)
	default:
		return true
	}
	return false
}

// normalize returns the host and the path of the request as rules and backends see them. It answers a request that has none.
//
// The path is normalised here, once (RFC 3986 6.2.2), and the normal form is both matched and sent; a rule that passes the raw path
// is checked by ambiguous.
func (x *exchange) normalize() (host, path, query string, ok bool) {
	m := x.request
	path, query = semantics.SplitTarget(m.Path)
	if m.Path != "*" { // the asterisk form of OPTIONS names the server, not a resource (RFC 9112 3.2.4)
		normal, buf, err := semantics.NormalizePath(x.path, path)
		if err != nil {
			x.refuse(side.RefusedPath)
			return "", "", "", false
		}
		x.path, path = buf[:0], normal
	}
	// Without a valid host there is nothing to route by, and a server must answer 400 (RFC 9112 3.2).
	if host, ok = normalHost(m); !ok {
		x.refuse(side.Refusal(http1.Host))
		return "", "", "", false
	}
	// A client may send requests for every name of a certificate on one connection (RFC 9113 9.1.1). Where the
	// handshake was not for this host, 421 makes it open another connection (RFC 9110 15.5.20): a host that demands a client
	// certificate could else be reached through one that does not.
	if x.client.misdirects(host) {
		x.answer(errMisdirected)
		return "", "", "", false
	}
	return host, path, query, true
}

// toPool chooses the pool of a request, makes the request that its backends get, and begins the first attempt.
//
// The pool is chosen once for all attempts. A retry that drew again would send more than its share to a pool whose backends
// fail less, and the weights of a canary release would no longer hold.
func (x *exchange) toPool(path, query string, client netip.Addr) {
	if !x.sticky() {
		x.pooled = x.rule.pick(x.w)
	}
	if x.pooled == nil {
		x.answer(errUnavailable)
		return
	}
	if x.pooled.Places.bounds() && !(guarding{x}).placeInPool(path, query, client) {
		return
	}
	dispatch(x, path, query, client)
}

// dispatch sends the request to its pool.
func dispatch(x *exchange, path, query string, client netip.Addr) {
	x.forward(path, query)
	if x.outgoing.Path == "" { // what a rule has made of it is none
		x.refuse(side.RefusedPath)
		return
	}
	if x.pooled.Affinity != nil {
		affine{x}.prefer(&rewrite.Source{Fields: x.request.Fields, Path: path, Query: query, Client: client})
	}
	// The key reads what the client has sent, not outgoing: header rules of the operator must not move clients between backends.
	if k := x.pooled.Key; k != nil {
		x.hash = k.Of(&rewrite.Source{Fields: x.request.Fields, Path: path, Query: query, Client: client})
	}
	x.deadline()
	if h := x.rule.EarlyHints; h != nil && !(hinting{x}).send(h) {
		return
	}
	if m := x.rule.Mirror; m != nil {
		mirroring{x}.begin(m, path, query)
	}
	if x.pooled.FastCGI != nil {
		scripting{x}.begin()
		return
	}
	x.attempt()
}

// sticky finds the backend that the cookie of a session names, in any of the rule's pools: a session comes before the weights
// that split requests, also before 0 (GEP-1619 of Gateway API, "Traffic Splitting").
func (x *exchange) sticky() bool {
	s := x.rule.Sticky
	if s == nil {
		return false
	}
	token, ok := s.Token(x.request.Fields)
	for i := 0; ok && i < len(x.rule.Backends); i++ {
		p := x.rule.Backends[i].Pool
		if b, _ := p.FromToken(x.w.Now, token); b != nil {
			x.pooled, x.preferred, x.kept = p, b, b
			return true
		}
	}
	return false
}

// pick returns the pool of a request: at random by the weights, each request on its own. Weights that are all 0 serve nothing,
// which is how an operator takes a rule out of service: the client gets 503.
func (r *Rule) pick(w *Worker) *Pool {
	if len(r.Backends) == 1 {
		return r.Backends[0].Pool
	}
	total := 0
	for i := range r.Backends {
		total += r.Backends[i].Weight
	}
	if total <= 0 {
		return nil
	}
	n := int(w.random() % uint64(total))
	for i := range r.Backends {
		if n -= r.Backends[i].Weight; n < 0 {
			return r.Backends[i].Pool
		}
	}
	return nil
}

// forward makes the request that a backend gets. The fields are copied to x.fields, since those of the client's machine are
// overwritten by its next input, and a retry needs them again. Order matters: what a client that is not trusted claims about itself
// goes first, then Forwarded or X-Forwarded-For name the peer, Via is added (RFC 9110 7.6.3), and rules of the operator come
// last, so that they can remove or replace any of these.
func (x *exchange) forward(path, query string) {
	m, c := x.request, x.client
	x.outgoing = *m
	peer := rewrite.Peer{Addr: c.addr.Addr().Unmap(), TLS: c.tls, Authority: m.Authority}
	x.fields, x.scratch = c.listener.Forwarding.Apply(c.withoutCert(c.passedFields(x.fields[:0], m.Fields)), x.scratch[:0], &peer)
	x.fields = append(x.fields, c.certFields...)
	if name := c.listener.Via; name != "" {
		x.fields, x.scratch = rewrite.Via(x.fields, x.scratch, strings.TrimPrefix(x.caps.Protocol, "HTTP/"), name)
	}
	if c.listener.RequestID != "" {
		editor{x}.setRequestID()
	}
	if x.traced != nil {
		tracing{x}.propagate()
	}
	if x.hold != nil {
		x.fields = x.hold.identify(x.fields)
	}
	if x.inspected != nil {
		inspecting{x}.readable()
	}
	if x.shield != nil {
		shielding{x}.uncoded()
	}
	if h := x.rule.RequestHeaders; h != nil {
		editor{x}.edit(h)
	}
	if x.rule.ForwardExpect && x.expects && !side.Expects(x.fields) { // HTTP/1.1 has taken it out (RFC 9110 10.1.1)
		x.fields = append(x.fields, semantics.Field{Name: "expect", Value: "100-continue"})
	}
	if x.cached != nil {
		caching{x}.condition()
	}
	x.outgoingPath(path, query)
	x.outgoing.Fields = x.fields
	x.prepareUpgrade()
	x.up.keep = x.replay()
}

// attempt chooses a backend and asks for a connection to it.
//
// Every attempt that has a backend ends by account: Start counts the attempt as active at the backend, and Done ends that. A path
// that missed it would leave the backend loaded for ever, and balancing by load would avoid it.
// tried keeps a retry away from backends that have failed this request, as long as there are others.
func (x *exchange) attempt() {
	b, refusal := x.preferred, pool.NotRefused
	if x.preferred = nil; b == nil { // the session's backend is for the first attempt alone: after its failure any will do
		b, refusal = x.pooled.Pick(x.w.Now, x.hash, &x.tried)
	}
	if b == nil {
		f := errUnavailable
		if refusal == pool.Full || refusal == pool.PoolFull {
			f = errLimit
		}
		x.answer(f)
		return
	}
	x.backend, x.backendName, x.attempts, x.started = b, b.Name(), x.attempts+1, x.w.Now
	x.tried.Add(b)
	x.wait.turn = 0
	if x.early == sentEarly {
		x.early = notAgain
	}
	b.Start(x.w.Now)
	if x.affinity != 0 {
		x.pooled.Affinity.Table.Set(x.w.Now, x.affinity, b)
	}
	x.on(begun)
	x.w.open(x) // it may fail at once, and call attempt again: after it only deadline, which checks for that
	x.deadline()
}

// account reports to the pool how the attempt went, once: without a backend it does nothing, so that each path that ends an attempt may
// call it. The latency is that of the header, 0 where there was none.
func (x *exchange) account(f *failure) {
	b := x.backend
	if b == nil {
		return
	}
	x.backend = nil
	o := pool.Outcome{Status: cmp.Or(x.call, x.status), Latency: x.latency, Retry: x.attempts > 1}
	if f != nil {
		o.Failure = f.class
	}
	b.Done(x.w.Now, o)
}

// backFailed handles the failure of an attempt: by another attempt, by a response of the gateway, or by an end that the client can
// recognise. Once the client has the header of a response there is no second one to send: only the framing of the message can
// show that it is incomplete (RFC 9112 8, RFC 9113 8.1), so the client's stream is reset or its connection closed. An end that
// looks regular would make caches store half a response.
func (x *exchange) backFailed(err error) {
	switch x.phase {
	case done:
		return
	case draining: // the response is here as a whole: a reset that follows it costs the client nothing
		x.detach()
		return
	}
	x.withdraw() // where it ends by its time
	f := failureOf(err, !x.phase.connected())
	// CANCEL of a server before a response means nothing in HTTP: it is an incomplete response, which may be retried.
	if f == errCanceled && !x.phase.answered() && !isGRPC(x.request.Fields) {
		f = errIncomplete
	}
	x.leaveBack(false)
	x.account(f)
	if x.phase.answered() || f == errCanceled {
		if x.failure = f.name; !x.phase.answered() {
			x.status = f.status
		}
		x.cut(f == errCanceled)
		return
	}
	if x.mayRetry(f) {
		x.again()
		return
	}
	x.answer(f)
}

// isGRPC reports whether a request with these fields is one of gRPC. Its server cancels a stream at the deadline of the call, perhaps
// before the client does, which takes the code for the end of the call and a response for an error.
func isGRPC(fields []semantics.Field) bool {
	for i := range fields {
		if f := &fields[i]; f.Name == "content-type" {
			return strings.HasPrefix(f.Value, "application/grpc")
		}
	}
	return false
}

// again begins another attempt. The old one has been accounted for, and its stream released.
func (x *exchange) again() {
	x.w.counters.retries.Add(1)
	if x.early == sentEarly {
		x.w.counters.earlyAgain.Add(1)
	}
	x.on(failed)
	x.up.message = min(x.up.message, allArrived)
	x.up.rewind(x.w)
	x.attempt()
}

// retryStatus begins another attempt where the rule says so of the status of a response, which counts as f.
func (x *exchange) retryStatus(status int, f *failure) bool {
	if x.rule == nil || !slices.Contains(x.rule.RetryStatus, status) || !x.mayRetry(f) {
		return false
	}
	if status == 425 && slices.ContainsFunc(x.outgoing.Fields, isEarlyData) {
		return false // it is for the client: another attempt would be as early (RFC 8470 5.2)
	}
	discardResponse(x, status)
	x.again()
	return true
}

// discardResponse ends an attempt whose response the client does not get. Its content is of no use, and a connection with HTTP/1.1 is
// closed rather than read to its end. It is accounted for with the status, so that outlier detection sees what the client does not.
func discardResponse(x *exchange, status int) {
	x.leaveBack(true)
	x.status = status
	x.account(nil)
	x.status, x.call = 0, 0
}

// leaveBack ends the stream of the backend, if there is one, and cancels it first if it is not complete. The exchange goes on.
func (x *exchange) leaveBack(cancel bool) {
	back, s := x.back, x.backConn
	if back == nil {
		return
	}
	if x.inspected != nil {
		inspecting{x}.keepsHead(false)
	}
	if x.shield != nil {
		shielding{x}.dropResponse()
	}
	x.back, x.backConn, x.direct, x.up.to, x.down.from = nil, nil, nil, nil, nil
	if cancel {
		back.Cancel(true)
	}
	back.Release()
	s.released()
}

// detach releases the backend whose response has arrived as a whole: a slow client still gets what is held of it, even if
// the connection fails.
func (x *exchange) detach() {
	if x.back == nil {
		return
	}
	x.down.trailers = cloneFields(x.down.trailers) // they lie in the machine of the connection, which serves the next request
	x.account(nil)
	x.leaveBack(false)
	x.finishIfDone()
}

// cloneFields returns fields that do not depend on the machine that has read them.
func cloneFields(fields []semantics.Field) []semantics.Field {
	fields = slices.Clone(fields)
	for i := range fields {
		fields[i].Name, fields[i].Value = strings.Clone(fields[i].Name), strings.Clone(fields[i].Value)
	}
	return fields
}

// mayRetry reports whether the request can be sent again. A proxy must not repeat a request that is not idempotent, unless it
// knows that the first one was not applied (RFC 9110 9.2.2, RFC 9112 9.3.1): a second POST is a second order. It knows that where
// nothing of the request has left, where the backend sent REFUSED_STREAM or a GOAWAY with a lower last stream (RFC 9113 8.7), or
// H3_REQUEST_REJECTED (RFC 9114 4.1.1). A closed idle connection is weaker: the backend may have read the request, so that
// MayRepeat lets only idempotent methods through there.
//
// Another attempt is free where a connection that had been idle turned out to be closed, or the backend has not processed the
// request; with content that was sent it counts in the pool's budget. The others come out of the rule's number and the budget.
func (x *exchange) mayRetry(f *failure) bool {
	a := rewrite.Attempt{
		Method: x.request.Method, Sent: x.phase.connected(), Unprocessed: f.unprocessed || f == errCallFailed, Streamed: !x.up.repeatable(),
		Responded: x.phase.answered(),
	}
	if !a.MayRepeat() {
		return false
	}
	unserved := (f == errStale && x.interims == 0 || f.unprocessed) && x.attempts < maxStale
	if unserved && len(x.up.kept) == 0 {
		return true
	}
	return (unserved || x.attempts < x.rule.Attempts) && x.pooled.RetryAllowed(x.w.Now)
}

// maxStale bounds the attempts on connections that turn out to be closed. Without it a backend that accepts and closes at once
// would keep a request going round for ever at no cost to any budget.
const maxStale = 3

// abandon ends the exchange without another attempt: its time is used up, or the client is the one that has stopped.
func (x *exchange) abandon(f *failure) {
	x.withdraw()
	x.leaveBack(true)
	x.account(f)
	if x.phase.answered() {
		x.failure = f.name
		x.cut(f == errWriteTimeout)
		return
	}
	x.answer(f)
}

// cut ends a response that is not complete, so that the client sees it: by a reset of its stream, or of its connection with HTTP/1.1.
func (x *exchange) cut(gone bool) {
	x.front.Cancel(gone)
	x.finish()
}

// frontFailed ends an exchange whose client is gone. The request is canceled at the backend, which would work on in vain, and is not to
// blame for it (errGone). The status 499 is for the log.
func (x *exchange) frontFailed() {
	if x.phase == done {
		return
	}
	x.withdraw()
	x.leaveBack(true)
	x.account(errGone)
	if x.status == 0 {
		x.status = errGone.status
	}
	x.finish()
}
