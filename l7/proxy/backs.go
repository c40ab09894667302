package proxy

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/h1side"
	"github.com/millrace/millrace/l7/h2side"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// backConns are a worker's connections to one backend of a pool. Workers share none: a request is served by the worker of its client
// without a lock or a hand-over, at the price of more connections. The limit of the backend counts those of all workers.
type backConns struct {
	idle      []*backConn // of HTTP/1.1; the one used last is the last
	shared    []*backConn // of HTTP/2 and HTTP/3
	opening   []*backConn
	exclusive int // connections of HTTP/1.1, idle or not
	streams   int // requests at a time that its last connection of HTTP/2 took, 0 if not known

	queue                // who waits until the backend may have another connection
	published clock.Time // since when the first of them waits, as the backend knows it
	owned     bool       // the connections are those of one client
}

// backsKey names connections: backends of two pools with the same address have connections of their own.
type backsKey struct {
	pool    *Pool
	backend *pool.Backend
	owner   *clientInfo // with a header of the PROXY protocol: whose they are
	// sessions are those of WebTransport that the connections are for, one at a time; nil is for requests of other kinds.
	sessions *WebTransport
}

// backsTo returns the connections to a backend. Those of one client are noted at it, so that they end with it.
func (w *Worker) backsTo(k backsKey) *backConns {
	bs := w.backs[k]
	if bs == nil {
		bs = &backConns{published: clock.Never, owned: k.owner != nil}
		w.backs[k] = bs
		if k.owner != nil {
			k.owner.owns = append(k.owner.owns, k)
		}
	}
	return bs
}

// backsKey names the connections that an exchange may take. With the PROXY protocol these are its client's alone.
func (x *exchange) backsKey() backsKey {
	k := backsKey{pool: x.pooled, backend: x.backend, owner: x.pooled.owner(x.client)}
	if x.session != nil {
		k.sessions = x.session.rule
	}
	return k
}

// retire closes idle connections now, and busy ones after their last request. Those with HTTP/1.1 that are busy are in no list: they
// find out when they are free (keeps).
func (bs *backConns) retire() {
	for len(bs.idle) > 0 {
		bs.idle[len(bs.idle)-1].drop()
	}
	for _, s := range slices.Clone(bs.shared) {
		s.leave()
	}
}

// open finds or opens a connection for an exchange. An idle connection is taken once all events of the batch have been handled:
// its backend may have closed it, or sent what no request has asked for, which one that goes out before that is read would get for
// its response. One of HTTP/1.1 is opened then, too: a response in the batch may make another idle.
func (w *Worker) open(x *exchange) {
	if x.pooled.Protocol.shared() && w.backsTo(x.backsKey()).exclusive == 0 {
		w.openNow(x)
		return
	}
	t := link.Start
	if x.wait.turn != 0 {
		t = link.Restart
	}
	x.waits = batchEnd{}
	w.Run.Add(t, x, &x.tasks)
}

// batchEnd is the end of the batch, after which an exchange asks for a connection.
type batchEnd struct{}

// withdraw implements awaited. The exchange stays in the queue, which may be for another request by then: Run asks what
// it waits for.
func (batchEnd) withdraw(*exchange) {}

// Run implements link.Runnable.
func (x *exchange) Run(t link.Task) {
	x.tasks.Clear(t)
	if t == link.Flush {
		coder{x}.flushEncoder()
		return
	}
	if x.waits == awaited(batchEnd{}) {
		x.waits = nil
		x.w.openNow(x)
	}
}

// openNow finds or opens a connection at once, in the order of what it costs: an idle one, a place on a shared one, and a new one,
// which takes a handshake and a place in the backend's limit. One with HTTP/1.1 carries no extended CONNECT: a WebSocket to a pool of
// HTTP/2 waits for a connection that can (RFC 8441), also where the backend has chosen HTTP/1.1 before.
func (w *Worker) openNow(x *exchange) {
	bs := w.backsTo(x.backsKey())
	// The one used last: the others grow old and are closed, so that the number follows the load.
	if n := len(bs.idle); n > 0 && (x.outgoing.Protocol == "" || x.pooled.Protocol == HTTP1) {
		w.counters.reused.Add(1)
		bs.idle[n-1].begin(x)
		return
	}
	for _, s := range bs.shared {
		if s.available() {
			w.counters.reused.Add(1)
			s.begin(x)
			return
		}
	}
	if w.overtakes(&x.wait, bs, x.backend) { // a new connection belongs to those that wait already
		x.enqueue(bs)
		return
	}
	w.dial(x, bs)
}

// enqueue has an exchange wait for a connection, or fail where as many wait as may.
func (x *exchange) enqueue(bs *backConns) {
	if !x.w.enqueue(&x.wait, bs, x.pooled, x.backend) {
		x.backFailed(errBackendFull)
	}
}

// withdraw ends the wait of an exchange. waits is cleared first: whatever it waits for asks it before it begins the request.
func (x *exchange) withdraw() {
	if a := x.waits; a != nil {
		x.waits = nil
		a.withdraw(x)
	}
}

