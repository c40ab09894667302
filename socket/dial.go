package socket

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Dialer has the parameters of DialWith besides the address. The zero value is ready to use.
//
// Options start as the defaults of the stack. The functions change only the options that they assign:
//
//	d := socket.Dialer{TCPOptions: func(o *socket.TCPOptions) { o.Congestion = "bbr" }}
type Dialer struct {
	Local   netip.AddrPort // zero address or port: chosen
	Bound   *Bound         // instead of Local: the address and port of a TCP connection, which frees them with its Close; for one address
	Timeout time.Duration  // for all of a Dial; 0 is none but the context's

	// FreeBind lets Local be an address that is not the stack's yet (IP_FREEBIND of ip(7)). Answers arrive once
	// it is.
	FreeBind bool

	// FallbackDelay is the time that TCP waits for an address of a name before it also tries the next (RFC 8305 5).
	// 0 is 250 ms; negative tries one address after the other.
	FallbackDelay time.Duration

	// KeepAlive and KeepAliveConfig are as in net.Dialer. Unless KeepAliveConfig.Enable is set, KeepAlive is
	// the idle time before the first probe: 0 is Config.KeepAlive, negative disables keepalive.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// FastOpen sends the first Write with the SYN (RFC 7413) if the server has sent a cookie before, as
	// TCP_FASTOPEN_CONNECT of tcp(7) does. The dial then returns at once: the SYN leaves with the first Write,
	// Read or CloseWrite, and reads and writes return the error if no answer comes. Otherwise the dial waits
	// for the handshake, which asks for the cookie. Each loop keeps its own cookies.
	FastOpen bool

	TCPOptions func(o *TCPOptions) // nil changes nothing
	UDPOptions func(o *UDPOptions)
	Process    *Process // whose socket it is; nil is the program's own
}

// Dial connects to an address such as "198.18.0.1:80" or "[2001:db8::1]:80" in a network "tcp", "tcp4",
// "tcp6", "udp", "udp4" or "udp6".
func (s *Stack) Dial(network, address string) (net.Conn, error) {
	return s.DialContext(context.Background(), network, address)
}

// DialContext is Dial with a context. The end of ctx cancels the dial, and has no effect on a connection
// that is established.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return s.DialWith(ctx, &Dialer{}, network, address)
}

// DialWith is DialContext with the parameters of d. It tries the addresses of a name, IPv6 and IPv4 in turn,
// and returns the first connection, or the first error. See Dialer.FallbackDelay.
func (s *Stack) DialWith(ctx context.Context, d *Dialer, name, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	proto, f, err := parseNetwork(name)
	if err != nil {
		return nil, opError("dial", name, nil, nil, err)
	}
	var one [1]netip.AddrPort // numeric addresses, which most are, need no allocation
	remotes, err := s.resolve(ctx, one[:0], proto, f, address)
	if err != nil {
		return nil, opError("dial", name, nil, nil, err)
	}
	if len(remotes) == 1 {
		return s.dialOne(ctx, d, name, proto, remotes[0])
	}
	dial := func(ctx context.Context, r netip.AddrPort) (net.Conn, error) {
		return s.dialOne(ctx, d, name, proto, r)
	}
	if proto == "udp" || d.FallbackDelay < 0 {
		return dialSerial(ctx, s.order(d, remotes), dial)
	}
	return dialStaggered(ctx, s.order(d, remotes), cmp.Or(d.FallbackDelay, attemptDelay), dial)
}

func (s *Stack) dialOne(ctx context.Context, d *Dialer, name, proto string, r netip.AddrPort) (net.Conn, error) {
	if proto == "udp" {
		c, err := s.dialUDP(ctx, d, name, r)
		if err != nil {
			return nil, opError("dial", name, d.sourceAddr(proto), net.UDPAddrFromAddrPort(r), err)
		}
		return c, nil
	}
	c, err := s.dialTCP(ctx, d, r)
	if err != nil {
		return nil, opError("dial", name, d.sourceAddr(proto), net.TCPAddrFromAddrPort(r), err)
	}
	return c, nil
}

// sourceAddr returns Local for a net.OpError, nil if it is not set.
func (d *Dialer) sourceAddr(proto string) net.Addr {
	switch {
	case !d.local().IsValid():
		return nil
	case proto == "udp":
		return net.UDPAddrFromAddrPort(d.local())
	}
	return net.TCPAddrFromAddrPort(d.local())
}

// tuple returns the 5-tuple of a connection to r. The local address, if it is not set, is chosen by RFC 6724
// source selection.
func (s *Stack) tuple(d *Dialer, r netip.AddrPort) (wire.Tuple, error) {
	h := s.group.Hosts[0] // it has all addresses; the other loops follow it
	h.Enter()
	defer h.Exit()
	return s.tupleOn(h, d, r)
}

// tupleOn is tuple by the holder of a loop.
func (s *Stack) tupleOn(h *host.Host, d *Dialer, r netip.AddrPort) (wire.Tuple, error) {
	t := wire.Tuple{Remote: wire.AddrFrom(r.Addr()), RemotePort: r.Port(), LocalPort: d.local().Port()}
	if !r.Addr().IsValid() || r.Addr().IsUnspecified() {
		return t, &net.AddrError{Err: "missing host", Addr: r.String()}
	}
	if a := d.local().Addr(); a.IsValid() && !a.IsUnspecified() {
		t.Local = wire.AddrFrom(a)
		if t.Local.Is4() != t.Remote.Is4() {
			return t, &net.AddrError{Err: "local and remote addresses are of different versions", Addr: r.String()}
		}
		if t.Local.Loopback() && !t.Remote.Multicast() && !h.IP.Usable(t.Remote) { // no such packet may leave this host
			return t, errnoError("connect", syscall.EINVAL)
		}
		if d.FreeBind || d.Bound != nil { // Bind has checked it
			return t, nil
		}
		return t, checkLocalOn(h, t.Local, false)
	}
	now := h.Now()
	// Without a route the error is the one of connect(2), before any packet is sent.
	if p, _ := h.IP.Route(now, t.Remote, wire.Addr{}, ip.AnyDev); p == nil {
		return t, errnoError("connect", tcp.ErrUnreachable)
	}
	var ok bool
	if t.Local, ok = h.IP.Source(now, t.Remote, ip.AnyDev); !ok || !d.covers(t.Local) {
		return t, errnoError("connect", tcp.ErrUnreachable)
	}
	return t, nil
}

