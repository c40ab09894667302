package pmd

import (
	"errors"
	"net/netip"
)

// RuleKind selects which packets the address of a Rule stands for.
type RuleKind uint8

// The kinds of rules.
const (
	To       RuleKind = iota // packets to the address: a service, or an address that is translated to
	From                     // packets from the address: a backend whose answers pass through this node
	Neighbor                 // ARP for the address, neighbour solicitations for it and the answers sent to it
	Keep                     // packets to the address stay with the kernel, whatever rules of kind From and of prefixes say
)

// Rule names packets that a driver takes away from the kernel's stack, or leaves to it (Keep). What
// no rule names stays with the kernel, so that a machine reached by ssh stays reachable.
//
// Fragments after the first have neither ports nor types (RFC 791 3.2, RFC 8200 4.5), so steering cannot
// find their service. With a protocol that has them, a rule without ports therefore also takes these
// fragments. A rule with ports takes whole packets and first fragments only, and one with LaterFragments
// the other fragments only.
//
// ICMP and ICMPv6 have types in the place of ports, the same on both sides. Neighbour discovery
// (RFC 4861 4: types 133 to 137) is for rules of kind Neighbor, and a rule that names ICMPv6 never
// takes it: the kernel could no longer resolve its neighbours.
type Rule struct {
	Addr           netip.Addr
	Kind           RuleKind
	Proto          uint8  // IP protocol number; 0 is every protocol
	PortLo, PortHi uint16 // of Addr's side, inclusive; 0, 0 is every port and PortHi 0 only PortLo
	LaterFragments bool   // fragments after the first, and nothing else; with a protocol that has ports or types, and without them
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

// Validate returns an error where the fields of r contradict each other.
func (r Rule) Validate() error {
	ports := r.PortLo != 0 || r.PortHi != 0
	switch {
	case !r.Addr.IsValid():
		return errors.New("no address")
	case r.Kind > Keep:
		return errors.New("unknown kind")
	case r.PortHi != 0 && r.PortLo > r.PortHi:
		return errors.New("the first port is above the last")
	case r.Kind >= Neighbor && (r.Proto != 0 || ports || r.LaterFragments):
		return errors.New("a rule of kind Neighbor or Keep has neither protocol nor ports")
	case ports && !HasPorts(r.Proto) && !HasTypes(r.Proto):
		return errors.New("ports need a protocol that has them")
	case HasTypes(r.Proto) && max(r.PortLo, r.PortHi) > 255:
		return errors.New("types end at 255")
	case r.LaterFragments && (ports || !HasPorts(r.Proto) && !HasTypes(r.Proto)):
		return errors.New("fragments after the first have a protocol and no ports or types")
	case r.Bits != 0 && (r.Kind != To || ports || r.LaterFragments || r.Proto != icmpOf(r.Addr) || int(r.Bits) > r.Addr.Unmap().BitLen()):
		return errors.New("a prefix is for ICMP (ICMPv6 of an IPv6 one) to its addresses")
	}
	return nil
}

// icmpOf returns the ICMP of an address's family.
func icmpOf(a netip.Addr) uint8 {
	if a.Unmap().Is4() {
		return protoICMP
	}
	return protoICMPv6
}
