package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
)

// stream is one side of an exchange: a request of a session.
type stream interface {
	// head sends the header of a message: the request at a back, a response or an interim response at a front. With end
	// no content follows.
	head(m *semantics.Message, end bool) error
	// write sends content, and returns how much of it. With less, writable of the exchange follows.
	write(p []byte) int
	// end ends the message. Trailers may be nil.
	end(trailers []semantics.Field)
	// pause stops the input of the stream, and resume has it go on.
	pause()
	resume()
	// cancel ends the stream by an error: its peer sees that the message is not complete.
	cancel()
	// release says that the exchange has ended in both directions.
	release()
}

// relay is one direction of an exchange.
type relay struct {
	to       stream // nil while there is nowhere to send
	from     stream
	held     []byte // content that the receiver has not taken
	kept     []byte // content that it has taken, for another attempt,
	keep     int    // of at most so many bytes; 0 keeps none
	trailers []semantics.Field
	ended    bool // the sender has ended the message,
	sent     bool // and the receiver has got the end
	paused   bool // the sender is not read
	bytes    uint64
	frames   framing     // of a WebSocket
	progress *clock.Time // of the exchange
	over     bool        // the exchange has ended, perhaps within a call of to: a write may find that the connection has failed
}

// data passes content on. What the receiver does not take is held, and the sender waits.
func (r *relay) data(w *Worker, p []byte) {
	r.bytes += uint64(len(p))
	*r.progress = w.now
	if len(r.held) == 0 && r.to != nil {
		n := r.to.write(p)
		r.remember(w, p[:n])
		p = p[n:]
	}
	if len(p) > 0 && !r.over {
		if r.held == nil {
			r.held = w.getBuffer()
		}
		r.held = append(r.held, p...)
		if !r.paused && r.from != nil { // a response of the gateway comes from no stream
			r.paused = true
			r.from.pause()
		}
	}
}

// push sends what is held, as far as it goes.
func (r *relay) push(w *Worker) {
	if r.to == nil {
		return
	}
	if len(r.held) > 0 {
		to := r.to
		n := to.write(r.held)
		if r.over || r.to != to {
			return
		}
		if n > 0 {
			*r.progress = w.now
		}
		r.remember(w, r.held[:n])
		if r.held = r.held[:copy(r.held, r.held[n:])]; len(r.held) > 0 {
			return
		}
		w.putBuffer(&r.held)
	}
	if r.ended && !r.sent {
		r.sent, *r.progress = true, w.now
		r.to.end(r.trailers)
		return
	}
	if r.paused {
		if r.paused = false; r.from != nil {
			r.from.resume()
		}
	}
}

// end notes the end of the message, and passes it on.
func (r *relay) end(w *Worker) {
	r.ended = true
	if len(r.held) == 0 {
		r.push(w)
	}
}

// exchange is one request and its response.
type exchange struct {
	w     *Worker
	next  *exchange // of the free ones
	phase phase
	tasks taskSet // it outlives the request
	front frontStream
	back  backStream

	rule      *Rule
	pooled    *Pool
	waits     awaited // what an attempt waits for, nil if for nothing
	wait      waiter  // for a connection, where the backend has as many as it may
	backend   *pool.Backend
	tried     pool.Tried
	preferred *pool.Backend      // by a sticky cookie
	kept      *pool.Backend      // that the client's cookie named
	hash      uint64             // of the request, for consistent hashing
	request   *semantics.Message // of the front
	outgoing  semantics.Message  // as the backend gets it
	fields    []semantics.Field  // of outgoing
	path      []byte             // normalised
	scratch   []byte             // values of fields
	target    []byte             // of outgoing, where it was changed

	key   string            // Sec-WebSocket-Key that the backend answers
	reply semantics.Message // a response that was changed

	up, down relay // request and response

	began       clock.Time
	started     clock.Time // of the attempt
	progress    clock.Time // of the last byte of content, in either direction
	timer       uint32
	attempts    int
	latency     time.Duration // from the attempt to the header of the response
	status      int
	call        int    // of HTTP, that the failure of a gRPC call counts as; 0 is none
	interims    uint64 // bytes of interim responses
	failure     string // the error of Proxy-Status, where the gateway answered
	backendName string // of the last attempt
	exact       bool   // the content of the response is as long as its header says, and no trailers follow
	canceled    bool   // a stream of the client ends with CANCEL: that of the backend did, or the client takes nothing
}

// awaited is what an attempt waits for: the end of the batch, a place in a queue, a connection that is being opened, or the settings
// of one that is shared.
type awaited interface {
	// withdraw ends the wait of an exchange.
	withdraw(x *exchange)
}

// frontStream is the side of the client.
type frontStream interface {
	stream
	client() *clientInfo
	// protocol is the version, as access logs name it.
	protocol() string
	// proceed tells a client that waits for it to send the content (RFC 9110 10.1.1).
	proceed()
}

// backStream is the side of the backend.
type backStream interface {
	stream
	// reused reports whether the connection has carried requests before: it may have been closed by the backend just now.
	reused() bool
}

