package proxy

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// backends are a worker's connections to one backend of a pool.
type backends struct {
	idle    []*back1 // the one used last is the last
	shared  []sharedBack
	opening []*dialing
	streams int // requests at a time that its last connection of HTTP/2 took, 0 if not known

	queue                // who waits until the backend may have another connection
	published clock.Time // since when the first of them waits, as the backend knows it
	owned     bool       // the connections are those of one client
}

// sharedBack is a connection that carries several requests at a time: back2 or back3.
type sharedBack interface {
	// available reports whether another request may begin.
	available() bool
	// begin sends the request of an exchange, perhaps once the backend's settings have arrived.
	begin(x *exchange)
	awaited // settings
	// unused reports whether no request is in progress.
	unused() bool
	// leave closes the connection after the requests in progress.
	leave()
}

// backsKey names connections: backends of two pools with the same address have connections of their own.
type backsKey struct {
	pool    *Pool
	backend *pool.Backend
	owner   *clientInfo // with a header of the PROXY protocol: whose they are
}

// backsTo returns the connections to a backend, those of one client if owner is not nil.
func (w *Worker) backsTo(p *Pool, b *pool.Backend, owner *clientInfo) *backends {
	k := backsKey{p, b, owner}
	bs := w.backs[k]
	if bs == nil {
		bs = &backends{published: clock.Never, owned: owner != nil}
		w.backs[k] = bs
		if owner != nil {
			owner.owns = append(owner.owns, k)
		}
	}
	return bs
}

// backsOf returns the connections that an exchange may take.
func (w *Worker) backsOf(x *exchange) *backends {
	return w.backsTo(x.pooled, x.backend, x.pooled.owner(x.front.client()))
}

// retire closes the connections without requests, and the others after them.
func (bs *backends) retire() {
	for len(bs.idle) > 0 {
		bs.idle[len(bs.idle)-1].drop()
	}
	for _, s := range slices.Clone(bs.shared) {
		s.leave()
	}
}

// open finds or opens a connection for an exchange, and calls its opened or backFailed, perhaps before it returns. An idle
// connection is taken once all events of the batch have been handled: its backend may have closed it, or sent what nobody has
// asked for, which a request that goes out before that is read would get for its response. One of HTTP/1.1 is opened then, too: a
// response in the batch may make another idle.
func (w *Worker) open(x *exchange) {
	if x.waits == nil && (x.pooled.Protocol == HTTP1 || len(w.backsOf(x).idle) > 0) {
		t := taskStart
		if x.wait.turn != 0 {
			t = taskRestart
		}
		x.waits = &w.run
		w.run.add(t, x, &x.tasks)
		return
	}
	w.openNow(x)
}

// withdraw implements awaited. The exchange stays in the queue, which may be for another request by then.
func (q *runQueue) withdraw(*exchange) {}

// run implements runnable.
func (x *exchange) run(t task) {
	if x.tasks.clear(t); x.waits == awaited(&x.w.run) {
		x.waits = nil
		x.w.openNow(x)
	}
}

func (w *Worker) openNow(x *exchange) {
	bs := w.backsOf(x)
	if x.outgoing.Protocol == "" || x.pooled.Protocol == HTTP1 {
		if n := len(bs.idle); n > 0 {
			s := bs.idle[n-1]
			bs.idle = bs.idle[:n-1]
			s.index = -1
			w.counters.reused.Add(1)
			s.begin(x)
			return
		}
	}
	for _, s := range bs.shared {
		if s.available() {
			w.counters.reused.Add(1)
			s.begin(x)
			return
		}
	}
	if w.overtakes(&x.wait, bs, x.backend) {
		x.line(bs)
		return
	}
	w.dial(x, bs)
}

// line has an exchange wait for a connection, or fail where as many wait as may.
func (x *exchange) line(bs *backends) {
	if !x.w.enqueue(&x.wait, bs, x.pooled, x.backend) {
		x.backFailed(errBackendFull)
	}
}

// dialing is the session of a connection to a backend that is being established.
type dialing struct {
	l       *link
	pool    *Pool
	backend *pool.Backend
	waiting []*exchange // with HTTP/2 several may wait for one connection
	pass    *pass       // in place of exchanges
	client  *clientInfo // of the first request
}

// dial opens a connection for an exchange, or has it wait for one that is being opened and will be shared.
func (w *Worker) dial(x *exchange, bs *backends) {
	if x.pooled.Protocol != HTTP1 {
		for _, d := range bs.opening {
			if d.pass == nil && len(d.waiting) < bs.waiting() {
				d.waiting = append(d.waiting, x)
				x.waits = d
				return
			}
		}
	}
	d := &dialing{pool: x.pooled, backend: x.backend, client: x.front.client(), waiting: []*exchange{x}}
	x.waits = d
	if err := w.connect(d); err != nil {
		if x.waits = nil; err == errBackendFull {
			x.line(bs)
			return
		}
		x.backFailed(err)
	}
}

