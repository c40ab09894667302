package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/semantics"
)

// exchange is one request and its response. It is used again for another request after finish: what could still be
// called with it, a timer or a task, is stopped, or asks phase or waits before it acts.
//
// front is never nil between newExchange and finish. back is nil unless an attempt has a stream, and belongs to backConn.
type exchange struct {
	w        *Worker
	next     *exchange // of the free ones
	phase    phase
	tasks    link.TaskSet // it outlives the request
	client   *clientInfo
	front    side.Stream
	back     side.Stream
	caps     side.Caps   // of front
	direct   side.Direct // of back
	backConn *backConn   // whose back is
	// use is how many requests backConn has carried, with this one. The first of a connection cannot meet one that the backend has
	// closed for being idle.
	use int

	// The attempt, from route on. A retry keeps rule, pool and hash, and forgets backend, backConn and back.
	rule      *Rule
	pooled    *Pool
	early     earlyUse
	waits     awaited         // what an attempt waits for, nil if for nothing
	hold      *hold           // of a request under a Guard, nil otherwise
	script    *fastcgi.Script // of a pool that speaks FastCGI, nil otherwise
	mirror    *mirrored       // a copy of the request that is gathered; nil: none
	wait      waiter          // for a connection, where the backend has as many as it may
	backend   *pool.Backend
	tried     pool.Tried
	preferred *pool.Backend      // by a sticky cookie
	kept      *pool.Backend      // that the client's cookie named
	hash      uint64             // of the request, for consistent hashing
	affinity  uint64             // the key of the request in Pool.Affinity, 0 for none
	request   *semantics.Message // of the front
	outgoing  semantics.Message  // as the backend gets it
	fields    []semantics.Field  // of outgoing
	path      []byte             // normalised
	scratch   []byte             // values of fields
	id        []byte             // of the request, once it was asked for: see requestID
	target    []byte             // of outgoing, where it was changed

	expects bool              // the client waits for 100 (Continue)
	key     string            // Sec-WebSocket-Key that the backend answers
	reply   semantics.Message // a response that was changed

	up, down  relay           // request and response
	local     *local          // answers in place of a backend; nil: none
	cached    *cached         // of a rule with a cache, nil otherwise
	traced    *trace.Request  // nil: it has no spans
	encoder   *compressed     // of the response; nil: it passes as it is
	inspected *inspected      // nil: the listener inspects nothing
	shield    *shielded       // nil: the rule has no firewall
	udp       *datagramTunnel // of a rule that relays datagrams; nil otherwise
	session   *relayedSession // of WebTransport; nil otherwise

	// One timer bounds the whole, the attempt and the wait for the next byte: see bounds.
	began       clock.Time
	started     clock.Time // of the attempt
	progress    clock.Time // of the last byte of content, in either direction
	timer       uint32
	armed       clock.Time // when the timer fires: not after the first bound
	attempts    int
	latency     time.Duration // from the attempt to the header of the response
	status      int
	call        int    // of HTTP, that the failure of a gRPC call counts as; 0 is none
	interims    uint64 // bytes of interim responses
	failure     string // the error of Proxy-Status, where the gateway answered
	backendName string // of the last attempt
}

// awaited names what an attempt waits for: the end of the batch, a place in a queue, a connection that is being opened,
// or the settings of one that is shared.
type awaited interface {
	// withdraw ends the wait of an exchange.
	withdraw(x *exchange)
}

// newExchange begins an exchange. Buffers and slices of the last request are kept, so that a request in the steady
// state allocates nothing.
func (w *Worker) newExchange(c *clientInfo, ev *side.Event) *exchange {
	x := w.exchanges
	if x == nil {
		x = &exchange{w: w}
	} else {
		w.exchanges = x.next
	}
	fields, path, target, scratch, id, tasks := x.fields[:0], x.path[:0], x.target[:0], x.scratch[:0], x.id[:0], x.tasks
	*x = exchange{} // at once: a literal with fields would be built aside and copied
	x.fields, x.path, x.target, x.scratch, x.id, x.tasks = fields, path, target, scratch, id, tasks
	x.w, x.phase, x.client, x.front, x.caps, x.request = w, received, c, ev.Stream, ev.Caps, ev.Message
	x.began, x.armed, x.wait.x = w.Now, clock.Never, x
	c.use(c.at.current)
	x.up.from, x.down.to = x.front, x.front
	if x.expects = ev.Expects; ev.Ending == side.EndsNow {
		x.up.message = allArrived
	}
	x.up.progress, x.down.progress, x.progress = &x.progress, &x.progress, w.Now
	x.timer = w.NewTimer(x)
	return x
}

