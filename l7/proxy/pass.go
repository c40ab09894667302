package proxy

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/tls/clienthello"
)

// StreamMode selects how a listener passes connections on.
type StreamMode uint8

// Values of StreamMode.
const (
	NoStream  StreamMode = iota
	StreamTCP            // a backend is chosen as soon as the connection is accepted
	StreamTLS            // by the ClientHello, which is read and passed on: TLS does not end here
)

// pass is a connection that is passed through: a client's, and one to a backend.
//
// Nothing of the client is read until the backend is connected. What one side cannot take yet stays unread at the other.
// The end of one direction is passed on and the other goes on (half close); a reset is passed on as a reset.
type pass struct {
	w        *Worker
	info     *clientInfo
	rule     *Rule
	pooled   *Pool
	backend  *pool.Backend
	tried    pool.Tried
	dial     *backConn // that is being opened
	first    []byte    // what was read of the client while the backend was chosen
	client   passEnd
	server   passEnd // without a link until the backend is connected
	attempts int
	wait     waiter        // for a connection, where all backends have as many as they may
	full     *pool.Backend // the first that had
	began    clock.Time
	started  clock.Time    // of the attempt
	latency  time.Duration // of the connect: a backend that is slow to accept is what balancing by latency can see here
	over     bool          // a late event of either connection changes nothing

	backendName string // of the last one
	failure     string // why it was refused or cut, "" if it was not
}

// passEnd is the session of one of its connections. Both are alike, so that one code serves both directions.
type passEnd struct {
	p     *pass
	other *passEnd
	l     *link.Link
	count *metrics.Counter // of bytes of all passes that came in here
	ended bool             // no more follow
	bytes uint64           // that came
}

// newPass chooses a backend for a connection. It takes first, of which it sends the backend a copy. The client is not
// read until the backend is connected: what it sends meanwhile stays in the kernel, whose window bounds it.
func newPass(l *link.Link, info *clientInfo, first []byte) {
	w := info.at.w
	p := &pass{w: w, info: info, first: first, began: w.Now}
	p.wait.p = p
	p.client = passEnd{p: p, l: l, other: &p.server, count: &w.counters.stream.up}
	p.server = passEnd{p: p, other: &p.client, count: &w.counters.stream.down}
	l.Session, l.Demand = &p.client, link.Paused
	w.counters.stream.passed.Add(1)
	w.counters.stream.active.Add(1)
	p.route()
}

// route finds the rule of the connection, and begins the first attempt. There is no request yet and may never be one:
// rules can match only by what the connection itself shows.
func (p *pass) route() {
	r, c := &p.w.routed, p.info
	if g := c.listener.Guard; g != nil && g.Sources.Denies(c.addr.Addr()) {
		g.Counts.blocks[p.w.id].Add(int(GuardSources), 1)
		p.failure = errForbidden.name
		p.refuse(clienthello.AlertAccessDenied)
		return
	}
	*r = route.Request{Host: c.sni, Path: "/", SNI: c.sni, JA4: c.ja4, ALPN: c.alpn, Client: c.addr.Addr()}
	n := c.listener.Table.Find(r)
	if n < 0 {
		p.w.counters.stream.unrouted.Add(1)
		p.failure = errNoRoute.name
		p.refuse(clienthello.AlertUnrecognizedName)
		return
	}
	p.rule = c.listener.Rules[n]
	if p.pooled = p.rule.pick(p.w); p.pooled == nil {
		p.unavailable()
		return
	}
	p.attempt()
}

// attempt chooses a backend and connects to it. It is a loop rather than a call of itself, as each backend may fail at
// once, without a batch between.
func (p *pass) attempt() {
	for {
		b, refusal := p.pick()
		if refusal == pool.Full || refusal == pool.PoolFull {
			p.failure = errLimit.name
		}
		if b == nil || p.tried.Has(b) {
			p.waitOrEnd()
			return
		}
		p.tried.Add(b)
		p.attempts++
		p.choose(b)
		err := p.dialTo(b)
		if err == nil {
			return
		}
		if !p.mayRetry(err) {
			p.waitOrEnd()
			return
		}
	}
}

// choose begins an attempt at a backend, which account ends: each Start has its Done, or the pool would count the connection for ever.
func (p *pass) choose(b *pool.Backend) {
	p.backend, p.backendName, p.started, p.wait.turn = b, b.Name(), p.w.Now, 0
	b.Start(p.w.Now)
	if a := p.pooled.Affinity; a != nil {
		a.Table.Set(p.w.Now, p.affinity(), b)
	}
}