// newExchange begins an exchange.
func (w *Worker) newExchange(front frontStream, m *semantics.Message) *exchange {
	x := w.exchanges
	if x == nil {
		x = &exchange{w: w}
	} else {
		w.exchanges = x.next
	}
	*x = exchange{
		w: w, tasks: x.tasks, phase: received, front: front, request: m, began: w.now, wait: waiter{x: x},
		fields: x.fields[:0], path: x.path[:0], target: x.target[:0], scratch: x.scratch[:0],
	}
	if c := front.client(); c.at != nil {
		c.listener = c.at.current
	}
	x.up.from, x.down.to = front, front
	x.up.progress, x.down.progress, x.progress = &x.progress, &x.progress, w.now
	x.timer = w.newTimer(x)
	w.counters.requests.Add(1)
	w.counters.active.Add(1)
	return x
}

// requestData is content of the request. It borrows p.
func (x *exchange) requestData(p []byte) {
	if x.outgoing.Protocol != "" {
		x.up.frames.pass(p)
	}
	x.up.data(x.w, p)
}

// requestEnd is the end of the request.
func (x *exchange) requestEnd(trailers []semantics.Field) {
	if len(trailers) > 0 {
		trailers = x.front.client().listener.Names.Trailers(trailers)
	}
	x.up.trailers = trailers
	x.up.end(x.w)
	x.finishIfDone()
	x.requestSent()
}

// frontWritable has the response go on.
func (x *exchange) frontWritable() { x.down.push(x.w); x.finishIfDone() }

// backWritable has the request go on.
func (x *exchange) backWritable() { x.up.push(x.w); x.finishIfDone(); x.requestSent() }

// opened says that there is a connection for the request. The exchange sends it.
func (x *exchange) opened(back backStream) {
	x.back, x.down.from = back, back
	upgrade := x.outgoing.Protocol != ""
	end := upgrade || x.up.ended && len(x.up.held) == 0 && len(x.up.trailers) == 0
	if err := back.head(&x.outgoing, end); err != nil {
		x.backFailed(err)
		return
	}
	x.progress = x.w.now
	if !upgrade { // what the client sends ahead is held until there is a tunnel
		x.up.to, x.up.sent = back, end
	}
	if end {
		x.on(sent)
		x.deadline()
		return
	}
	x.on(opened)
	x.front.proceed()
	x.up.push(x.w)
	x.requestSent()
	x.deadline() // of what is left of the request
}

// requestSent begins the time for the response once the request was sent.
func (x *exchange) requestSent() {
	if x.phase == sending && x.up.sent {
		x.on(sent)
		x.deadline()
	}
}

// responseHead is the header of a response, or of an interim one.
func (x *exchange) responseHead(m *semantics.Message, end bool) {
	if m.Status < 200 && m.Status != 101 {
		x.interim(m)
		return
	}
	if x.retryStatus(m.Status, errIncomplete) || end && x.retryCall(m) {
		return
	}
	x.up.forget(x.w)
	x.latency = x.w.now.Sub(x.started)
	out, ok := x.upgraded(m)
	if !ok {
		x.backFailed(errUpgrade)
		return
	}
	x.status, x.progress = m.Status, x.w.now
	if out == &x.reply {
		x.on(switched)
	} else {
		x.on(answered)
	}
	x.deadline()
	if err := x.front.head(x.responseMessage(out), end && x.phase != tunnel); err != nil {
		x.frontFailed()
		return
	}
	switch {
	case x.phase == tunnel:
		x.up.to = x.back
		x.up.push(x.w)
	case end:
		x.down.ended, x.down.sent = true, true
		x.on(complete)
	}
}

// responseData is content of the response. It borrows p.
func (x *exchange) responseData(p []byte) {
	if x.phase == tunnel {
		x.down.frames.pass(p)
	}
	was := x.down.paused
	if x.down.data(x.w, p); x.down.paused && !was && x.phase != done {
		x.deadline() // of a client that takes nothing
	}
}

// responseEnd is the end of the response.
func (x *exchange) responseEnd(trailers []semantics.Field) {
	if x.down.trailers = trailers; len(trailers) > 0 && x.status == 200 {
		x.call = callStatus(trailers)
	}
	if x.phase == responding {
		x.on(complete)
	}
	x.down.end(x.w)
	x.finishIfDone()
}

// finishIfDone ends the exchange when both directions have.
func (x *exchange) finishIfDone() {
	if x.phase == done || !x.down.sent || x.phase == tunnel && !x.up.sent {
		return
	}
	x.finish()
}

// finish ends the exchange and gives both sides back.
func (x *exchange) finish() {
	if x.phase == done {
		return
	}
	x.on(finished)
	x.up.over, x.down.over = true, true
	w := x.w
	w.freeTimer(x.timer)
	x.account(nil)
	x.up.forget(w)
	w.putBuffer(&x.up.held)
	w.putBuffer(&x.down.held)
	x.record()
	front, back := x.front, x.back
	x.front, x.back = nil, nil
	if back != nil {
		back.release()
	}
	front.release()
	x.next, w.exchanges = w.exchanges, x
}
