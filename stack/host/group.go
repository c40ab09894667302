package host

import (
	"context"
	"errors"
	"net/netip"

	"github.com/millrace/millrace/clock"
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

	IP  ip.Config  // limits; New fills in the rest
	TCP tcp.Config // limits and defaults, which are shared out to the loops; New fills in the rest
	UDP udp.Config // as TCP

	Secret  [32]byte // zero is random
	Seed    uint64   // of what need not be secret; 0 is random
	HashKey [40]byte // of the engines (gpukern.Config); zero is the default

	// Changed is told of what became of the addresses, from the goroutine of a loop, which it must not
	// hold up. It may be nil.
	Changed func(now clock.Time, c ip.Change)

	// Other gets datagrams of protocols that ip.Node.Serve was told of. It is called by the loop. It may
	// be nil.
	Other func(now clock.Time, h *Host, g *ip.Datagram) packet.Verdict
}

// Group is a host on one or more loops.
type Group struct {
	Hosts []*Host // by loop
	Mesh  *stack.Mesh
}

// New returns a host. The caller serves it, closes it, and then closes the parts of the loops.
func New(cfg Config) (*Group, error) { return nil, errors.New("host: not yet") }

// Serve serves all loops until ctx ends.
func (g *Group) Serve(ctx context.Context) error { return nil }

// Close ends the loops' mailboxes. Call it after Serve has returned.
func (g *Group) Close() error { return nil }

// Owner returns the host to whose loop segments of the flow come.
func (g *Group) Owner(t *ip.Tuple) *Host { return g.Hosts[0] }

// Each calls f for each host in turn, as the owner of its loop.
func (g *Group) Each(f func(now clock.Time, h *Host) error) error { return nil }

// AddAddr gives port an address, on all loops: see ip.Node.AddAddr.
func (g *Group) AddAddr(port uint8, p netip.Prefix, o ip.Origin, noDAD bool) error { return nil }

// DelAddr takes an address away.
func (g *Group) DelAddr(port uint8, a ip.Addr) error { return nil }

// AddRoute adds a route on all loops.
func (g *Group) AddRoute(r ip.Route) error { return nil }

// DelRoute removes a route.
func (g *Group) DelRoute(r ip.Route) error { return nil }

// AddNeighbor adds a neighbour that stays, on all loops.
func (g *Group) AddNeighbor(port uint8, a ip.Addr, mac wire.MAC) error { return nil }

// Stats is what the transports and loops of all hosts have counted.
type Stats struct {
	Loop stack.Stats
	TCP  tcp.Stats
	UDP  udp.Stats
}
