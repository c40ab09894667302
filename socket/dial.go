package socket

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// Dialer is what DialWith may be told beside an address. The zero value is usual.
//
// Options begin as the stack's defaults, and the functions change what they assign:
//
//	d := socket.Dialer{TCPOptions: func(o *socket.TCPOptions) { o.Congestion = "bbr" }}
type Dialer struct {
	Local   netip.AddrPort // zero address or port: chosen
	Timeout time.Duration  // for all of a Dial; 0 is none but the context's

	// KeepAlive and KeepAliveConfig are those of net.Dialer: where the latter is not enabled, KeepAlive is
	// the silence before the first probe. 0 is Config.KeepAlive, negative is no keepalive.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	TCPOptions func(o *TCPOptions) // nil changes nothing
	UDPOptions func(o *UDPOptions)
}

// Dial connects to an address such as "198.18.0.1:80" or "[2001:db8::1]:80" in a network "tcp", "tcp4",
// "tcp6", "udp", "udp4" or "udp6".
func (s *Stack) Dial(network, address string) (net.Conn, error) {
	return s.DialContext(context.Background(), network, address)
}

// DialContext is Dial until ctx ends, which does nothing to a connection that is made.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return s.DialWith(ctx, &Dialer{}, network, address)
}

// DialWith is DialContext with all that can be chosen. Of several addresses that a name has, the first
// that answers is taken.
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
	var one [1]netip.AddrPort
	remotes, err := s.resolve(ctx, one[:0], proto, f, address)
	if err != nil {
		return nil, opError("dial", name, nil, nil, err)
	}
	var first error
	for _, r := range remotes {
		c, err := s.dialOne(ctx, d, name, proto, r)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
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

// sourceAddr returns Local for a net.OpError, nil where it is chosen.
func (d *Dialer) sourceAddr(proto string) net.Addr {
	switch {
	case !d.Local.IsValid():
		return nil
	case proto == "udp":
		return net.UDPAddrFromAddrPort(d.Local)
	}
	return net.TCPAddrFromAddrPort(d.Local)
}

// tuple returns the addresses of a flow to r. An address that is not given, for either end, is the
// loopback's or what the routes say.
func (s *Stack) tuple(d *Dialer, r netip.AddrPort) (wire.Tuple, error) {
	t := wire.Tuple{Remote: wire.AddrFrom(r.Addr()), RemotePort: r.Port(), LocalPort: d.Local.Port()}
	if !r.Addr().IsValid() || r.Addr().IsUnspecified() {
		return t, &net.AddrError{Err: "missing host", Addr: r.String()}
	}
	if a := d.Local.Addr(); a.IsValid() && !a.IsUnspecified() {
		t.Local = wire.AddrFrom(a)
		if t.Local.Is4() != t.Remote.Is4() {
			return t, &net.AddrError{Err: "local and remote addresses are of different versions", Addr: r.String()}
		}
		return t, s.checkLocal(t.Local, false)
	}
	h := s.group.Hosts[0]
	now := h.Enter()
	defer h.Exit()
	if p, _ := h.IP.Route(now, t.Remote, wire.Addr{}, ip.AnyPort); p == nil {
		return t, errnoError("connect", tcp.ErrUnreachable)
	}
	var ok bool
	if t.Local, ok = h.IP.Source(now, t.Remote, ip.AnyPort); !ok {
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
	o := s.tcpOptions(d.KeepAlive, d.KeepAliveConfig, d.TCPOptions)
	c := &TCPConn{h: s.pickHost(&t), flags: connecting}
	w := newWaiter()
	if err := s.connect(c, w, t, o); err != nil {
		w.free()
		return nil, errnoError("connect", err)
	}
	select {
	case <-w.woken:
	case <-ctx.Done():
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

// connect begins the handshake and leaves w to wait for its end.
func (s *Stack) connect(c *TCPConn, w *waiter, t wire.Tuple, o *tcp.Options) error {
	now := c.h.Enter()
	defer c.h.Exit()
	if s.isClosed() {
		return net.ErrClosed
	}
	conn, err := c.h.TCP.Connect(now, t, o, c)
	if err != nil {
		return err
	}
	c.c, c.tuple = conn, conn.Tuple()
	c.wq.park(w, c, 0)
	return nil
}

// handshakeDone ends the wait for the handshake.
func (c *TCPConn) handshakeDone(ev tcp.Events) {
	switch {
	case ev&tcp.Connected != 0:
		c.flags &^= connecting
		c.wq.wakeFirst(nil)
	case ev&tcp.Closed != 0:
		err := c.c.Err()
		if err == nil {
			err = tcp.ErrReset
		}
		c.failDial(c.h.Now(), err)
	}
}

// failDial ends a connection that was not made and tells the one who wanted it.
func (c *TCPConn) failDial(now clock.Time, err error) {
	t := c.c
	c.c = nil
	c.flags &^= connecting
	c.wq.wakeAll(err)
	t.Abort(now)
}

// cancelDial ends an attempt that takes too long; false says that it has ended already, and w was woken.
func (c *TCPConn) cancelDial(w *waiter) bool {
	now := c.h.Enter()
	defer c.h.Exit()
	if !c.wq.remove(w) {
		return false
	}
	t := c.c
	c.c = nil
	t.Abort(now)
	return true
}

// newAccepted makes a socket of an accepted connection, on its loop.
func newAccepted(h *host.Host, t *tcp.Conn) *TCPConn {
	c := &TCPConn{h: h, c: t, tuple: t.Tuple()}
	t.SetOwner(c)
	return c
}
