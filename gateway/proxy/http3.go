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

	"github.com/millrace/millrace/gateway/quicconn"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// HTTP3 is how a listener serves HTTP/3. The zero value is valid. Clients learn of it by Listener.AltSvc.
type HTTP3 struct {
	Machine http3.MachineOptions
	// QUIC configures connections; nil is windows of up to 2 MiB for a request and 4 MiB for a connection. With ZeroRTT requests are taken as early data: those that change
	// nothing are passed on with Early-Data: 1, others answered with 425 (RFC 8470).
	QUIC *quic.Config
}

// onlyHTTP3 reports whether nothing is served over TCP.
func (ln *Listener) onlyHTTP3() bool {
	return ln.HTTP3 != nil && ln.HTTP1 == nil && ln.HTTP2 == nil && ln.Stream == NoStream
}

// Endpoints are the UDP sockets on which the workers of a process serve HTTP/3, one for each address. Workers share them: a
// connection of QUIC keeps its socket when the client's address changes, and when the configuration does. Each connection
// stays with one worker.
type Endpoints struct {
	// Config configures the transports of QUIC. It must not be changed once there is one.
	Config quic.TransportConfig

	mu      sync.Mutex
	open    map[netip.AddrPort]*endpoint
	dialers []*quic.Transport // of workers, to backends
	workers []*Worker
}

// endpoint is a socket with its connections.
type endpoint struct {
	all     *Endpoints
	address netip.AddrPort
	t       *quic.Transport
	l       *quic.Listener // nil while no worker has a listener for it
	config  atomic.Pointer[ctls.Config]
	current atomic.Pointer[Listener]
	members []member
	next    int
	conns   int
}

// member is a worker that serves connections of an endpoint.
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

// ErrEndpoints is the error of Apply for a listener with HTTP/3 at a worker without Endpoints, or without TLS.
var ErrEndpoints = errors.New("proxy: HTTP/3 needs TLS and Endpoints")

// join has a worker take a share of the connections that come in at the address of its listener.
func (es *Endpoints) join(w *Worker, l *listening) error {
	ln := l.current
	es.mu.Lock()
	defer es.mu.Unlock()
	e := es.open[ln.Address]
	if e == nil {
		var err error
		if e, err = es.bind(ln.Address); err != nil {
			return err
		}
	}
	e.config.Store(versionThree(ln.TLS))
	e.current.Store(ln)
	if !slices.Contains(e.members, member{w, l}) {
		e.members = append(e.members, member{w, l})
	}
	return e.listen(ln)
}

// bind opens the socket of an address.
func (es *Endpoints) bind(address netip.AddrPort) (*endpoint, error) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return nil, err
	}
	t, err := quic.NewTransport(pc, es.Config)
	if err != nil {
		_ = pc.Close()
		return nil, err
	}
	e := &endpoint{all: es, address: address, t: t}
	if es.open == nil {
		es.open = map[netip.AddrPort]*endpoint{}
	}
	es.open[address] = e
	return e, nil
}

// listen begins to accept, if nothing does.
func (e *endpoint) listen(ln *Listener) (err error) {
	if e.l != nil {
		return nil
	}
	base := e.config.Load().Clone()
	base.GetConfigForClient = func(hello *ctls.ClientHelloInfo) (*ctls.Config, error) {
		if ln := e.current.Load(); ln.Admission != nil && ln.Admission.full(ln.Limits.Connections) {
			return nil, errFull // before keys and signatures
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
	if e.l, err = e.t.Listen(base, &qc); err == nil {
		go e.accept(e.l)
	}
	return err
}

// errFull ends the handshake of a client for which there is no room: as an alert, since it has sent its ClientHello.
var errFull = errors.New("proxy: the listener has as many connections as it may")

// versionThree returns c for HTTP/3: with its keys of tickets, and the protocol h3 alone.
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

// accept gives connections to the workers in turn.
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
		m.w.hub.Serve(q, quicconn.Options{Uni: 3}, uint64(http3.NoError), func(c *quicconn.Conn) quicconn.Handler {
			return m.w.accept3(m.l, c)
		})
	}
}

// turn returns the worker whose turn it is, and counts the connection.
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

// ended takes notice that a connection has.
func (e *endpoint) ended() {
	e.all.mu.Lock()
	e.conns--
	e.all.mu.Unlock()
	e.closeUnused()
}

// leave ends the share of a worker. Connections go on; the socket is closed after the last.
func (es *Endpoints) leave(w *Worker, l *listening, address netip.AddrPort) {
	es.mu.Lock()
	e := es.open[address]
	if e == nil {
		es.mu.Unlock()
		return
	}
	e.members = slices.DeleteFunc(e.members, func(m member) bool { return m == member{w, l} })
	if len(e.members) == 0 && e.l != nil {
		_ = e.l.Close()
		e.l = nil
	}
	es.mu.Unlock()
	e.closeUnused()
}

// closeUnused closes the socket if nothing uses it.
func (e *endpoint) closeUnused() {
	e.all.mu.Lock()
	unused := len(e.members) == 0 && e.conns == 0 && e.all.open[e.address] == e
	if unused {
		delete(e.all.open, e.address)
	}
	e.all.mu.Unlock()
	if unused {
		_ = e.t.Close()
	}
}

// Close closes all sockets and connections, those of its workers to backends too. The loops of the workers have ended.
func (es *Endpoints) Close() error {
	es.mu.Lock()
	open, dialers := es.open, es.dialers
	es.open, es.dialers = nil, nil
	es.mu.Unlock()
	var errs []error
	for _, t := range dialers {
		errs = append(errs, t.Close())
	}
	for _, e := range open {
		errs = append(errs, e.t.Close())
	}
	return errors.Join(errs...)
}

// listen3 begins or changes HTTP/3 for a listener.
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

// unlisten3 ends HTTP/3 for a listener. Its connections end after the requests in progress.
func (w *Worker) unlisten3(l *listening) {
	if !l.quic {
		return
	}
	l.quic = false
	w.endpoints.leave(w, l, l.current.Address)
	for f := range w.fronts3 {
		if f.l == l {
			f.drain()
		}
	}
}

// dialer returns the transport for connections to backends.
func (w *Worker) dialer() (*quic.Transport, error) {
	if w.quicOut != nil {
		return w.quicOut, nil
	}
	pc, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	if w.quicOut, err = quic.NewTransport(pc, quic.TransportConfig{}); err != nil {
		_ = pc.Close()
		return nil, err
	}
	if es := w.endpoints; es != nil {
		es.mu.Lock()
		es.dialers = append(es.dialers, w.quicOut)
		es.mu.Unlock()
	}
	return w.quicOut, nil
}
