package socket

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// ListenConfig has the parameters of ListenWith and ListenPacketWith besides the address. The zero value is
// ready to use. Options start as the defaults of the stack, as those of a Dialer.
type ListenConfig struct {
	Backlog  int  // connections that wait on each loop; 0 is Config.Backlog
	FreeBind bool // the address need not be the stack's, as with IP_FREEBIND of ip(7)

	// KeepAlive and KeepAliveConfig are as in net.ListenConfig, see Dialer.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	TCPOptions func(o *TCPOptions) // of the accepted connections; nil changes nothing
	UDPOptions func(o *UDPOptions)
	Process    *Process // whose socket it is, and those of accepted connections; nil is the program's own
}

// Listener implements net.Listener for TCP. It listens on every loop of the host, because the loop of a
// connection follows from its 5-tuple. Accept takes from the loops round-robin.
type Listener struct {
	s      *Stack
	fan    fanIn
	shards []listenerShard
	addr   *net.TCPAddr
	bound  *Bound // that it has the address and port from; nil for most

	process atomic.Pointer[Process]
}

// listenerShard is the part of a Listener on one loop.
type listenerShard struct {
	l *Listener
	i int
	t *tcp.Listener // nil after Close. The loop guards it and the fields below

	onAccept func(in LoopConn)
	pollers  watchList
	idle     time.Duration // of keepalive while that is off, see optionTarget
	pending  *TCPConn      // taken from the accept queue for a Poller, see readyEvents
}

// Listen listens on an address such as ":80" in a network "tcp", "tcp4" or "tcp6". For port 0 the stack
// chooses one.
func (s *Stack) Listen(network, address string) (net.Listener, error) {
	l, err := s.ListenWith(context.Background(), &ListenConfig{}, network, address)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ListenWith is Listen with the parameters of cfg. ctx limits the resolution of the address.
func (s *Stack) ListenWith(ctx context.Context, cfg *ListenConfig, name, address string) (*Listener, error) {
	proto, f, err := parseNetwork(name)
	if err == nil && proto != "tcp" {
		err = net.UnknownNetworkError(name)
	}
	if err != nil {
		return nil, opError("listen", name, nil, nil, err)
	}
	at, err := s.resolve(ctx, nil, proto, f, address)
	if err != nil {
		return nil, opError("listen", name, nil, nil, err)
	}
	l, err := s.listen(cfg, f, at[0])
	if err != nil {
		return nil, opError("listen", name, nil, net.TCPAddrFromAddrPort(at[0]), errnoError("bind", err))
	}
	return l, nil
}

// maxPortTries limits how often a chosen port is replaced because another loop uses it.
const maxPortTries = 16

func (s *Stack) listen(cfg *ListenConfig, f family, at netip.AddrPort) (*Listener, error) {
	a, err := localAddr(f, at)
	if err == nil && !cfg.FreeBind {
		err = s.checkLocal(a, false)
	}
	if err != nil {
		return nil, err
	}
	o := s.listenOptions(cfg, f)
	open := func(h *host.Host, e *listenerShard, port uint16) (*tcp.Listener, error) {
		return h.TCP.Listen(a, port, cmp.Or(cfg.Backlog, s.backlog), o, e)
	}
	var l *Listener
	err = s.retryFreed(func() error {
		for try := 0; ; try++ {
			l, err = s.newListener(at.Port(), a, cfg.Process, open)
			// The first loop chooses the port. If another loop uses it already, start over with a new one.
			if at.Port() != 0 || err != tcp.ErrInUse || try >= maxPortTries {
				return err
			}
		}
	})
	return l, err
}

// openShard makes the part of a Listener on a loop, which its caller holds. Port 0 is chosen.
type openShard func(h *host.Host, e *listenerShard, port uint16) (*tcp.Listener, error)

// newListener opens a Listener on all loops.
func (s *Stack) newListener(port uint16, a wire.Addr, of *Process, open openShard) (*Listener, error) {
	l := &Listener{s: s, shards: make([]listenerShard, len(s.group.Hosts))}
	l.fan.hosts = s.group.Hosts
	l.process.Store(of)
	for i, h := range s.group.Hosts {
		l.shards[i] = listenerShard{l: l, i: i}
		var err error
		if port, err = l.shards[i].open(h, port, open); err != nil {
			l.closeShards()
			return nil, err
		}
	}
	l.addr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Netip(), port))
	if err := s.register(l); err != nil {
		l.closeShards()
		return nil, err
	}
	return l, nil
}

// open listens on one loop and returns the port.
func (e *listenerShard) open(h *host.Host, port uint16, open openShard) (uint16, error) {
	h.Enter()
	defer h.Exit()
	t, err := open(h, e, port)
	if err != nil {
		return 0, err
	}
	e.t = t
	_, port = t.Addr()
	return port, nil
}

// Ready implements tcp.Owner.
func (e *listenerShard) Ready(tcp.Events) {
	if e.t == nil {
		return
	}
	h := e.l.fan.hosts[e.i]
	if e.onAccept != nil {
		e.callAccept(h)
		return
	}
	e.serveWaiters(h)
	e.pollers.mark(Readable)
}

