package proxy

import (
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/tls"
)

// HTTP3Options configures how a listener serves HTTP/3. The zero value is valid. Clients learn of it by Listener.AltSvc.
type HTTP3Options struct {
	Machine http3.MachineOptions
	// QUIC configures connections; nil is windows of up to 2 MiB for a request and 4 MiB for a connection. With ZeroRTT
	// requests are taken as early data: those that change nothing are passed on with Early-Data: 1, others answered
	// with 425 (RFC 8470).
	QUIC *quic.Config
}

// takesEarly reports whether requests are served that come before the handshake is complete.
func (o *HTTP3Options) takesEarly() bool { return o != nil && o.QUIC != nil && o.QUIC.ZeroRTT }

// onlyHTTP3 reports whether nothing is served over TCP.
func (ln *Listener) onlyHTTP3() bool {
	return ln.HTTP3 != nil && ln.HTTP1 == nil && ln.HTTP2 == nil && ln.Stream == NoStream
}

// Endpoints are the UDP sockets on which the workers of a process serve HTTP/3, one for each address. Workers share them: a
// connection of QUIC keeps its socket when the client's address changes, and when the configuration does. Each connection
// stays with one worker.
//
// No method of a socket is called on a loop, nor with mu held, which loops take: those of the userspace stack wait for its loops.
type Endpoints struct {
	// Config configures the transports of QUIC. It must not be changed once there is one.
	Config quic.TransportConfig
	// Open opens the sockets; nil is quicconn.OverKernel. It must not be changed either.
	Open quicconn.Opener

	opening sync.Mutex // serializes what opens and closes sockets; it comes before mu
	closed  bool       // guarded by opening

	mu      sync.Mutex
	open    map[netip.AddrPort]*endpoint
	dialers map[*Worker]*quic.Transport // to backends
	workers []*Worker
}

// endpoint is a socket with its connections. It is there from the first Reserve until no listener holds it, no worker serves it and
// the last of its connections has ended.
type endpoint struct {
	all     *Endpoints
	address netip.AddrPort
	t       *quic.Transport
	config  atomic.Pointer[ctls.Config]
	current atomic.Pointer[Listener] // of the last reload; handshakes read both on goroutines of their own
	relayed relayed3
	l       *quic.Listener // nil while no listener needs one; it changes with both mutexes of all held
	early   bool           // l takes early data; guarded by all.opening

	// Guarded by all.mu.
	holds     int // of Reserve
	members   []member
	accepting *quic.Listener // whose connections go to members: one goroutine accepts, whatever number of workers has joined
	next      int
	conns     int
}

// member is a worker that serves connections of an endpoint. A worker may be one twice for a while, when a reload gives
// the address to another listener.
type member struct {
	w *Worker
	l *listening
}

// Share has the worker serve HTTP/3 on the sockets of e, and give idle connections up for the other workers of e where a backend
// may have no more. It is called before Apply.
func (w *Worker) Share(e *Endpoints) {
	w.endpoints = e
	e.mu.Lock()
	e.workers = append(e.workers, w)
	e.mu.Unlock()
}

// Errors of HTTP/3.
var (
	// ErrEndpoints is the error of Apply for a listener with HTTP/3 at a worker without Endpoints, without TLS, or at an
	// address that was not reserved.
	ErrEndpoints = errors.New("proxy: HTTP/3 needs TLS and Endpoints that have reserved the address")

	errEndpointsClosed = errors.New("proxy: the endpoints are closed")
)

