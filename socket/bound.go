package socket

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// BindConfig has the parameters of Bind besides the address: those by which bind(2) of Linux decides which sockets may be
// bound to an address and port together. The zero value shares with none.
type BindConfig struct {
	ReuseAddr bool   // SO_REUSEADDR: beside others that say so, until one of them listens
	ReusePort bool   // SO_REUSEPORT: beside others of the same User that say so; their listeners share the connections
	V6Only    bool   // IPV6_V6ONLY: [::] does not have the addresses of IPv4. "tcp6" says so, too
	FreeBind  bool   // IP_FREEBIND: the address need not be the stack's
	User      uint32 // whose socket it is
}

// Bound is a local address and TCP port that nothing else gets: bind(2) before it is known whether listen(2) or connect(2)
// follows. Either takes it over: Bound.Listen, or a connect with Dialer.Bound.
type Bound struct {
	s      *Stack
	cfg    BindConfig
	local  wire.Addr
	addr   netip.AddrPort
	shards []*tcp.Binding // by loop, which guards it

	mu     sync.Mutex
	taken  bool // a Listener has it, a connection or a connect that has not ended
	closed bool // it is freed when it is not taken
	freed  bool
}

// Bind reserves an address and port in a network "tcp", "tcp4" or "tcp6"; the invalid netip.Addr is the unspecified
// address, and port 0 is chosen. The errors are EADDRINUSE, EADDRNOTAVAIL and those of the address. The caller holds no loop.
func (s *Stack) Bind(cfg *BindConfig, network string, at netip.AddrPort) (*Bound, error) {
	b, err := s.bindTCP(cfg, network, at)
	if err != nil {
		return nil, opError("bind", network, nil, net.TCPAddrFromAddrPort(at), errnoError("bind", err))
	}
	return b, nil
}

func (s *Stack) bindTCP(cfg *BindConfig, network string, at netip.AddrPort) (*Bound, error) {
	proto, f, err := parseNetwork(network)
	if err == nil && proto != "tcp" {
		err = net.UnknownNetworkError(network)
	}
	if err != nil {
		return nil, err
	}
	a, err := localAddr(f, at)
	if err == nil && !cfg.FreeBind {
		err = s.checkLocal(a, false)
	}
	if err != nil {
		return nil, err
	}
	b := &Bound{s: s, cfg: *cfg, local: a, shards: make([]*tcp.Binding, len(s.group.Hosts))}
	b.cfg.V6Only = cfg.V6Only || f == '6'
	err = b.reserve(at.Port())
	if err == nil {
		err = s.register(b)
	}
	if err != nil {
		b.closeShards()
		return nil, err
	}
	return b, nil
}

// reserve takes a port on all loops. One that was freed a moment ago may still be reserved on some of them.
func (b *Bound) reserve(port uint16) error {
	return b.s.retryFreed(func() error {
		for try := 0; ; try++ {
			got, err := b.reserveOnce(port, try < maxPortTries)
			if err == nil {
				b.addr = netip.AddrPortFrom(b.local.Netip(), got)
			}
			if err != tcp.ErrInUse || port != 0 || try >= maxPortTries {
				return err
			}
		}
	})
}

// retryFreed calls f once more where it met a port that some loop has not freed yet, although its socket was closed before.
func (s *Stack) retryFreed(f func() error) error {
	freeing := s.freeing.Load() > 0 // before the call, or they could be done by its end
	err := f()
	if err == tcp.ErrInUse && freeing {
		s.awaitFreed()
		err = f()
	}
	return err
}

// reserveOnce takes a port on all loops or on none. The first one chooses it where it is 0, and idle says that the others
// must then have no connection at it either.
func (b *Bound) reserveOnce(port uint16, idle bool) (uint16, error) {
	chosen := port == 0
	o := tcp.BindOptions{Reuse: b.cfg.ReuseAddr, Share: b.cfg.ReusePort, V6Only: b.cfg.V6Only, User: b.cfg.User}
	for i, h := range b.s.group.Hosts {
		h.Enter()
		x, err := h.TCP.Bind(b.local, port, o)
		if err == nil {
			b.shards[i] = x
			_, port = x.Addr()
		}
		if err == nil && chosen && idle && h.TCP.PortActive(port) {
			err = tcp.ErrInUse
		}
		h.Exit()
		if err != nil {
			b.closeShards()
			return 0, err
		}
	}
	return port, nil
}

// closeShards frees the port on all loops.
func (b *Bound) closeShards() { b.each(nil, b.closeShard) }

func (b *Bound) closeShard(i int) {
	if x := b.shards[i]; x != nil {
		x.Close()
		b.shards[i] = nil
	}
}

// freeTime is the time that awaitFreed waits for loops that do not run.
const freeTime = time.Second

// awaitFreed waits until the loops have freed the ports that were closed before.
func (s *Stack) awaitFreed() {
	ctx, cancel := context.WithTimeout(context.Background(), freeTime)
	defer cancel()
	_ = s.group.Sync(ctx)
}

// Addr returns the address, with the port that was chosen.
func (b *Bound) Addr() netip.AddrPort { return b.addr }

// take makes the caller the one that uses b; EINVAL is that another does, or Close was called.
func (b *Bound) take() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken || b.closed {
		return syscall.EINVAL
	}
	b.taken = true
	return nil
}

