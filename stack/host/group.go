package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Config describes a host. Loops is required.
type Config struct {
	// Loops are the loops of the host, each with its own ports, pool and engine. Handler is left nil.
	// Port i of each loop is a queue of the same device.
	Loops []stack.Config

	// Links are the ports as ip sees them. nil takes what the drivers say, and accepts no router
	// advertisements.
	Links []ip.Link

	IP  ip.Config  // limits, for each loop; New fills in the rest
	TCP tcp.Config // limits and defaults, for each loop; New fills in the rest
	UDP udp.Config // as TCP

	Secret  [32]byte // zero is random
	Seed    uint64   // of what need not be secret; 0 is random
	HashKey [40]byte // of the engines (gpukern.Config); zero is the default

	// Changed is told of what became of the addresses and the like, by a loop, which it must not hold up.
	// It may be nil.
	Changed func(now clock.Time, c ip.Change)

	// Other gets datagrams of protocols that ip.Node.Serve was told of. It is called by the loop. It may
	// be nil.
	Other func(now clock.Time, h *Host, g *ip.Datagram) packet.Verdict
}

// Group is a host on one or more loops. Addresses, routes and neighbours are told to the first, the
// leader, which tells the others.
type Group struct {
	Hosts []*Host // by loop
	Mesh  *stack.Mesh

	hasher *gpukern.Hasher
}

// New returns a host. The caller serves it, closes it, and then closes the parts of the loops.
func New(cfg Config) (*Group, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	g := &Group{hasher: gpukern.NewHasher(cfg.HashKey)}
	loops := make([]*stack.Loop, 0, len(cfg.Loops))
	for i := range cfg.Loops {
		h, err := newHost(g, i, &cfg)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("host: loop %d: %w", i, err), g.Close())
		}
		g.Hosts, loops = append(g.Hosts, h), append(loops, h.Loop)
	}
	if len(loops) == 1 {
		return g, nil
	}
	var err error
	if g.Mesh, err = stack.Join(loops...); err != nil {
		return nil, errors.Join(fmt.Errorf("host: %w", err), g.Close())
	}
	return g, nil
}

// complete fills in what was left to New.
func (c *Config) complete() error {
	if len(c.Loops) == 0 {
		return errors.New("a loop is needed")
	}
	for i := range c.Loops {
		if n := len(c.Loops[i].Ports); n != len(c.Loops[0].Ports) || n > int(ip.LoopPort) {
			return fmt.Errorf("loop %d has %d ports, the first %d, of at most %d", i, n, len(c.Loops[0].Ports), ip.LoopPort)
		}
	}
	if c.Links == nil {
		for _, drv := range c.Loops[0].Ports {
			info := drv.Info()
			c.Links = append(c.Links, ip.Link{MAC: info.MAC, MTU: info.MTU})
		}
	}
	if len(c.Links) != len(c.Loops[0].Ports) {
		return fmt.Errorf("%d links for %d ports", len(c.Links), len(c.Loops[0].Ports))
	}
	for i := range c.Links {
		if c.Links[i].MTU == 0 {
			c.Links[i].MTU = 1500
		}
	}
	if c.Secret == ([32]byte{}) {
		_, _ = rand.Read(c.Secret[:]) // never fails
	}
	for c.Seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:])
		c.Seed = binary.NativeEndian.Uint64(b[:])
	}
	return nil
}

// Serve serves all loops until ctx ends, or one of them fails.
func (g *Group) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(g.Hosts))
	for _, h := range g.Hosts {
		go func() { results <- h.Loop.Serve(ctx) }()
	}
	var errs []error
	for range g.Hosts {
		if err := <-results; err != nil {
			errs = append(errs, err)
			cancel()
		}
	}
	return errors.Join(errs...)
}

// Close ends the loops' mailboxes. Call it after Serve has returned.
func (g *Group) Close() error {
	var errs []error
	for _, h := range g.Hosts {
		errs = append(errs, h.Loop.Close())
	}
	return errors.Join(errs...)
}

// Owner returns the host to whose loop segments of the flow come.
func (g *Group) Owner(t *wire.Tuple) *Host {
	if len(g.Hosts) == 1 {
		return g.Hosts[0]
	}
	return g.Hosts[g.hash(t)%uint32(len(g.Hosts))]
}

// hash returns what the engines write to Desc.Hash of packets of a flow.
func (g *Group) hash(t *wire.Tuple) uint32 {
	if t.Local.Is4() {
		return g.hasher.Flow4(t.Local.As4(), t.Remote.As4(), t.LocalPort, t.RemotePort)
	}
	return g.hasher.Flow6(t.Local, t.Remote, t.LocalPort, t.RemotePort)
}

// Each calls f for each host in turn, as the owner of its loop, and returns the first error.
func (g *Group) Each(f func(now clock.Time, h *Host) error) error {
	for _, h := range g.Hosts {
		if err := h.do(f); err != nil {
			return err
		}
	}
	return nil
}

// do calls f as the owner of the loop.
func (h *Host) do(f func(now clock.Time, h *Host) error) error {
	now := h.Enter()
	defer h.Exit()
	return f(now, h)
}

// lead calls f as the owner of the leader's loop.
func (g *Group) lead(f func(now clock.Time, n *ip.Node) error) error {
	return g.Hosts[0].do(func(now clock.Time, h *Host) error { return f(now, h.IP) })
}

// AddAddr gives port an address: see ip.Node.AddAddr.
func (g *Group) AddAddr(port uint8, p netip.Prefix, o ip.Origin, noDAD bool) error {
	return g.lead(func(now clock.Time, n *ip.Node) error { return n.AddAddr(now, port, p, o, noDAD) })
}

// DelAddr takes an address away.
func (g *Group) DelAddr(port uint8, a wire.Addr) error {
	return g.lead(func(now clock.Time, n *ip.Node) error { return n.DelAddr(now, port, a) })
}

// AddRoute adds a route.
func (g *Group) AddRoute(r ip.Route) error {
	return g.lead(func(now clock.Time, n *ip.Node) error { return n.AddRoute(now, r) })
}

// DelRoute removes a route.
func (g *Group) DelRoute(r ip.Route) error {
	return g.lead(func(now clock.Time, n *ip.Node) error { return n.DelRoute(now, r) })
}

// AddNeighbor adds a neighbour that stays.
func (g *Group) AddNeighbor(port uint8, a wire.Addr, mac wire.MAC) error {
	return g.lead(func(now clock.Time, n *ip.Node) error { return n.AddNeighbor(now, port, a, mac) })
}
