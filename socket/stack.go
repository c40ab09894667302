package socket

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Config is the configuration of a Stack with loops of its own. Loops is required.
type Config struct {
	Loops  []stack.Config // without Handler: each loop runs a part of the host
	Host   host.Config    // without Loops
	Addrs  []Address
	Routes []ip.Route

	// Backlog is the length of the accept queue of a listener on each loop, unless its ListenConfig sets one.
	// 0 is 1024.
	Backlog int

	// Nagle turns Nagle's algorithm on by default. As in package net, it is off otherwise.
	Nagle bool

	// KeepAlive is the default idle time of a connection before the first keepalive probe. As in package net, 0
	// is 15 s and negative disables keepalive. It has no effect if Host.TCP.Defaults enables keepalive.
	KeepAlive time.Duration

	// Resolver returns the addresses of a host name. If it is nil, names are resolved as by package net's own
	// resolver, over sockets of the stack: see Stack.Resolver.
	Resolver func(ctx context.Context, name string) ([]netip.Addr, error)

	// NameServers are asked for names without Resolver; nil takes those of /etc/resolv.conf.
	NameServers []netip.AddrPort
}

// AttachConfig describes a Stack over a host that exists. The fields that Config has too mean the same.
type AttachConfig struct {
	Backlog   int
	Nagle     bool
	KeepAlive time.Duration // without effect where the host's TCP.Defaults have a keepalive
	Resolver  func(ctx context.Context, name string) ([]netip.Addr, error)

	NameServers []netip.AddrPort

	// Done is closed when the loops have ended. It may be nil.
	Done <-chan struct{}

	// Release is called by Close when all sockets are closed. It may end the loops, and free what they use.
	// It may be nil.
	Release func() error
}

// Address is an address of the stack.
type Address struct {
	Device uint8        // index of the device that has it, as in the Devices of each of Loops
	Prefix netip.Prefix // with the length of the on-link prefix
	Detect bool         // first look for another host that has it (RFC 5227, RFC 4862 5.4)
}

// Stack is a TCP/IP stack with its sockets.
type Stack struct {
	backlog  int
	resolver func(ctx context.Context, name string) ([]netip.Addr, error)
	defaults tcp.Options // of connections and listeners
	group    *host.Group
	done     <-chan struct{} // closed when the loops have ended
	own      *ownLoops       // nil if attached
	next     atomic.Uint32   // loop of the next connection
	freeing  atomic.Int32    // commands on their way by which loops free ports, see Bound

	mu      sync.Mutex
	closed  bool                // no new sockets: Shutdown or Close was called
	ended   bool                // Close was called
	sockets map[closer]struct{} // listeners and UDP sockets, which have shards on several loops
	release func() error        // AttachConfig.Release
}

// ownLoops are the loops that New starts and Close ends.
type ownLoops struct {
	loops []*stack.Loop
	stop  context.CancelFunc
	err   error // what ended them, once Stack.done is closed
}

// closer is a socket that Close closes besides connections.
type closer interface{ Close() error }

// New returns a running Stack. The caller closes it, and then the drivers and pools of Loops.
func New(cfg Config) (*Stack, error) {
	a := AttachConfig{Backlog: cfg.Backlog, Nagle: cfg.Nagle, KeepAlive: cfg.KeepAlive, Resolver: cfg.Resolver, NameServers: cfg.NameServers}
	a.complete(&cfg.Host.TCP.Defaults)
	loops, err := stack.NewLoops(cfg.Loops...)
	if err != nil {
		return nil, err
	}
	cfg.Host.Loops = loops
	g, err := host.New(cfg.Host)
	if err == nil {
		err = configure(g, &cfg)
	}
	if err != nil {
		return nil, errors.Join(err, stack.CloseAll(loops...))
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	a.Done = done
	s := Attach(g, a)
	s.own = &ownLoops{loops: loops, stop: stop}
	go func() {
		defer close(done)
		defer stop()
		s.own.err = stack.ServeAll(ctx, loops...)
	}()
	_ = g.Sync(ctx) // an error means that a device has gone already, which Done reports
	return s, nil
}

// Attach returns a Stack over a host on loops of the caller, which serves them (stack.ServeAll), and closes
// them after the Stack. A host has one Stack at a time, because Close resets all its connections.
func Attach(g *host.Group, cfg AttachConfig) *Stack {
	s := &Stack{
		backlog: cmp.Or(cfg.Backlog, 1024), resolver: cfg.Resolver, defaults: g.TCPDefaults(),
		group: g, done: cfg.Done, sockets: map[closer]struct{}{}, release: cfg.Release,
	}
	cfg.complete(&s.defaults)
	if s.resolver == nil {
		s.resolver = resolveBy(s.Resolver(cfg.NameServers...))
	}
	return s
}

// complete sets what package net has as the default of a connection.
func (c *AttachConfig) complete(d *tcp.Options) {
	d.NoDelay = d.NoDelay || !c.Nagle
	if d.KeepAlive.Idle == 0 && c.KeepAlive >= 0 {
		setKeepAlive(&d.KeepAlive, net.KeepAliveConfig{Idle: c.KeepAlive})
	}
}

func configure(g *host.Group, cfg *Config) error {
	for _, a := range cfg.Addrs {
		if err := g.AddAddr(a.Device, a.Prefix, ip.Static, !a.Detect); err != nil {
			return err
		}
	}
	for _, r := range cfg.Routes {
		if err := g.AddRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// Group returns the host below the sockets: addresses, routes, neighbours, statistics.
func (s *Stack) Group() *host.Group { return s.group }

// Loops returns the loops that New started, for their statistics; nil if attached.
func (s *Stack) Loops() []*stack.Loop {
	if s.own == nil {
		return nil
	}
	return s.own.loops
}

// Done is closed when the loops have ended, after Close or because their devices failed. For an attached
// Stack it is AttachConfig.Done.
func (s *Stack) Done() <-chan struct{} { return s.done }

// register adds c to the sockets that Close closes. It fails if the Stack is closed.
func (s *Stack) register(c closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.sockets[c] = struct{}{}
	return nil
}

func (s *Stack) unregister(c closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, c)
}

func (s *Stack) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// pickHost returns the loop for a new connection: round-robin, or, if the local port is given, the loop that
// receives its packets.
func (s *Stack) pickHost(t *wire.Tuple) *host.Host {
	if t.LocalPort != 0 {
		return s.group.Owner(t)
	}
	return s.group.Hosts[int(s.next.Add(1))%len(s.group.Hosts)]
}

var (
	_ tcp.Owner = (*TCPConn)(nil)
	_ udp.Owner = (*udpShard)(nil)
)