// serveWaiters hands accepted connections to goroutines blocked in Accept.
func (e *listenerShard) serveWaiters(h *host.Host) {
	e.l.fan.serve(e.i, func(w *waiter) bool {
		w.conn = e.next(h)
		return w.conn != nil
	})
}

// callAccept calls the callback with every connection in the accept queue.
func (e *listenerShard) callAccept(h *host.Host) {
	for c := e.next(h); c != nil; c = e.next(h) {
		e.onAccept(LoopConn{c})
	}
}

// OnAccept makes the loops call f with each new connection. Accept then returns none. With nil connections wait for Accept
// again.
func (l *Listener) OnAccept(f func(in LoopConn)) {
	for i, h := range l.fan.hosts {
		h.Enter()
		if l.shards[i].onAccept = f; f != nil {
			l.shards[i].callAccept(h)
		}
		h.Exit()
	}
}

// next returns a connection from the accept queue, nil if it is empty.
func (e *listenerShard) next(h *host.Host) *TCPConn {
	if c := e.pending; c != nil {
		e.pending = nil
		return c
	}
	if e.t == nil {
		return nil
	}
	t := e.t.Accept()
	if t == nil {
		return nil
	}
	c := newAccepted(h, t)
	if p := e.l.process.Load(); p != nil {
		c.extras().process = p
	}
	return c
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptTCP waits for the next connection.
func (l *Listener) AcceptTCP() (*TCPConn, error) {
	w := newWaiter()
	defer w.free()
	for {
		i, err := l.fan.next(w, &l.fan)
		if err != nil {
			return nil, l.wrapError("accept", err)
		}
		if i < 0 {
			w.wait()
			return w.conn, l.wrapError("accept", w.err)
		}
		if c := l.acceptFrom(i); c != nil {
			return c, nil
		}
	}
}

// acceptFrom accepts a connection from one loop, nil if it has none.
func (l *Listener) acceptFrom(i int) *TCPConn {
	h := l.fan.hosts[i]
	h.Enter()
	defer h.Exit()
	c := l.shards[i].next(h)
	// There may be more than one: the ready bit is set again for the next caller.
	if c != nil {
		l.shards[i].serveWaiters(h)
	}
	return c
}

// Close implements net.Listener. Connections in the accept queue are reset, accepted ones stay open.
func (l *Listener) Close() error {
	if !l.fan.close(net.ErrClosed) {
		return l.wrapError("close", net.ErrClosed)
	}
	l.s.unregister(l)
	l.closeShards()
	if l.bound != nil {
		l.bound.end(nil)
	}
	return nil
}

func (l *Listener) closeShards() {
	for i, h := range l.fan.hosts {
		l.shards[i].close(h)
	}
}

func (e *listenerShard) close(h *host.Host) {
	if e.l == nil {
		return
	}
	now := h.Enter()
	defer h.Exit()
	e.closeAt(now)
}

func (e *listenerShard) closeAt(now clock.Time) {
	if e.t != nil {
		e.t.Close(now)
		e.t = nil
	}
	if c := e.pending; c != nil {
		e.pending = nil
		c.abort(now)
	}
	e.pollers.clear()
}

// Addr returns a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets the deadline of Accept. The zero time is none.
func (l *Listener) SetDeadline(t time.Time) error { return l.wrapError("set", l.fan.setDeadline(t)) }

func (l *Listener) wrapError(op string, err error) error {
	if err == nil {
		return nil
	}
	return opError(op, "tcp", nil, l.addr, errnoError(op, err))
}

// LocalListener returns the listener that a connection which d begins to an address of the stack itself would meet, and where it would come
// from: port 0 where d does not say. It is for programs that join both ends without TCP. nil is that the address is
// elsewhere, that nothing listens there, or that the connection would fail. The caller holds no loop.
//
// Of listeners that share a port (TCPOptions.Share) the ports of both ends choose one.
func (s *Stack) LocalListener(d *Dialer, to netip.AddrPort) (l *Listener, from netip.AddrPort) {
	to = netip.AddrPortFrom(to.Addr().WithZone("").Unmap(), to.Port())
	h := s.group.Hosts[0] // it has all addresses and listeners, as each loop
	h.Enter()
	defer h.Exit()
	if h.IP.Local(ip.LoopDev, wire.AddrFrom(to.Addr())) != ip.Unicast {
		return nil, from
	}
	t, err := s.tupleOn(h, d, to)
	if err != nil {
		return nil, from
	}
	return listenerOn(h, &t), netip.AddrPortFrom(t.Local.Netip(), t.LocalPort)
}

// listenerOn returns the listener that a connection with the tuple t meets on this host.
func listenerOn(h *host.Host, t *wire.Tuple) *Listener {
	arriving := wire.Tuple{Local: t.Remote, LocalPort: t.RemotePort, Remote: t.Local, RemotePort: t.LocalPort}
	if e, ok := h.TCP.ListenerAt(&arriving).(*listenerShard); ok {
		return e.l
	}
	return nil
}