// requestData passes content of the request on. It borrows p. The frames of a WebSocket are tracked from its first
// byte, since only then is it known later whether a Close frame may be put between.
func (x *exchange) requestData(p []byte) {
	if x.session != nil {
		relayed{x}.capsules(h3side.ClientEnd, p)
		return
	}
	if !x.checkBody(p) {
		return
	}
	if q := x.inspected; q != nil && q.up != unwatched && !(inspecting{x}).requestContent(p) {
		return
	}
	if x.shield != nil && !(shielding{x}).requestContent(p) {
		return
	}
	if isWebSocket(&x.outgoing) {
		x.up.frames.Pass(p)
	}
	if x.mirror != nil {
		mirroring{x}.content(p)
	}
	x.up.data(x.w, p)
	if x.cached != nil && x.cached.waitsEnd && len(p) > 0 {
		caching{x}.ended()
	}
}

// requestEnd handles the end of the request, with which the time for the response begins (requestSent). In HTTP/1.1 a request with
// Upgrade ends with its header, and the bytes of the other protocol follow on the connection (RFC 9110 7.8): that end is none of the
// tunnel's.
func (x *exchange) requestEnd(trailers []semantics.Field) {
	if x.up.message == allPassed { // with the header
		endMirror(x)
		x.finishIfDone()
		return
	}
	if x.session != nil && (relayed{x}).cutWithin(h3side.ClientEnd) {
		return
	}
	if len(trailers) > 0 {
		trailers = x.client.listener.Names.Trailers(trailers)
	}
	if x.inspected != nil && !(inspecting{x}).requestEnd(trailers) {
		return
	}
	if x.shield != nil && !(shielding{x}).requestEnd(trailers) {
		return
	}
	endMirror(x)
	x.up.trailers = trailers
	x.up.end(x.w)
	if x.cached != nil && x.cached.waitsEnd {
		caching{x}.ended()
		return
	}
	x.finishIfDone()
	x.requestSent()
}

// frontWritable resumes the response: the client takes more. It may take the last of it, which ends the exchange.
func (x *exchange) frontWritable() {
	if x.session != nil { // whose client may have stopped
		x.deadline()
	}
	x.down.push(x.w)
	x.finishIfDone()
}

// backWritable resumes the request: the backend takes more. The end of the request may leave by that, and the time for
// the response begins.
func (x *exchange) backWritable() { x.up.push(x.w); x.finishIfDone(); x.requestSent() }

// opened sends the request: there is a connection for it. Head may fail at once, and begin another attempt: nothing may
// follow it then.
func (x *exchange) opened(s *backConn, back side.Stream, caps side.Caps) {
	x.back, x.down.from = back, back
	x.backConn, x.direct, x.use = s, caps.Direct, s.uses
	if x.inspected != nil {
		inspecting{x}.keepsHead(true)
	}
	if x.script != nil {
		scripting{x}.describe(back)
	}
	ahead := x.outgoing.Protocol != "" && x.caps.Shared // what comes is of the other protocol: it is held until there is a tunnel
	end, ending := ahead || x.up.message != flowing && len(x.up.held) == 0 && len(x.up.trailers) == 0, side.EndsLater
	if end {
		ending = side.EndsNow
	}
	// End of stream goes with the header where nothing follows: a separate empty frame would cost the backend another read, and
	// some servers wait for it before they answer.
	if err := back.Head(&x.outgoing, ending); err != nil {
		x.backFailed(err)
		return
	}
	x.progress = x.w.Now
	if !ahead {
		if x.up.to = back; end {
			x.up.message = allPassed
		}
	}
	if end {
		x.on(sent)
		x.deadline()
		return
	}
	x.on(opened)
	// Only now is there a backend that wants the content. A client that sent it earlier would have sent it in vain where the answer
	// is 503, which is what it waits to find out.
	if !x.rule.ForwardExpect {
		_ = x.front.Head(&continue100, side.EndsLater) // if the client waits for it (RFC 9110 10.1.1)
	}
	x.up.push(x.w)
	x.requestSent()
	x.deadline() // of what is left of the request
}

