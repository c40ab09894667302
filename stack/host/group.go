package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Config describes a host. Loops is required.
type Config struct {
	// Loops are the loops of the host, which have not run yet, in the order of their mesh. Device i of
	// each loop is a queue of the same device. New joins them where they are several and not joined
	// yet. The caller runs and closes them.
	Loops []*stack.Loop

	// Dispatched leaves the handlers of the loops to the caller, whose own calls the hosts' Handle
	// and Tick. Otherwise New makes each host the handler of its loop.
	Dispatched bool

	// Links are the devices as ip sees them. nil takes what the drivers say, and accepts no router
	// advertisements.
	Links []ip.Link

	IP  ip.Config  // limits, for each loop; New fills in the rest
	TCP tcp.Config // limits and defaults, for each loop; New fills in the rest
	UDP udp.Config // as TCP

	Secret  [32]byte // zero is random
	Seed    uint64   // of what need not be secret; 0 is random
	HashKey [40]byte // of the engines (gpukern.Config); zero is the default

	// Changed reports changes of addresses, routes and neighbours. A loop calls it, so it must not block. It
	// may be nil.
	Changed func(now clock.Time, c ip.Change)

	// Other takes datagrams of protocols that ip.Node.Serve was given. The loop calls it. It may be nil.
	Other func(now clock.Time, h *Host, g *ip.Datagram) packet.Verdict
}

// Group is a host on one or more loops. Configuration goes to the first, the leader, which passes changes of
// addresses, routes and neighbours on to the others by commands. So each loop reads state of its own,
// without locks, and sees a change a moment later than the leader. Sync waits until all loops have it.
type Group struct {
	Hosts []*Host // by loop

	hasher      *gpukern.Hasher
	tcpDefaults tcp.Options
}

// New returns a host on loops that the caller has made. It is ready once the loops run, for instance
// by stack.ServeAll.
func New(cfg Config) (*Group, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	g := &Group{hasher: gpukern.NewHasher(cfg.HashKey), tcpDefaults: cfg.TCP.Defaults}
	for i := range cfg.Loops {
		g.Hosts = append(g.Hosts, newHost(g, i, &cfg))
	}
	return g, nil
}