// Reserve opens the sockets that a tree needs and that are not open, so that workers can Apply it. They stay open until
// release, and as long as a worker uses them. Neither function may be called on a loop.
func (es *Endpoints) Reserve(t *Tree) (release func(), err error) {
	var held []*endpoint
	release = func() {
		for _, e := range held {
			es.mu.Lock()
			e.holds--
			es.mu.Unlock()
			e.closeUnused()
		}
		held = nil
	}
	for _, ln := range t.Listeners {
		if ln.HTTP3 == nil || ln.TLS == nil {
			continue // Apply has an error for the second
		}
		e, err := es.reserve(ln)
		if err != nil {
			release()
			return nil, fmt.Errorf("listener %s at %s, UDP: %w", ln.Name, ln.Address, err)
		}
		held = append(held, e)
	}
	return release, nil
}

// reserve returns the endpoint of a listener, which listens, with a hold on it.
func (es *Endpoints) reserve(ln *Listener) (*endpoint, error) {
	es.opening.Lock()
	defer es.opening.Unlock()
	es.mu.Lock()
	e := es.open[ln.Address]
	es.mu.Unlock()
	if e == nil {
		e = &endpoint{all: es, address: ln.Address}
		var err error
		if e.t, err = es.socket(ln.Address, e); err != nil {
			return nil, err
		}
	}
	if err := e.listen(ln); err != nil {
		e.closeUnusedLocked()
		return nil, err
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.open == nil {
		es.open = map[netip.AddrPort]*endpoint{}
	}
	es.open[ln.Address] = e
	e.holds++
	return e, nil
}

// socket opens a socket with its transport, for an endpoint, or nil for connections to backends. The caller holds opening, but
// not mu: opening a socket may wait for a loop, which takes mu.
func (es *Endpoints) socket(at netip.AddrPort, e *endpoint) (*quic.Transport, error) {
	if es.closed {
		return nil, errEndpointsClosed
	}
	open, c := es.Open, es.Config
	if e != nil {
		c.HandshakeFailed, c.Strip = e.handshakeFailed, e.strip
	}
	if open == nil {
		open = quicconn.OverKernel
	}
	if !at.IsValid() { // of connections to backends
		c = quic.TransportConfig{}
	}
	return open(at, c)
}

// listen begins to listen, if nothing does that takes early data as ln wants it. Connections wait until a worker joins. The caller
// holds opening.
func (e *endpoint) listen(ln *Listener) error {
	early, old := ln.HTTP3.takesEarly(), e.l
	switch {
	case old == nil:
		e.config.Store(versionThree(ln.TLS))
		e.current.Store(ln)
	case e.early == early:
		return nil
	default: // a transport has one listener at a time. Handshakes under way are refused, connections go on
		_ = old.Close()
	}
	base, qc := e.listenConfigs(ln)
	l, err := e.t.Listen(base, qc)
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	e.l, e.early = l, early
	if serving := old != nil && e.accepting == old; serving && l != nil { // no worker joins again if the configuration is not applied
		e.accepting = l
		go e.accept(l)
	}
	return err
}

// listenConfigs returns how handshakes are made, by what the endpoint has at the time of each, and what holds for connections.
func (e *endpoint) listenConfigs(ln *Listener) (*ctls.Config, *quic.Config) {
	base := e.config.Load().Clone()
	base.GetConfigForClient = func(hello *ctls.ClientHelloInfo) (*ctls.Config, error) {
		if ln := e.current.Load(); ln.Admission != nil && ln.Admission.full(ln.Limits.Connections) {
			return nil, errFull // before keys and signatures
		}
		if ln := e.current.Load(); ln.Table.ReadsHello() || ln.Inspection != nil {
			quic.Attach(hello.Context(), &hello3{tls.JA4QUIC(hello), slices.Clone(hello.SupportedProtos)})
		}
		if d := e.current.Load().Demand; d != nil {
			d.await(hello)
		}
		c := e.config.Load()
		if c.GetConfigForClient == nil {
			return c, nil
		}
		chosen, err := c.GetConfigForClient(hello)
		if chosen == nil {
			chosen = c
		}
		return chosen, err
	}
	qc := quic.Config{StreamWindow: 256 << 10, MaxStreamWindow: 2 << 20, ConnWindow: 512 << 10, MaxConnWindow: 4 << 20}
	if ln.HTTP3.QUIC != nil {
		qc = *ln.HTTP3.QUIC
	}
	if qc.ZeroRTT {
		base = http3.EarlySettings(base, ln.HTTP3.Machine)
	}
	return base, &qc
}

// join gives a worker a share of the connections that come in at the address of its listener. Certificates and settings
// are those of the last that has joined: all workers of a process have the same configuration but for the moment of a
// reload.
func (es *Endpoints) join(w *Worker, l *listening) error {
	es.mu.Lock()
	defer es.mu.Unlock()
	e := es.open[l.current.Address]
	if e == nil || e.l == nil {
		return ErrEndpoints
	}
	e.config.Store(versionThree(l.current.TLS))
	e.current.Store(l.current)
	if !slices.Contains(e.members, member{w, l}) {
		e.members = append(e.members, member{w, l})
	}
	if e.accepting != e.l {
		e.accepting = e.l
		go e.accept(e.l)
	}
	return nil
}

// hello3 holds the fields of a ClientHello that rules compare. It travels with the connection from the handshake, on a goroutine of
// package quic, to the worker.
type hello3 struct {
	ja4  string
	alpn []string
}

// errFull ends the handshake of a client for which there is no room: as an alert, since it has sent its ClientHello.
var errFull = errors.New("proxy: the listener has as many connections as it may")

// versionThree returns c for HTTP/3: with its keys of tickets, and the protocol h3 alone. Copies share the keys,
// so that whichever of them accepts a connection resumes its session. ALPN is required in QUIC (RFC 9001 8.1).
func versionThree(c *ctls.Config) *ctls.Config {
	_, _ = c.DecryptTicket(nil, ctls.ConnectionState{}) // makes the keys that all copies share
	out := c.Clone()
	out.NextProtos = []string{http3.NextProto}
	if choose := c.GetConfigForClient; choose != nil {
		out.GetConfigForClient = func(hello *ctls.ClientHelloInfo) (*ctls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return chosen, err
			}
			return versionThree(chosen), nil
		}
	}
	return out
}