// drop ends what take began: b can be taken again, unless it was closed. held is the loop that the caller holds, nil
// for none. b may be nil.
func (b *Bound) drop(held *host.Host) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.taken = false
	closed := b.closed
	b.mu.Unlock()
	if !closed {
		b.narrow(held, wire.Addr{})
	}
	b.free(held)
}

// narrow leaves a b that is bound to all addresses the one of its connection, or gives it all again where a is zero.
func (b *Bound) narrow(held *host.Host, a wire.Addr) {
	if !b.local.Unspecified() {
		return
	}
	b.each(held, func(i int) {
		if x := b.shards[i]; x != nil {
			x.Narrow(a)
		}
	})
}

// each calls f with each loop held: at once where the caller holds none, or that one, and soon on the others, for which it must not
// wait.
func (b *Bound) each(held *host.Host, f func(i int)) {
	for i, h := range b.s.group.Hosts {
		switch held {
		case h:
			f(i)
		case nil:
			h.Enter()
			f(i)
			h.Exit()
		default:
			b.s.freeing.Add(1)
			passTo(h, func(*host.Host) {
				f(i)
				b.s.freeing.Add(-1)
			})
		}
	}
}

// end is Close by what has taken b.
func (b *Bound) end(held *host.Host) {
	b.mu.Lock()
	b.closed, b.taken = true, false
	b.mu.Unlock()
	b.free(held)
}

// Close frees the address and port, unless a Listener or a connection has it: then it is freed as that is closed, and after
// a connect that fails.
func (b *Bound) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.free(nil)
	return nil
}

// free returns the port if b is closed and not taken. held is as of drop.
func (b *Bound) free(held *host.Host) {
	b.mu.Lock()
	due := b.closed && !b.taken && !b.freed
	b.freed = b.freed || due
	b.mu.Unlock()
	if !due {
		return
	}
	b.s.unregister(b)
	b.each(held, b.closeShard)
}

// Listen makes a Listener of b, which has the port from then on and frees it with its Close. The error is EADDRINUSE where
// another one that is bound to the address listens, and EINVAL where b is in use. The caller holds no loop.
func (b *Bound) Listen(cfg *ListenConfig) (*Listener, error) {
	l, err := b.listen(cfg)
	if err != nil {
		return nil, opError("listen", "tcp", nil, net.TCPAddrFromAddrPort(b.addr), errnoError("listen", err))
	}
	return l, nil
}

func (b *Bound) listen(cfg *ListenConfig) (*Listener, error) {
	if err := b.take(); err != nil {
		return nil, err
	}
	o := b.s.tcpOptions(cfg.KeepAlive, cfg.KeepAliveConfig, cfg.TCPOptions)
	backlog := cmp.Or(cfg.Backlog, b.s.backlog)
	open := func(h *host.Host, e *listenerShard, _ uint16) (*tcp.Listener, error) {
		x := b.shards[h.Index()]
		if x == nil {
			return nil, net.ErrClosed
		}
		return x.Listen(backlog, o, e)
	}
	l, err := b.s.newListener(b.addr.Port(), b.local, cfg.Process, open)
	if err != nil {
		b.drop(nil)
		return nil, err
	}
	l.bound = b
	return l, nil
}

// local returns the local address that d asks for, invalid or with port 0 where it does not say.
func (d *Dialer) local() netip.AddrPort {
	if d.Bound == nil {
		return d.Local
	}
	return d.Bound.addr
}

// covers reports whether a connection of d may have the local address a: not one of IPv4 from an address of IPv6 alone.
func (d *Dialer) covers(a wire.Addr) bool {
	b := d.Bound
	return b == nil || b.local.Is4() == a.Is4() || !b.local.Is4() && !b.cfg.V6Only
}

// errBoundElsewhere is a Dialer.Bound of another Stack.
var errBoundElsewhere = errors.New("bound to an address of another stack")

// takeBound takes the Bound of a Dialer, which may have none.
func (s *Stack) takeBound(d *Dialer) error {
	switch {
	case d.Bound == nil:
		return nil
	case d.Bound.s != s:
		return errBoundElsewhere
	}
	return d.Bound.take()
}

// connectTCP is tcp.Mux.Connect on a loop, whose holder calls it, from the Bound of d if it has one.
func connectTCP(h *host.Host, d *Dialer, t wire.Tuple, o *tcp.Options, c *TCPConn) (*tcp.Conn, error) {
	if d.Bound == nil {
		return h.TCP.Connect(h.Now(), t, o, c)
	}
	x := d.Bound.shards[h.Index()]
	if x == nil {
		return nil, net.ErrClosed
	}
	conn, err := x.Connect(h.Now(), t, o, c)
	if err == nil {
		c.extras().bound = d.Bound
		d.Bound.narrow(h, t.Local)
	}
	return conn, err
}

// dropBound ends what takeBound began, for a connect that failed before it had a connection. held is as of Bound.drop.
func (d *Dialer) dropBound(held *host.Host) {
	if d.Bound != nil {
		d.Bound.drop(held)
	}
}

// leaveBound returns the Bound of a connection that was not established, to be dropped when that is gone.
func (c *TCPConn) leaveBound() *Bound {
	if c.extra == nil {
		return nil
	}
	b := c.extra.bound
	c.extra.bound = nil
	return b
}
