package pmd

import "net/netip"

// Match says which packets an address in a Rule stands for.
type Match uint8

// The kinds of rules.
const (
	To       Match = iota // packets to the address: a service, or an address that we translate to
	From                  // packets from the address: a backend whose answers pass through us
	Neighbor              // ARP for the address, neighbour solicitations for it and the answers sent to it
	Keep                  // packets to the address stay with the kernel, whatever rules of kind From and of prefixes say
)

// Rule names packets that a driver takes away from the kernel's stack, or leaves to it (Keep). What
// no rule names stays with the kernel, so that a machine reached by ssh stays reachable.
//
// With a protocol that has ports, a rule without ports also takes the fragments after the first,
// which have none; a rule with ports takes whole packets and first fragments only, and one with Rest
// the other fragments only.
//
// ICMP and ICMPv6 have types in the place of ports, the same on both sides. Neighbour discovery
// (types 133 to 137) is for rules of kind Neighbor, and never met by one that names ICMPv6.
type Rule struct {
	Addr           netip.Addr
	Match          Match
	Proto          uint8  // IP protocol number; 0 is every protocol
	PortLo, PortHi uint16 // of Addr's side, inclusive; 0, 0 is every port and PortHi 0 only PortLo
	Rest           bool   // fragments after the first, and nothing else; with a protocol and without ports
	Bits           uint8  // not 0: all addresses that share so many bits with Addr; To, the family's ICMP, every type
}

// IP protocols with types.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// HasPorts reports whether a protocol's header begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
func HasPorts(proto uint8) bool {
	return proto == 6 || proto == 17 || proto == 33 || proto == 132 || proto == 136
}

// HasTypes reports whether a protocol's header begins with a type: ICMP, ICMPv6.
func HasTypes(proto uint8) bool { return proto == protoICMP || proto == protoICMPv6 }

// Wrong says why r means nothing; "" if it means something.
func (r Rule) Wrong() string {
	ports := r.PortLo != 0 || r.PortHi != 0
	switch {
	case !r.Addr.IsValid():
		return "no address"
	case r.Match > Keep:
		return "unknown match"
	case r.PortHi != 0 && r.PortLo > r.PortHi:
		return "the first port is above the last"
	case r.Match >= Neighbor && (r.Proto != 0 || ports || r.Rest):
		return "a rule of kind Neighbor or Keep has neither protocol nor ports"
	case ports && !HasPorts(r.Proto) && !HasTypes(r.Proto):
		return "ports need a protocol that has them"
	case HasTypes(r.Proto) && max(r.PortLo, r.PortHi) > 255:
		return "types end at 255"
	case r.Rest && (ports || !HasPorts(r.Proto)):
		return "fragments after the first have a protocol and no ports"
	case r.Bits != 0 && (r.Match != To || ports || r.Proto != icmpOf(r.Addr) || int(r.Bits) > r.Addr.Unmap().BitLen()):
		return "a prefix is for ICMP (ICMPv6 of an IPv6 one) to its addresses"
	}
	return ""
}

// icmpOf returns the ICMP of an address's family.
func icmpOf(a netip.Addr) uint8 {
	if a.Unmap().Is4() {
		return protoICMP
	}
	return protoICMPv6
}