// accept gives connections to the workers in turn, on a goroutine of its own until the listener ends. A connection that no worker is
// left for is closed with H3_NO_ERROR, as a server that ends does (RFC 9114 5.2).
func (e *endpoint) accept(l *quic.Listener) {
	for {
		q, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		m, ok := e.turn()
		if !ok {
			go func() { _ = q.CloseWithError(uint64(http3.NoError), "") }()
			continue
		}
		context.AfterFunc(q.Context(), e.ended)
		m.w.hub.Serve(q, quicconn.Options{Uni: 3, Counted: true}, uint64(http3.NoError), func(c *quicconn.Conn) quicconn.Handler {
			return m.w.accept3(m.l, c, e.relayed.of(c))
		})
	}
}

// turn returns the worker whose turn it is, and counts the connection. One socket serves all workers, because packets
// of a connection must find it whatever address they come from (RFC 9000 5.2): several sockets with SO_REUSEPORT would
// lose those of a client that moves.
func (e *endpoint) turn() (m member, ok bool) {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	if len(e.members) == 0 {
		return m, false
	}
	e.next++
	e.conns++
	return e.members[e.next%len(e.members)], true
}

// ended counts a connection that has ended. It is called by a goroutine of package quic. It may have been the last of a socket that
// no listener uses any more.
func (e *endpoint) ended() {
	e.all.mu.Lock()
	e.conns--
	e.all.mu.Unlock()
	e.closeUnused()
}

// handshakeFailed has a worker count a handshake that a client began and did not complete. The transport calls it. Such a client has
// no worker: any of them may count it, since counters are summed.
func (e *endpoint) handshakeFailed(remote net.Addr, cause error) {
	e.all.mu.Lock()
	var m member
	if n := len(e.members); n > 0 {
		m = e.members[e.next%n]
	}
	e.all.mu.Unlock()
	a, ok := remote.(*net.UDPAddr)
	if m.w == nil || !ok {
		return
	}
	from := netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	m.w.Loop.Do(func() { m.w.handshakeFailed3(m.l, from, cause) })
}

