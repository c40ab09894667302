package control

import (
	"net/netip"
	"slices"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/wire"
)

// Steer names packets that drivers bring to the gateway. All else stays with the kernel, so the
// machine keeps its own addresses, its ssh and its health checks.
type Steer struct {
	Addr           netip.Addr
	Bits           int                // not 0: all addresses that share so many bits with Addr
	Proto          uint8              // IP protocol
	Ports          datapath.PortRange // of the same side as Addr; of ICMP and ICMPv6 the types; the zero PortRange is all
	LaterFragments bool               // fragments after the first, which have no ports
	Source         bool               // Addr and Ports are the packet's source: replies to clients' own addresses
	Neighbor       bool               // ARP and neighbour discovery for Addr, too
	Keep           bool               // nothing else: packets to Addr are the kernel's, whatever their source
	Loop           int                // the loop that must get them; -1 is any
}

// Steering returns what the loops have to receive now. It changes by Reload; addresses that a
// reload removed stay as long as they have connections. A standby has no ARP and neighbour discovery; packets that hosts still
// send here are forwarded. Addresses that the kernel has itself keep
// their ARP and neighbour discovery there: it answers for them, and needs the answers that it gets.
// What backends send to these addresses is the kernel's as well, but for what a service has there.
func (g *Gateway) Steering() []Steer {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.snap.Load()
	list := g.steerVIPs(s)
	list = append(list, g.steerReplies(s)...)
	list = append(list, g.steerSNAT(s)...)
	list = append(list, g.steerTunnels()...)
	kernels := g.kernelAddrs()
	list = append(list, steerClosed(s, kernels)...)
	for i := range list {
		list[i].Neighbor = list[i].Neighbor && !kernels[list[i].Addr] && g.Answers()
	}
	return append(withMessages(list, kernels), kept(list, kernels)...)
}

// Types of messages for the gateway, see icmp.go: errors, and to its own addresses echo requests (8,
// 128) too. One range is one rule for a driver, so what lies between comes with it to be dropped: only
// hosts on a link have a use for it. From backends the kernel may route pings to others, and to addresses
// that it has itself it answers them.
var (
	errors4, errors6 = []datapath.PortRange{only(3), {First: 11, Last: 12}}, []datapath.PortRange{{First: 1, Last: 4}}
	to4, to6         = []datapath.PortRange{{First: 3, Last: 12}}, []datapath.PortRange{{First: 1, Last: 4}, only(128)}
)

func only(port uint16) datapath.PortRange { return datapath.PortRange{First: port, Last: port} }

// withMessages adds what belongs to the packets of list: ICMP for the address, or errors from it, and the
// fragments after the first, also those of echo requests.
func withMessages(list []Steer, kernels map[netip.Addr]bool) []Steer {
	out := slices.Clone(list)
	for _, s := range list {
		if s.Bits != 0 {
			continue
		}
		echo := !s.Source && !kernels[s.Addr]
		more := Steer{Addr: s.Addr, Source: s.Source, Loop: -1}
		for _, more.Ports = range messageTypes(s.Addr, echo) {
			more.Proto = icmpOf(s.Addr)
			out = append(out, more)
		}
		rest := Steer{Addr: s.Addr, Proto: s.Proto, LaterFragments: true, Source: s.Source, Loop: -1}
		if s.Ports != (datapath.PortRange{}) { // a rule for all ports takes them
			out = append(out, rest)
		}
		if echo {
			rest.Proto = icmpOf(s.Addr)
			out = append(out, rest)
		}
	}
	return unique(out)
}

// messageTypes returns the types of messages for an address, with echo or without.
func messageTypes(a netip.Addr, echo bool) []datapath.PortRange {
	switch {
	case a.Is4() && echo:
		return to4
	case a.Is4():
		return errors4
	case echo:
		return to6
	}
	return errors6
}

// icmpOf returns the ICMP of an address's family.
func icmpOf(a netip.Addr) uint8 {
	if a.Is4() {
		return wire.ProtoICMP
	}
	return wire.ProtoICMPv6
}

// steerClosed returns all ports of the service addresses at which closed ones are answered (datapath.Snapshot.Closes). The
// ports of an address that the kernel has itself are the kernel's: something may listen there.
func steerClosed(s *datapath.Snapshot, kernels map[netip.Addr]bool) (list []Steer) {
	for i := range s.VIPs {
		v := &s.VIPs[i]
		if a := v.Addr(); !v.Free() && s.Closes(a) && !kernels[a] {
			for _, proto := range []uint8{wire.ProtoTCP, wire.ProtoUDP} {
				list = append(list, Steer{Addr: a, Proto: proto, Loop: -1})
			}
		}
	}
	return unique(list)
}

