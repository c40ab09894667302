package kernref

import (
	"net/netip"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/wire"
)

// noPort is the port number of packets that have none.
const noPort = 1 << 16

// Query is a packet as rules see it.
type Query struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint32 // 65536 where the packet has none
	Proto            uint8
}

// Query returns a packet of random addresses, ports and protocol, one in five without ports.
func (g Generator) Query(v4 bool) Query {
	q := Query{Src: netip.AddrFrom16(g.Addr6()), Dst: netip.AddrFrom16(g.Addr6()), SrcPort: noPort, DstPort: noPort}
	if v4 {
		q.Src, q.Dst = netip.AddrFrom4(g.Addr4()), netip.AddrFrom4(g.Addr4())
	}
	q.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6, uint8(g.Uint32())}[g.IntN(5)]
	if g.Chance(80) {
		q.SrcPort, q.DstPort = uint32(g.Port()), uint32(g.Port())
	}
	return q
}

// Tuple returns q as lists are asked for it.
func (q Query) Tuple() tuple.Tuple {
	u := tuple.Tuple{Proto: q.Proto, Known: tuple.Addresses}
	u.SrcHi, u.SrcLo = tuple.Words(q.Src)
	u.DstHi, u.DstLo = tuple.Words(q.Dst)
	if q.SrcPort != noPort {
		u.Ports, u.Known = q.SrcPort<<16|q.DstPort, tuple.Ports
	}
	return u
}

// query returns what rules see of r.
func (r *packetView) query() Query { return Query{r.src, r.dst, r.sport, r.dport, r.proto} }

// Rule returns the number of the first rule that matches q, 0 where none does.
func (q Query) Rule(rules []acl.Rule) uint16 {
	for i, u := range rules {
		if u.Src != (netip.Prefix{}) && !u.Src.Contains(q.Src) {
			continue
		}
		if u.Dst != (netip.Prefix{}) && !u.Dst.Contains(q.Dst) {
			continue
		}
		if u.Proto != 0 && u.Proto != q.Proto {
			continue
		}
		if !inRange(u.SrcPorts, q.SrcPort) || !inRange(u.DstPorts, q.DstPort) {
			continue
		}
		return uint16(i + 1)
	}
	return 0
}

// inRange reports whether port is one of p, or p asks for none. A packet without ports has noPort.
func inRange(p acl.Ports, port uint32) bool {
	lo, hi, asks := p.Range()
	if !asks {
		return true
	}
	return port != noPort && uint32(lo) <= port && port <= uint32(hi)
}

// ScanRoutes returns the next hop of the longest prefix that contains a.
func ScanRoutes(routes []lpm.Route, a netip.Addr) uint16 {
	longest, hop := -1, uint16(0)
	for _, r := range routes {
		if r.Prefix.Contains(a) && r.Prefix.Bits() > longest {
			longest, hop = r.Prefix.Bits(), r.NextHop
		}
	}
	return hop
}