// continue100 asks a client for the content that it holds back (RFC 9110 10.1.1).
var continue100 = semantics.Message{Status: 100, ContentLength: -1}

// requestSent begins the time for the response once the request was sent. A client that uploads slowly would otherwise use up the
// backend's time.
func (x *exchange) requestSent() {
	if x.phase == sending && x.up.message == allPassed {
		x.on(sent)
		x.deadline()
	}
}

// responseHead handles the header of a response, or of an interim one. The order matters: an interim response changes
// nothing, a retry must come before anything has reached the client, and the phase changes before Head, since a failure
// of Head has to find a response that has begun.
func (x *exchange) responseHead(m *semantics.Message, e side.Ending) {
	if m.Status < 200 && m.Status != 101 {
		x.interim(m)
		return
	}
	if isPartial(m.Status) {
		if _, agree := semantics.ContentRanges(m.Fields); !agree {
			x.backFailed(errProtocol)
			return
		}
	}
	if tooEarly(x, m.Status) || x.retryStatus(m.Status, errIncomplete) || e == side.EndsNow && x.retryCall(m) {
		return
	}
	x.up.forget(x.w) // from here on no attempt follows
	x.latency = x.w.Now.Sub(x.started)
	out, ok := x.upgraded(m)
	if !ok {
		x.backFailed(errUpgrade)
		return
	}
	if x.inspected != nil && !(inspecting{x}).responseHead(m, out, e) {
		return
	}
	passHead(x, m, out, e)
}

// passHead has the firewall evaluate the header of a response, if there is one, and passes it on. out is m as the client gets it: x.reply
// where it begins a tunnel.
func passHead(x *exchange, m, out *semantics.Message, e side.Ending) {
	if x.shield != nil && !(shielding{x}).responseHead(m, out, e) {
		return
	}
	sendHead(x, m, out, e)
}

// sendHead passes the header of a response on.
func sendHead(x *exchange, m, out *semantics.Message, e side.Ending) {
	if x.cached != nil && (caching{x}).arrived(m, e) {
		return
	}
	x.status, x.progress = m.Status, x.w.Now
	late := false        // the end of the stream is not here yet, though nothing may come before it
	if out == &x.reply { // a tunnel: bytes follow whatever the backend's header says
		e = side.EndsLater
		x.on(switched)
	} else {
		if late = e != side.EndsNow && bodiless(x.outgoing.Method, m.Status); late {
			e = side.EndsNow
		}
		x.on(answered)
	}
	x.deadline()
	if out = x.responseMessage(out, e == side.EndsNow); x.encoder != nil {
		e = side.EndsLater
	}
	if err := x.front.Head(out, e); err != nil {
		x.frontFailed()
		return
	}
	switch {
	case x.phase == tunnel && x.session != nil:
		x.up.to = x.back
		relayed{x}.join()
		x.up.push(x.w)
	case x.phase == tunnel:
		if x.up.to = x.back; !x.caps.Shared { // the request has ended, and the other protocol begins
			x.up.message, x.up.trailers = flowing, nil
		}
		x.up.push(x.w)
	case e == side.EndsNow:
		x.down.message = allPassed
		if x.on(complete); late {
			x.deadline()
		}
	case x.cached != nil && x.cached.fill != nil:
		x.down.from, x.cached.feed = x.cached, feedFlows
	}
}

// bodiless reports whether the response to a method ends with its header, whatever the fields and the backend announce (RFC 9110 6.4.1).
func bodiless(method string, status int) bool {
	return status == 204 || status == 304 || method == "HEAD"
}

// lateEnd is the time in which the backend ends the stream of a response that ends with its header. Most do at once. The client has
// the response; its next request waits for the end where the connection is not shared, and the stream counts at the backend.
const lateEnd = 100 * time.Millisecond

// awaitsEnd reports whether the client has the response as a whole, and nothing but the end of the backend's stream is missing.
func (x *exchange) awaitsEnd() bool {
	return x.phase == draining && x.down.message == allPassed && x.back != nil
}

// giveUpEnd resets the stream of a backend that does not end it, or that sends content where there is none. The response is
// complete, so that this is no failure of it.
func (x *exchange) giveUpEnd() {
	x.back.Cancel(true)
	x.detach()
}