func (s *Stack) dialTCP(ctx context.Context, d *Dialer, r netip.AddrPort) (*TCPConn, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	t, err := s.tuple(d, r)
	if err != nil {
		return nil, err
	}
	o := s.dialOptions(d)
	if err := s.takeBound(d); err != nil {
		return nil, connectError(err)
	}
	c := &TCPConn{flags: connecting | dialing | d.dataInSYN()}
	w := newWaiter()
	if err := s.connect(c, w, d, t, o); err != nil {
		d.dropBound(nil)
		w.free()
		return nil, connectError(err)
	}
	select {
	case <-w.woken:
	case <-ctx.Done():
		// If the handshake has ended meanwhile, its result counts.
		if c.cancelDial(w) {
			w.free()
			return nil, contextError(ctx)
		}
		w.wait()
	}
	err = w.err
	w.free()
	if err != nil {
		return nil, errnoError("connect", err)
	}
	return c, nil
}

// connect sends the SYN and parks w, unless that is nil, until the end of the handshake. Where the loop of c has no free port
// for the destination, another one may: each has the ports whose flows it receives.
func (s *Stack) connect(c *TCPConn, w *waiter, d *Dialer, t wire.Tuple, o *tcp.Options) error {
	return s.eachHost(&t, func(h *host.Host) error {
		c.h = h
		return s.connectOn(c, w, d, t, o)
	})
}

// eachHost calls f with the host for a new connection. It calls f again with the same host while f searches
// for a local port, so that other calls may have the loop between two steps, and with the other hosts while
// there is no free port.
func (s *Stack) eachHost(t *wire.Tuple, f func(h *host.Host) error) error {
	h := s.pickHost(t)
	for left := len(s.group.Hosts); ; {
		switch err := f(h); {
		case err == tcp.ErrPortSearch || err == udp.ErrPortSearch:
			runtime.Gosched() // or this goroutine takes the lock again before one that has waited for it
		case (err == tcp.ErrNoPort || err == udp.ErrNoPort) && left > 1:
			left--
			h = s.group.Hosts[(h.Index()+1)%len(s.group.Hosts)]
		default:
			return err
		}
	}
}

// connectOn is connect on the loop of c.
func (s *Stack) connectOn(c *TCPConn, w *waiter, d *Dialer, t wire.Tuple, o *tcp.Options) error {
	now := c.h.Enter()
	defer c.h.Exit()
	if s.isClosed() {
		return net.ErrClosed
	}
	conn, err := connectTCP(c.h, d, t, o, c)
	if err != nil {
		return err
	}
	c.c, c.tuple = conn, conn.Tuple()
	LoopConn{c}.SetProcess(d.Process)
	if w != nil {
		// Without a deadline: the context ends the wait.
		// The write queue is free: nothing else can write before the connection is established.
		c.wq.park(w, c, 0)
	}
	if c.flags&dataInSYN != 0 && conn.HoldSYN(now) {
		c.flags &^= connecting | dialing
		c.wq.wakeAll(nil)
	}
	return nil
}

// dialOptions returns the options of a connection that d begins.
func (s *Stack) dialOptions(d *Dialer) *tcp.Options {
	o := s.tcpOptions(d.KeepAlive, d.KeepAliveConfig, d.TCPOptions)
	if !d.FastOpen || o.FastOpen {
		return o
	}
	fast := *o
	fast.FastOpen = true
	return &fast
}

// dataInSYN returns the flag of connections whose first Write belongs into the SYN.
func (d *Dialer) dataInSYN() connFlags {
	if d.FastOpen {
		return dataInSYN
	}
	return 0
}

// handshakeDone wakes the dialer when the handshake has succeeded or failed.
func (c *TCPConn) handshakeDone(ev tcp.Events) {
	switch {
	case ev&tcp.Connected != 0:
		c.flags &^= connecting | dialing
		c.wq.wakeFirst(nil)
	case ev&tcp.Closed != 0:
		err := c.c.Err()
		if err == nil {
			err = tcp.ErrReset
		}
		c.failDial(c.h.Now(), err)
	}
}

// failDial ends a connection that was not established, and returns err to the dialer.
func (c *TCPConn) failDial(now clock.Time, err error) {
	t := c.c
	c.c = nil
	c.flags &^= connecting | dialing
	t.Abort(now)
	c.leaveBound().drop(c.h)
	c.wq.wakeAll(err)
}

// cancelDial aborts a dial whose context has ended. It returns false if the handshake ended first, in which
// case w is woken.
func (c *TCPConn) cancelDial(w *waiter) bool {
	now := c.h.Enter()
	defer c.h.Exit()
	if !c.wq.remove(w) {
		return false
	}
	t := c.c
	c.c = nil
	t.Abort(now)
	c.leaveBound().drop(c.h)
	return true
}

// newAccepted returns the socket of an accepted connection. The caller holds the loop.
func newAccepted(h *host.Host, t *tcp.Conn) *TCPConn {
	c := &TCPConn{h: h, c: t, tuple: t.Tuple()}
	t.SetOwner(c)
	return c
}
