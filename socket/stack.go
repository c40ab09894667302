package socket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Config describes a Stack. Host.Loops is required.
type Config struct {
	Host   host.Config
	Addrs  []Address
	Routes []ip.Route

	// Backlog is how many connections may wait to be accepted on each loop, where a ListenConfig does not
	// say; 0 is 1024.
	Backlog int

	// Nagle turns Nagle's algorithm on from the start; package net turns it off.
	Nagle bool

	// KeepAlive is the silence, in connections for which neither a Dialer nor a ListenConfig says otherwise,
	// before the first keepalive probe. 0 is 15 s, as in package net; negative is no keepalive. It has no
	// effect where Host.TCP.Defaults has a keepalive.
	KeepAlive time.Duration

	// Resolver returns the addresses of a name. Without it only numeric addresses are understood.
	Resolver func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Address is an address of the stack.
type Address struct {
	Device uint8        // index of the device that has it, as in the Ports of each of Host.Loops
	Prefix netip.Prefix // with the length of the on-link prefix
	Detect bool         // first look for another host that has it (RFC 5227, RFC 4862 5.4)
}

// Stack is a host with its sockets.
type Stack struct {
	cfg   Config
	group *host.Group
	stop  context.CancelFunc
	done  chan struct{} // closed when the loops have ended
	err   error         // of the loops, once done is closed
	next  atomic.Uint32 // loop of the next connection

	mu      sync.Mutex
	closed  bool
	sockets map[closer]struct{} // listeners and UDP sockets, which have shards on several loops
	release func() error        // frees what the loops used; nil where the caller does
}

// closer is what Close has to close beside connections.
type closer interface{ Close() error }

// New returns a Stack whose loops run. The caller closes it, and then what Host.Loops is made of.
func New(cfg Config) (*Stack, error) {
	if cfg.Backlog == 0 {
		cfg.Backlog = 1024
	}
	d := &cfg.Host.TCP.Defaults
	d.NoDelay = d.NoDelay || !cfg.Nagle
	if d.KeepAlive.Idle == 0 && cfg.KeepAlive >= 0 {
		setKeepAlive(&d.KeepAlive, net.KeepAliveConfig{Idle: cfg.KeepAlive})
	}
	g, err := host.New(cfg.Host)
	if err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, group: g, done: make(chan struct{}), sockets: map[closer]struct{}{}}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if err := s.configure(); err != nil {
		stop()
		return nil, errors.Join(err, g.Close())
	}
	go func() {
		defer close(s.done)
		s.err = g.Serve(ctx)
	}()
	s.syncLoops()
	return s, nil
}

// syncLoops waits until every loop knows what configure told the first.
func (s *Stack) syncLoops() {
	known := make(chan struct{}, len(s.group.Hosts))
	n := 0
	for _, h := range s.group.Hosts {
		if h.Loop.Do(func() { known <- struct{}{} }) {
			n++
		}
	}
	for range n {
		select {
		case <-known:
		case <-s.done: // a device has gone already
			return
		}
	}
}

func (s *Stack) configure() error {
	for _, a := range s.cfg.Addrs {
		if err := s.group.AddAddr(a.Device, a.Prefix, ip.Static, !a.Detect); err != nil {
			return err
		}
	}
	for _, r := range s.cfg.Routes {
		if err := s.group.AddRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// Group returns the host, for what Stack does not do itself: addresses, routes, statistics.
func (s *Stack) Group() *host.Group { return s.group }

// Done is closed when the loops have ended, by Close or because their devices did.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Close closes all sockets: connections are reset, and goroutines that wait return net.ErrClosed. Then
// it ends the loops and returns what ended them, if it was not Close. It may be called twice.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	open := s.sockets
	s.sockets = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Close() // it was open
	}
	_ = s.group.Each(func(now clock.Time, h *host.Host) error {
		abortAll(now, h)
		return nil
	})
	s.stop()
	<-s.done
	err := errors.Join(s.err, s.group.Close())
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// abortAll resets the connections of a loop, those too that nobody holds any more.
func abortAll(now clock.Time, h *host.Host) {
	var all []*TCPConn
	h.TCP.Each(func(t *tcp.Conn) {
		if c, ok := t.Owner().(*TCPConn); ok {
			all = append(all, c)
		}
	})
	for _, c := range all {
		c.abort(now)
	}
}

// register has Close close c too; it fails when that has happened already.
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

// pickHost returns the loop for a new connection: all in turn, or the one that segments of t come to, where
// its ports are chosen already.
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