// responseData passes content of the response on. It borrows p.
func (x *exchange) responseData(p []byte) {
	if x.awaitsEnd() {
		x.giveUpEnd()
		return
	}
	if x.phase == tunnel && x.session != nil {
		relayed{x}.capsules(h3side.BackendEnd, p)
		return
	}
	if q := x.inspected; q != nil && q.down != unwatched && !(inspecting{x}).responseContent(p) {
		return
	}
	if x.phase == tunnel && isWebSocket(&x.outgoing) {
		x.down.frames.Pass(p)
	}
	passContent(x, p)
}

// passContent passes content of the response on, or has it stored first.
func passContent(x *exchange, p []byte) {
	if x.shield != nil && !(shielding{x}).responseContent(p) {
		return
	}
	if x.cached != nil && x.cached.gathers() {
		caching{x}.collect(p)
		return
	}
	passOn(x, p)
}

// passOn passes content of the response on, in its coding. The first byte that the client does not take begins its time: the timer may be
// armed for a later one.
func passOn(x *exchange, p []byte) {
	was := x.down.paused
	if x.encoder != nil {
		coder{x}.encode(p)
	} else {
		x.down.data(x.w, p)
	}
	if x.down.paused && !was {
		x.deadline() // of a client that takes nothing
	}
}

// responseEnd handles the end of the response. The outcome of a gRPC call is known only here, by its trailers: the
// status is 200 whatever it is.
func (x *exchange) responseEnd(trailers []semantics.Field) {
	if x.down.message == allPassed { // with the header
		x.finishIfDone()
		return
	}
	if x.phase == tunnel && x.session != nil && (relayed{x}).cutWithin(h3side.BackendEnd) {
		return
	}
	if q := x.inspected; q != nil && q.down != unwatched && !(inspecting{x}).responseEnd() {
		return
	}
	if x.shield != nil && !(shielding{x}).responseEnd(trailers) {
		return
	}
	if x.cached != nil && x.cached.gathers() {
		caching{x}.filled(trailers)
		return
	}
	endResponse(x, trailers)
}

// endResponse passes the end of the response on.
func endResponse(x *exchange, trailers []semantics.Field) {
	if x.down.trailers = trailers; len(trailers) > 0 && x.status == 200 {
		x.call = callStatus(trailers)
	}
	if x.phase == responding {
		x.on(complete)
	}
	if x.encoder != nil {
		coder{x}.endEncoder()
	}
	x.down.end(x.w)
	x.finishIfDone()
}

// finishIfDone ends the exchange when both directions have. It is called after whatever may have ended one, since
// neither direction knows of the other. A response that is complete ends it although the request is not: a backend need
// not read all of what it refuses (RFC 9112 9.6, RFC 9113 8.1). In a tunnel each direction ends on its own.
func (x *exchange) finishIfDone() {
	if x.phase == done || x.down.message != allPassed || x.phase == tunnel && x.up.message != allPassed {
		return
	}
	x.finish()
}

// finish ends the exchange and gives both sides back. It is the only place that does, so that each exchange is recorded and put
// into the worker's list once: a second time would hand one exchange to two requests.
func (x *exchange) finish() {
	if x.phase == done {
		return
	}
	x.on(finished)
	w := x.w
	w.FreeTimer(x.timer)
	x.account(nil)
	if x.mirror != nil {
		mirroring{x}.leave(MirrorIncomplete)
	}
	x.up.forget(w)
	w.PutBuffer(&x.up.held)
	w.PutBuffer(&x.down.held)
	if x.hold == nil {
		x.record()
	} else {
		guarding{x}.finishHeld()
	}
	x.leaveBack(false)
	if x.inspected != nil {
		inspecting{x}.leave()
	}
	if x.shield != nil {
		shielding{x}.leave()
	}
	if x.local != nil {
		x.local.leave()
	}
	if x.udp != nil {
		x.udp.leave()
	}
	if x.session != nil {
		x.session.leave()
	}
	if x.cached != nil {
		x.cached.leave()
	}
	if x.encoder != nil {
		coder{x}.leaveEncoder()
	}
	front := x.front
	x.front = nil
	front.Release()
	x.next, w.exchanges = w.exchanges, x
}