// dialTo opens a connection to a backend, unless others wait for one there already.
func (p *pass) dialTo(b *pool.Backend) error {
	if p.w.overtakes(&p.wait, p.backs(b), b) {
		return errBackendFull
	}
	p.dial = p.w.newBackConn(p.key(b), p.info)
	p.dial.pass = p
	err := p.dial.connect()
	if err != nil {
		p.dial = nil
	}
	return err
}

// key names the connections that the pass counts among: a backend's limit is that of requests and passes together.
func (p *pass) key(b *pool.Backend) backsKey {
	return backsKey{pool: p.pooled, backend: b, owner: p.pooled.owner(p.info)}
}

// backs returns the connections that a pass counts among, and waits behind.
func (p *pass) backs(b *pool.Backend) *backConns { return p.w.backsTo(p.key(b)) }

// waitOrEnd queues the connection for the first backend that had as many as it may, or ends it. It waits only after all
// others were tried: a connection that another backend can take now must not wait.
func (p *pass) waitOrEnd() {
	b := p.full
	if b == nil {
		p.unavailable()
		return
	}
	p.full = nil
	p.choose(b)
	if !p.w.enqueue(&p.wait, p.backs(b), p.pooled, b) {
		p.unavailable()
	}
}

// connect goes on once there is room for a connection. Another worker may have taken it meanwhile: then the wait goes
// on, at its old place.
func (p *pass) connect() {
	b := p.backend
	err := p.dialTo(b)
	switch {
	case err == nil, err == errBackendFull && p.w.enqueue(&p.wait, p.backs(b), p.pooled, b): // at its place
	case p.mayRetry(err):
		p.attempt()
	default:
		p.waitOrEnd()
	}
}

// hash returns the hash by which a backend may be selected: of the client's address.
func (p *pass) hash() uint64 {
	if p.pooled.Key == nil {
		return 0
	}
	return p.pooled.Key.Of(&rewrite.Source{Client: p.info.addr.Addr()})
}

// maxFull bounds the backends that are asked for a connection and have as many as they may: pool.Tried remembers so many.
const maxFull = 8

// dialFailed says that there is no connection to the backend. Nothing was sent to it, so another one may be tried.
func (p *pass) dialFailed(err error) {
	if p.dial = nil; p.mayRetry(err) {
		p.attempt()
		return
	}
	p.waitOrEnd()
}

// mayRetry accounts for a failed attempt, and reports whether there may be another one. Until a backend is connected
// nothing has been sent, so that another attempt repeats nothing.
func (p *pass) mayRetry(err error) bool {
	f, b := failureOf(err, true), p.backend
	p.failure = f.name
	p.account(f.class)
	if f == errBackendFull { // nothing was tried
		p.full = cmp.Or(p.full, b)
		return p.attempts < maxFull
	}
	if p.attempts >= p.rule.Attempts || !p.pooled.RetryAllowed(p.w.Now) {
		return false
	}
	p.w.counters.stream.retries.Add(1)
	return true
}

// opened begins to pass bytes: the backend is connected.
func (p *pass) opened(l *link.Link) {
	p.dial, p.failure = nil, ""
	p.latency = p.w.Now.Sub(p.started)
	p.server.l = l
	l.Session, l.OutputTime = &p.server, p.info.listener.Timeouts.Write
	if len(p.first) > 0 {
		l.Out = append(l.Buffer(), p.first...)
		p.client.received(len(p.first))
	}
	p.w.PutBuffer(&p.first)
	l.Touch()
	p.progress()
	p.client.l.Resume()
}

// account reports to the pool how the attempt or the connection went, once.
func (p *pass) account(f pool.Failure) {
	if b := p.backend; b != nil {
		p.backend = nil
		b.Done(p.w.Now, pool.Outcome{Failure: f, Latency: p.latency, Retry: p.attempts > 1})
	}
}

// finish ends what the pass has. The connections are the caller's to end.
func (p *pass) finish(f pool.Failure) {
	p.over = true
	p.w.counters.stream.active.Add(-1)
	p.w.dequeue(&p.wait)
	if d := p.dial; d != nil { // it is not wanted any more
		p.dial = nil
		d.remove()
		d.link.Abort()
	}
	if p.server.l != nil { // before account, which forgets the backend; a dial that is under way was counted by p.dial
		p.w.connClosed(p.backend)
	}
	p.account(f)
	p.w.PutBuffer(&p.first)
	p.record()
}

// unavailable ends a connection for which there is no backend. The first cause is kept: that a backend was full says
// more than that none was left.
func (p *pass) unavailable() {
	p.w.counters.stream.failed.Add(1)
	p.failure = cmp.Or(p.failure, errUnavailable.name)
	p.refuse(clienthello.AlertInternalError)
}