// complete checks the configuration and fills in the defaults.
func (c *Config) complete() error {
	if len(c.Loops) == 0 {
		return errors.New("a loop is needed")
	}
	devices := c.Loops[0].Devices()
	for i, l := range c.Loops {
		if n := len(l.Devices()); n != len(devices) || n > int(ip.LoopDev) {
			return fmt.Errorf("loop %d has %d devices, the first %d, of at most %d", i, n, len(devices), ip.LoopDev)
		}
	}
	if err := c.join(); err != nil {
		return err
	}
	if c.Links == nil {
		for _, drv := range devices {
			info := drv.Info()
			c.Links = append(c.Links, ip.Link{MAC: info.MAC, MTU: info.MTU})
		}
	}
	if len(c.Links) != len(devices) {
		return fmt.Errorf("%d links for %d devices", len(c.Links), len(devices))
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

// join joins the loops where they are several. Loops that are joined already must be the whole mesh in its
// order: Owner relies on a flow's hash naming the place of its loop.
func (c *Config) join() error {
	m := c.Loops[0].Mesh()
	if m == nil && len(c.Loops) > 1 {
		_, err := stack.Join(c.Loops...)
		return err
	}
	if m != nil && !slices.Equal(m.Loops(), c.Loops) {
		return errors.New("the loops are not those of their mesh, in its order")
	}
	return nil
}

// TCPDefaults returns the options of connections and listeners that have none, as they were given to New.
func (g *Group) TCPDefaults() tcp.Options { return g.tcpDefaults }

// Owner returns the host on whose loop the flow's packets are processed: hash modulo the number of loops,
// as Handle has it for received packets.
func (g *Group) Owner(t *wire.Tuple) *Host {
	if len(g.Hosts) == 1 {
		return g.Hosts[0]
	}
	return g.Hosts[g.hash(t)%uint32(len(g.Hosts))]
}

// hash returns what the engines write to Desc.Hash of a flow's packets.
func (g *Group) hash(t *wire.Tuple) uint32 {
	if t.Local.Is4() {
		return g.hasher.Flow4(t.Local.As4(), t.Remote.As4(), t.LocalPort, t.RemotePort)
	}
	return g.hasher.Flow6(t.Local, t.Remote, t.LocalPort, t.RemotePort)
}

// Each calls f for each host, one after the other, with its loop held, and returns the first error.
func (g *Group) Each(f func(now clock.Time, h *Host) error) error {
	for _, h := range g.Hosts {
		if err := h.locked(f); err != nil {
			return err
		}
	}
	return nil
}

// Sync waits until every loop has run the commands that were queued before, and so knows what was
// configured before. It needs the loops to run; ctx ends the wait. Any goroutine may call it that holds no
// loop.
func (g *Group) Sync(ctx context.Context) error {
	done := make(chan struct{}, len(g.Hosts))
	for _, h := range g.Hosts {
		for !h.Do(func() { done <- struct{}{} }) { // 256 commands wait: the loop is about to run them
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
	for range g.Hosts {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Settle has all loops know what was configured before, as Sync does, without waiting for them: they need not run yet.
func (g *Group) Settle() {
	for more := true; more; {
		more = false
		_ = g.Each(func(_ clock.Time, h *Host) error { // its error is that of the function
			h.flushCommands()
			more = h.commands.RunWaiting() || len(h.pending) > 0 || more
			return nil
		})
	}
}

// locked calls f with the loop held.
func (h *Host) locked(f func(now clock.Time, h *Host) error) error {
	now := h.Enter()
	defer h.Exit()
	return f(now, h)
}

// onLeader calls f with the leader's loop held.
func (g *Group) onLeader(f func(now clock.Time, n *ip.Node) error) error {
	return g.Hosts[0].locked(func(now clock.Time, h *Host) error { return f(now, h.IP) })
}

// SetLink changes the link address and the MTU of device dev in all loops: see ip.Node.SetLink. Connections follow.
func (g *Group) SetLink(dev uint8, mac wire.MAC, mtu int) {
	_ = g.Each(func(now clock.Time, h *Host) error { // its error is that of the function
		h.IP.SetLink(now, dev, mac, mtu)
		h.TCP.PathsChanged(now)
		return nil
	})
}

// AddAddr assigns an address to device dev: see ip.Node.AddAddr.
func (g *Group) AddAddr(dev uint8, p netip.Prefix, o ip.Origin, noDAD bool) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.AddAddr(now, dev, p, o, noDAD) })
}

// SetLifetime sets until when an address is valid and preferred: see ip.Node.SetLifetime.
func (g *Group) SetLifetime(dev uint8, a wire.Addr, valid, preferred clock.Time) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.SetLifetime(now, dev, a, valid, preferred) })
}

// DelAddr removes an address.
func (g *Group) DelAddr(dev uint8, a wire.Addr) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.DelAddr(now, dev, a) })
}

// AddRoute adds a route.
func (g *Group) AddRoute(r ip.Route) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.AddRoute(now, r) })
}

// DelRoute removes a route.
func (g *Group) DelRoute(r ip.Route) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.DelRoute(now, r) })
}

// AddNeighbor adds a static neighbour.
func (g *Group) AddNeighbor(dev uint8, a wire.Addr, mac wire.MAC) error {
	return g.onLeader(func(now clock.Time, n *ip.Node) error { return n.AddNeighbor(now, dev, a, mac) })
}

// Handlers returns the hosts as the handlers of their loops, in the order of the loops.
func (g *Group) Handlers() []stack.Handler {
	list := make([]stack.Handler, len(g.Hosts))
	for i, h := range g.Hosts {
		list[i] = h
	}
	return list
}

// Claims returns rules for the packets of this host: all that are sent to an address that
// it has or is about to have, and ARP and neighbour discovery about it. A tentative
// address is included, because the answers to its probes (RFC 5227 2.1.1, RFC 4862 5.4.3)
// have to arrive. The other hosts of the group follow the first.
func (g *Group) Claims() (rules []pmd.Rule) {
	h := g.Hosts[0]
	h.Enter()
	defer h.Exit()
	for _, a := range h.IP.Addrs() {
		addr := a.Prefix.Addr()
		rules = append(rules, pmd.Rule{Addr: addr}, pmd.Rule{Addr: addr, Kind: pmd.Neighbor})
	}
	return rules
}