// dial opens a connection for an exchange, or has it wait for one that is being opened and will be shared.
func (w *Worker) dial(x *exchange, bs *backConns) {
	if x.pooled.Protocol.shared() {
		for _, s := range bs.opening {
			if s.pass == nil && len(s.waiting) < bs.mayWait() {
				s.join(x)
				return
			}
		}
	}
	s := w.newBackConn(x.backsKey(), x.client)
	if mayGoEarly(x) {
		s.early = asksEarly
	}
	switch err := s.connect(); err {
	case nil:
		s.await(x)
	case errBackendFull:
		x.enqueue(bs)
	default:
		x.backFailed(err)
	}
}

// maxWaiting bounds the exchanges that wait for one connection of HTTP/2. How many streams it permits is not known before its
// settings, and without a bound a burst of requests would all wait for one connection, of which most then find no stream. The
// number that the last connection took is the best guess.
const maxWaiting = 64

// mayWait returns how many exchanges may wait for one connection.
func (bs *backConns) mayWait() int { return min(maxWaiting, cmp.Or(bs.streams, maxWaiting)) }

// connect opens the connection, which calls opener from then on. It is counted at the backend before it exists, because the limit is that of all
// workers, which would otherwise open one each at the same time. An error that is returned has had no other effect.
func (s *backConn) connect() error {
	w, p, b := s.w, s.key.pool, s.key.backend
	if !b.ConnOpened() {
		return errBackendFull
	}
	l, o := link.New(&w.Runner, nil), opener{s}
	l.Session, l.Dial, l.Opening, l.Stage, s.link = o, o, o, link.Connecting, l
	var conn transport.Conn
	var err error
	if p.Protocol == HTTP3 {
		err = w.dialQUIC(s)
	} else if path := b.Path(); path != "" {
		conn, err = w.Loop.DialUnix(path, l)
	} else {
		conn, err = w.Loop.Dial(b.Address(), l)
	}
	if err != nil {
		l.Finish()
		return w.notOpened(b, err)
	}
	w.dials.succeeded()
	w.counters.backOpened.Add(1)
	l.Conn, l.Remote = conn, b.Address()
	l.OutputTime = link.BackWrite
	s.bs.opening = append(s.bs.opening, s)
	if p.TLS != nil && conn != nil {
		l.Engine = tls.NewClientEngine(p.TLS, tls.EngineOptions{Coroutines: w.coroutines, Signatures: &w.Signatures, Signed: l.Signed})
	}
	l.Blocked = true // until it is established
	l.Deadline(&l.InputBy, cmp.Or(p.Connect, DefaultConnect))
	return nil
}

// opener is the session of a connection to a backend that is being established. It is a type apart from backConn, whose Handle gets
// events of the protocol once there is one.
type opener struct{ *backConn }

// Connected implements link.Dialer.
func (o opener) Connected() {
	if o.key.pool.ProxyHeader.Version != 0 {
		o.sendHeader()
	}
	if o.link.Engine == nil {
		o.Established()
		return
	}
	o.link.Touch() // the ClientHello
}

// Established implements link.Handshake: it begins the protocol. ALPN decides where there is one (RFC 7301 3.2): a
// backend may have chosen HTTP/1.1 although the pool offers HTTP/2 first. Without TLS HTTP/2 is by prior knowledge (RFC
// 9113 3.3).
func (o opener) Established() {
	s, l, p := o.backConn, o.link, o.key.pool
	l.InputBy = clock.Never
	if s.pass != nil {
		s.leaveOpening()
		s.w.forget(s.key)
		s.pass.opened(l)
		return
	}
	if p.FastCGI != nil {
		s.established(o.newScriptBack(), false)
		return
	}
	h2 := p.Protocol == HTTP2
	if l.Engine != nil {
		if p := l.Engine.ConnectionState().NegotiatedProtocol; p != "" {
			h2 = p == "h2"
		}
	}
	if h2 {
		s.established(h2side.NewBack(l, p.Header, cmp.Or(p.Connect, DefaultConnect), s), true)
	} else {
		s.established(h1side.NewBack(l, http1.Options{MaxHead: p.Header.Bytes, MaxFields: p.Header.Fields, KeepCase: p.KeepCase}, s), false)
	}
}

// Input, Writable and Arrived implement link.Session and link.Handshake: before the protocol there is nothing to read, and nothing
// waits to be written.
func (o opener) Input(p []byte, _ bool) int { return len(p) }
func (o opener) Writable()                  {}
func (o opener) Arrived()                   {}

// Expired implements link.Session.
func (o opener) Expired(bool) {
	o.link.Abort()
	o.Failed(errConnectTimeout)
	if o.early == sendsEarly {
		o.early = notEarly
		o.conn.Close()
	}
}

// Failed implements link.Session. The connection is removed before the exchanges fail: each may begin another attempt,
// which must find the backend's place free again.
func (o opener) Failed(err error) {
	o.w.counters.backFailed.Add(1)
	o.remove()
	if o.pass != nil {
		o.pass.dialFailed(err)
	}
	o.endWait(err)
}