// leave ends the share of a worker. Connections go on; the socket is closed after the last: closing it earlier would
// lose responses that are under way.
func (es *Endpoints) leave(w *Worker, l *listening, address netip.AddrPort) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e := es.open[address]; e != nil {
		e.members = slices.DeleteFunc(e.members, func(m member) bool { return m == member{w, l} })
		go e.closeUnused() // the caller holds its loop
	}
}

// closeUnused stops listening once no worker is left, and closes the socket after the last connection.
func (e *endpoint) closeUnused() {
	e.all.opening.Lock()
	defer e.all.opening.Unlock()
	e.closeUnusedLocked()
}

// closeUnusedLocked is closeUnused for callers that hold opening. The state changes with mu held and the sockets close
// without it: closing may wait for a loop, which may wait for mu.
func (e *endpoint) closeUnusedLocked() {
	es := e.all
	es.mu.Lock()
	listens := e.holds+len(e.members) > 0
	unused, l := !listens && e.conns == 0, e.l
	if !listens {
		e.l, e.accepting = nil, nil
	}
	if unused && es.open[e.address] == e {
		delete(es.open, e.address)
	}
	es.mu.Unlock()
	if !listens && l != nil {
		_ = l.Close()
	}
	if unused {
		_ = e.t.Close() // a second time it does nothing
	}
}

// Close closes all sockets and connections, those of its workers to backends too. The loops of the workers have ended, but
// those of a userspace stack still run.
func (es *Endpoints) Close() error {
	es.opening.Lock()
	defer es.opening.Unlock()
	es.closed = true
	es.mu.Lock()
	var list []*quic.Transport
	for _, e := range es.open {
		list = append(list, e.t)
	}
	for _, t := range es.dialers {
		list = append(list, t)
	}
	es.open, es.dialers = nil, nil
	es.mu.Unlock()
	var errs []error
	for _, t := range list {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// listen3 begins or changes HTTP/3 for a listener. The socket is open already (Reserve): a loop must not wait for one.
func (w *Worker) listen3(l *listening) error {
	ln := l.current
	if ln.HTTP3 == nil { // Apply ends what there was
		return nil
	}
	if ln.TLS == nil || w.endpoints == nil {
		return ErrEndpoints
	}
	if err := w.endpoints.join(w, l); err != nil {
		return fmt.Errorf("UDP: %w", err)
	}
	l.quic = true
	return nil
}

// unlisten3 ends HTTP/3 for a listener of the worker. Its connections end after the requests in progress: they share the socket,
// which stays open for them.
func (w *Worker) unlisten3(l *listening) {
	if !l.quic {
		return
	}
	l.quic = false
	w.endpoints.leave(w, l, l.current.Address)
	for c, f := range w.fronts3 {
		if c.at == l {
			f.Drain()
		}
	}
}

// dialer returns the transport for a worker's connections to backends. It may not be called on a loop. One socket
// carries all of them, since QUIC distinguishes connections by their IDs (RFC 9000 5.1).
func (es *Endpoints) dialer(w *Worker) (*quic.Transport, error) {
	es.mu.Lock()
	t := es.dialers[w]
	es.mu.Unlock()
	if t != nil {
		return t, nil
	}
	es.opening.Lock()
	defer es.opening.Unlock()
	if t = es.dialers[w]; t != nil { // it changes with both mutexes held
		return t, nil
	}
	t, err := es.socket(netip.AddrPort{}, nil)
	if err != nil {
		return nil, err
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.dialers == nil {
		es.dialers = map[*Worker]*quic.Transport{}
	}
	es.dialers[w] = t
	return t, nil
}