// unique returns list without repetitions, in its order.
func unique(list []Steer) (out []Steer) {
	seen := map[Steer]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// kept returns the kernel's own addresses, if anything in list could take packets to them by source or
// by prefix.
func kept(list []Steer, kernels map[netip.Addr]bool) (out []Steer) {
	if !slices.ContainsFunc(list, func(s Steer) bool { return s.Source || s.Bits != 0 }) {
		return nil
	}
	for a := range kernels {
		out = append(out, Steer{Addr: a, Keep: true, Loop: -1})
	}
	slices.SortFunc(out, func(a, b Steer) int { return a.Addr.Compare(b.Addr) })
	return out
}

// steerTunnels returns the errors about tunnels.
func (g *Gateway) steerTunnels() (list []Steer) {
	for _, p := range g.cfg.Tunnel.Sources {
		list = append(list, Steer{Addr: p.Masked().Addr(), Bits: p.Bits(), Proto: icmpOf(p.Addr()), Loop: -1})
	}
	return list
}

// steerVIPs returns the packets of clients.
func (g *Gateway) steerVIPs(s *datapath.Snapshot) (list []Steer) {
	live := g.live()
	for i := range s.VIPRanges {
		list = append(list, steerRange(s, &s.VIPRanges[i], live)...)
	}
	for _, f := range s.VIPs {
		if !f.Range && (f.Service >= 0 || live && !f.Free()) {
			list = append(list, Steer{
				Addr: f.Addr(), Proto: f.Proto, Ports: only(f.Port),
				Neighbor: f.Service >= 0, Loop: -1,
			})
		}
	}
	return list
}

// steerRange returns the packets of clients to the ranges of an address: joined, for drivers have room for few. With live
// those are among them that services had.
func steerRange(s *datapath.Snapshot, r *datapath.VIPRange, live bool) (list []Steer) {
	var ports []datapath.PortRange
	served := false
	for _, span := range r.Spans {
		served = served || span.Service >= 0
		if live || span.Service >= 0 {
			ports = append(ports, span.Ports)
		}
	}
	v := &s.VIPs[r.VIP]
	for _, p := range joined(ports) {
		list = append(list, Steer{Addr: v.Addr(), Proto: v.Proto, Ports: p, Neighbor: served, Loop: -1})
	}
	return list
}

// live reports whether there is a connection.
func (g *Gateway) live() bool {
	return slices.ContainsFunc(g.handlers, func(h *datapath.Handler) bool { return h.Connections() > 0 })
}

// steerReplies returns the packets of backends that see their clients' addresses.
func (g *Gateway) steerReplies(s *datapath.Snapshot) (list []Steer) {
	for i, e := range s.Endpoints {
		if !e.Transparent && (!e.WasTransparent || g.endpointFlows(s, uint32(i)) == 0) {
			continue
		}
		if e.Range {
			for _, ports := range g.replyPorts(s, uint32(i)) {
				list = append(list, Steer{Addr: e.Addr(), Proto: e.Proto, Ports: ports, Source: true, Loop: -1})
			}
		} else {
			list = append(list, Steer{
				Addr: e.Addr(), Proto: e.Proto, Ports: only(e.Port), Source: true, Loop: -1,
			})
		}
	}
	return list
}

// replyPorts returns the ports of an endpoint with a range from which backends answer to clients' own addresses: also those
// of before as long as it has connections.
func (g *Gateway) replyPorts(s *datapath.Snapshot, place uint32) (list []datapath.PortRange) {
	e := s.Endpoints[place]
	if g.endpointFlows(s, place) > 0 {
		return e.Replies
	}
	for _, span := range e.Spans {
		if span.Transparent {
			list = append(list, span.Ports)
		}
	}
	return joined(list)
}

// steerSNAT returns the packets of backends that see the gateway's address: the port names the
// loop.
func (g *Gateway) steerSNAT(s *datapath.Snapshot) (list []Steer) {
	live := g.live()
	for _, a := range s.SNATs() {
		neighbor := s.Local(a)
		if !neighbor && !live {
			continue
		}
		for _, proto := range []uint8{protoOf("tcp"), protoOf("udp")} {
			for i := range g.handlers {
				list = append(list, Steer{
					Addr: a, Proto: proto, Ports: datapath.PortRange(g.cfg.SNATPorts).Part(i, len(g.handlers)),
					Neighbor: neighbor, Loop: i,
				})
			}
		}
	}
	return list
}