// refuse ends the connection of a client without a backend. One with TLS that is passed through gets an alert, by which
// its user sees that a server was there; one of another protocol cannot be answered, and is reset.
func (p *pass) refuse(a clienthello.Alert) {
	p.finish(pool.Canceled)
	if p.info.listener.Stream == StreamTLS {
		alert(p.client.l, a)
		return
	}
	p.client.l.Abort()
}

// alert ends a connection by an alert in the clear.
func alert(l *link.Link, a clienthello.Alert) {
	l.Out = a.Append(l.Buffer())
	l.CloseBy(link.Linger)
	l.Close()
}

// progress moves the time at which the connection counts as idle. One time serves both directions, on the client's
// link: a download without input, or an upload without output, is not idle.
func (p *pass) progress() { p.client.l.Deadline(&p.client.l.InputBy, p.info.listener.Timeouts.Tunnel) }

// cut ends both connections by a reset: an end by FIN would pass for the end of what was sent. e has failed already. A
// backend that fails before its first byte has refused the connection, which counts against its health; later the cause
// may be the client's.
func (p *pass) cut(e *passEnd) {
	if p.over {
		return
	}
	f := pool.NoFailure
	switch {
	case e == &p.server && e.bytes == 0:
		f = pool.Reset
	case p.server.l == nil:
		f = pool.Canceled
	}
	p.w.counters.stream.cut.Add(1)
	p.failure = cutByReset
	p.finish(f)
	e.abort()
	if o := e.other.l; o != nil { // it gets what was received before
		o.Mode = link.Reset
		o.Close()
	}
}

// abort resets the connection, if there is one: the backend's may not be connected yet.
func (e *passEnd) abort() {
	if e.l != nil {
		e.l.Abort()
	}
}

// received counts bytes that came in here.
func (e *passEnd) received(n int) {
	e.count.Add(uint64(n))
	e.bytes += uint64(n)
}

// Input implements link.Session: it passes bytes and the end of the input on. While the other connection takes nothing,
// none is read: the window of TCP closes and stops the sender (RFC 9293 3.8.6).
func (e *passEnd) Input(b []byte, fin bool) int {
	p, o := e.p, e.other.l
	if p.over {
		return len(b)
	}
	if len(b) > 0 {
		if !o.Accepts() {
			e.l.Pause()
			return 0
		}
		p.progress()
		e.received(len(b))
		if n := o.Through(b); n < len(b) && !o.Closed() {
			o.Out = append(o.Buffer(), b[n:]...)
			o.Touch()
		}
		// splice(2) pays for bulk alone: below leastMoved at a time its calls cost more than a copy. A full read shows bulk.
		if len(b) == link.ReadSize && e.l.Engine == nil && o.Engine == nil && e.l.Moves != link.Unsupported {
			e.l.Bypass = e // there is much
		}
	}
	if fin && !p.over {
		e.end()
	}
	return len(b)
}

// leastMoved is the amount that has to arrive at a time for it to pay that it is not read.
const leastMoved = 16 << 10

// Path implements link.Mover.
func (e *passEnd) Path() (to *link.Link, most int) { return e.other.l, link.BypassMost }

// Moved implements link.Mover: what arrives in small parts is read.
func (e *passEnd) Moved(n int, dry bool) (over bool) {
	if n > 0 {
		e.received(n)
		e.p.progress()
	}
	return dry && n < leastMoved
}

// end passes the end of the input on. With both ends the pass is over. TCP has half-closed connections (RFC 9293 3.6):
// a program may send its request, end its output, and read the answer. Closing both directions with the first end would
// cut that answer.
func (e *passEnd) end() {
	p := e.p
	e.ended = true
	e.other.l.CloseWrite()
	if !e.other.ended {
		p.progress()
		return
	}
	p.finish(pool.NoFailure)
	e.l.Close()
	e.other.l.Close()
}

// Writable implements link.Session: what the other end has waited with can go on.
func (e *passEnd) Writable() { e.other.l.Resume() }

// Expired implements link.Session: a peer takes nothing, or nothing has passed for long. Both are reset: after a FIN
// one end could take what it has for all there is.
func (e *passEnd) Expired(output bool) {
	p := e.p
	if p.over {
		return
	}
	p.w.counters.stream.cut.Add(1)
	if p.failure = cutIdle; output {
		p.failure = cutNotTaken
	}
	p.finish(pool.NoFailure)
	p.client.abort()
	p.server.abort()
}

// Failed implements link.Session. An error of one connection is the end of both.
func (e *passEnd) Failed(error) { e.p.cut(e) }

// Drain implements drainer: a connection that is passed through ends when its peers end it. What it carries is not known, and so
// neither where it could end without loss.
func (e *passEnd) Drain() {}
