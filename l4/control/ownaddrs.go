package control

import (
	"maps"
	"net/netip"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
)

// ownAddrs are the addresses of this machine, as last read. The maps are replaced, never changed.
type ownAddrs struct {
	kernel     map[netip.Addr]bool
	broadcasts map[netip.Addr]bool // directed broadcasts of the kernel's networks
}

// kernelAddrs returns the kernel's own addresses, those of before when they cannot be read: without
// them the gateway would answer ARP for the machine's addresses and take its packets. Where they have changed the loops
// get them. The caller holds g.mu.
func (g *Gateway) kernelAddrs() map[netip.Addr]bool {
	read := g.opt.KernelAddrs
	if read == nil {
		read = nexthop.KernelAddrs
	}
	kernel, broadcasts, err := read()
	if err != nil {
		return g.own.kernel
	}
	changed := !maps.Equal(kernel, g.own.kernel) || !maps.Equal(broadcasts, g.own.broadcasts)
	g.own = ownAddrs{kernel, broadcasts}
	if old := g.snap.Load(); changed && old != nil {
		s := *old
		g.enterOwn(&s, g.cfg)
		s.Sources = s.Sources.Renew() // for connections from addresses that have become own ones
		g.snap.Store(&s)
	}
	return kernel
}

// enterOwn enters in s the addresses that no packet from outside can come from: those of the kernel, of the services, and
// of the host beside the gateway (stack: devices).
func (g *Gateway) enterOwn(s *datapath.Snapshot, c *config.Config) {
	own, broadcasts := maps.Clone(g.own.kernel), maps.Clone(g.own.broadcasts)
	for i := range c.Devices {
		for _, p := range c.Devices[i].Addresses {
			own[p.Addr()] = true
			if b, ok := nexthop.Broadcast(p); ok {
				broadcasts[b] = true
			}
		}
	}
	s.SetOwn(own, broadcasts)
}
