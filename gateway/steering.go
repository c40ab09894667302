package gateway

import (
	"net"
	"net/netip"
	"slices"
)

// Steer names packets that drivers bring to the gateway. All else stays with the kernel, so the
// machine keeps its own addresses, its ssh and its health checks.
type Steer struct {
	Addr     netip.Addr
	Proto    uint8     // IP protocol
	Ports    PortRange // of the same side as Addr
	Source   bool      // Addr and Ports are the packet's source: replies to clients' own addresses
	Neighbor bool      // ARP and neighbour discovery for Addr, too
	Loop     int       // the loop that must get them; -1 is any
}

// Steering returns what the loops have to receive now. It changes by Reload; addresses that a
// reload removed stay as long as they have connections. Addresses that the kernel has itself keep
// their ARP and neighbour discovery there: it answers for them, and needs the answers that it gets.
func (g *Gateway) Steering() []Steer {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.snap.Load()
	list := g.steerFronts(s)
	list = append(list, g.steerReplies(s)...)
	list = append(list, g.steerSNAT(s)...)
	kernels := kernelAddrs()
	for i := range list {
		list[i].Neighbor = list[i].Neighbor && !kernels[list[i].Addr]
	}
	return list
}

// kernelAddrs returns the addresses of this machine's interfaces. Where they cannot be read none is
// known, as on a machine that has none.
func kernelAddrs() map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			set[p.Addr()] = true
		}
	}
	return set
}

// steerFronts returns the packets of clients.
func (g *Gateway) steerFronts(s *snapshot) (list []Steer) {
	live := g.live()
	for _, f := range s.fronts {
		if f.service >= 0 || live {
			list = append(list, Steer{
				Addr: f.addr.Addr(), Proto: f.proto, Ports: PortRange{f.port, f.port},
				Neighbor: f.service >= 0, Loop: -1,
			})
		}
	}
	return list
}

// live reports whether there is a connection.
func (g *Gateway) live() bool {
	return slices.ContainsFunc(g.handlers, func(h *Handler) bool { return h.live.Load() > 0 })
}

// steerReplies returns the packets of backends that see their clients' addresses.
func (g *Gateway) steerReplies(s *snapshot) (list []Steer) {
	for i, e := range s.endpoints {
		if e.client || e.wasClient && g.endpointFlows(s, uint32(i)) > 0 {
			list = append(list, Steer{
				Addr: e.addr.Addr(), Proto: e.proto, Ports: PortRange{e.port, e.port}, Source: true, Loop: -1,
			})
		}
	}
	return list
}

// steerSNAT returns the packets of backends that see the gateway's address: the port names the
// loop.
func (g *Gateway) steerSNAT(s *snapshot) (list []Steer) {
	live := g.live()
	for _, a := range s.snats[1:] {
		neighbor := s.local(a)
		if !neighbor && !live {
			continue
		}
		for _, proto := range []uint8{protoOf("tcp"), protoOf("udp")} {
			for i := range g.handlers {
				list = append(list, Steer{
					Addr: a.Addr(), Proto: proto, Ports: g.cfg.SNATPorts.loop(i, len(g.handlers)),
					Neighbor: neighbor, Loop: i,
				})
			}
		}
	}
	return list
}