// connect opens the connection of d.
func (w *Worker) connect(d *dialing) error {
	if !d.backend.ConnOpened() {
		return errBackendFull
	}
	l := w.newLink(nil)
	l.session, l.dial, l.stage, d.l = d, d, linkConnecting, l
	l.owner = d.pool.owner(d.client)
	var conn transport.Conn
	var err error
	if d.pool.Protocol == OverQUIC {
		err = w.dialQUIC(d)
	} else {
		conn, err = w.loop.Dial(d.backend.Address(), l)
	}
	if err != nil {
		w.connClosed(d.backend)
		l.finish()
		return err
	}
	w.counters.backOpened.Add(1)
	l.conn, l.remote = conn, d.backend.Address()
	l.outputTime = backWrite
	bs := w.backsTo(d.pool, d.backend, l.owner)
	bs.opening = append(bs.opening, d)
	if d.pool.TLS != nil && conn != nil {
		l.engine = tls.NewClientEngine(d.pool.TLS, tls.EngineOptions{Coroutines: w.coroutines})
	}
	l.blocked = true // until it is established
	l.deadline(&l.inputBy, cmp.Or(d.pool.Connect, DefaultConnect))
	return nil
}

// maxWaiting bounds the exchanges that wait for one connection of HTTP/2.
const maxWaiting = 64

// waiting returns how many exchanges may wait for one connection.
func (bs *backends) waiting() int { return min(maxWaiting, cmp.Or(bs.streams, maxWaiting)) }

// connected is called when the transport is established.
func (d *dialing) connected() {
	if d.pool.ProxyHeader.Version != 0 {
		d.sendHeader()
	}
	if d.l.engine == nil {
		d.established()
		return
	}
	d.l.touch() // the ClientHello
}

// established begins the protocol, and the requests that wait for it.
func (d *dialing) established() {
	w, l := d.l.w, d.l
	waiting := d.waiting
	d.end()
	l.inputBy = clock.Never
	if d.pass != nil {
		d.pass.opened(l)
		return
	}
	h2 := d.pool.Protocol == HTTP2
	if l.engine != nil {
		if p := l.engine.ConnectionState().NegotiatedProtocol; p != "" {
			h2 = p == "h2"
		}
	}
	if h2 {
		s := newBack2(l, d.pool, d.backend)
		if len(waiting) == 0 { // its request was given up
			s.idle()
			return
		}
		for _, x := range waiting {
			if x.waits != awaited(d) {
				continue // given up meanwhile
			}
			x.waits = nil
			if s.available() {
				s.begin(x)
			} else {
				w.open(x)
			}
		}
		return
	}
	s := newBack1(l, d.pool, d.backend)
	used := false
	for _, x := range waiting {
		if x.waits != awaited(d) {
			continue
		}
		if x.waits = nil; used {
			w.open(x)
			continue
		}
		used = true
		s.begin(x)
	}
	if !used {
		w.keep(s)
	}
}

// end takes d from the connections that are being opened.
func (d *dialing) end() {
	d.l.dial = nil
	bs := d.l.w.backsTo(d.pool, d.backend, d.l.owner)
	bs.opening = slices.DeleteFunc(bs.opening, func(o *dialing) bool { return o == d })
	d.waiting = nil
	d.l.w.forgetOwned(backsKey{d.pool, d.backend, d.l.owner})
}

func (d *dialing) input(p []byte, _ bool) int { return len(p) }
func (d *dialing) writable()                  {}

func (d *dialing) expired(bool) {
	d.l.abort()
	d.failed(errConnectTimeout)
}

func (d *dialing) failed(err error) {
	d.l.w.counters.backFailed.Add(1)
	d.l.w.connClosed(d.backend)
	waiting := d.waiting
	d.end()
	if d.pass != nil {
		d.pass.dialFailed(err)
	}
	for _, x := range waiting {
		if x.waits == awaited(d) {
			x.waits = nil
			x.backFailed(err)
		}
	}
}

// withdraw has an exchange wait for no connection any more. The connection may serve another request.
func (x *exchange) withdraw() {
	if a := x.waits; a != nil {
		x.waits = nil
		a.withdraw(x)
	}
}

// withdraw implements awaited.
func (d *dialing) withdraw(x *exchange) {
	d.waiting = slices.DeleteFunc(d.waiting, func(o *exchange) bool { return o == x })
}

// keep makes a connection idle.
func (w *Worker) keep(s *back1) {
	if s.l.owner != nil && s.l.owner.gone {
		s.drop()
		return
	}
	bs := w.backsTo(s.pool, s.backend, s.l.owner)
	if len(bs.idle) >= cmp.Or(s.pool.MaxIdle, DefaultMaxIdle) || w.draining || w.unused(s.pool, s.backend) {
		s.drop()
		w.forgetUnused(backsKey{s.pool, s.backend, s.l.owner})
		return
	}
	s.index = len(bs.idle)
	bs.idle = append(bs.idle, s)
	s.l.deadline(&s.l.inputBy, cmp.Or(s.pool.Idle, DefaultIdle))
	switch v, yielded := w.takeTurn(bs); {
	case yielded:
		s.drop()
	case v != nil:
		v.begin() // after the batch: bytes behind the response may show that the connection is of no use
	}
}

// forget takes a connection from the idle ones, if it is one.
func (w *Worker) forget(s *back1) {
	if s.index < 0 {
		return
	}
	bs := w.backsTo(s.pool, s.backend, s.l.owner)
	last := len(bs.idle) - 1
	bs.idle[s.index] = bs.idle[last]
	bs.idle[s.index].index = s.index
	bs.idle = bs.idle[:last]
	s.index = -1
}
