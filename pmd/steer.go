package pmd

import "net/netip"

// Match says which packets an address in a Rule stands for.
type Match uint8

// The kinds of rules.
const (
	To       Match = iota // packets to the address: a service, or an address that we translate to
	From                  // packets from the address: a backend whose answers pass through us
	Neighbor              // ARP for the address, neighbour solicitations for it and the answers sent to it
)

// Rule names packets that a driver takes away from the kernel's stack. What no rule names stays
// with the kernel, so that a machine reached by ssh stays reachable.
//
// With a protocol that has ports, a rule without ports also takes the fragments after the first,
// which have none; a rule with ports takes whole packets and first fragments only.
type Rule struct {
	Addr           netip.Addr
	Match          Match
	Proto          uint8  // IP protocol number; 0 is every protocol
	PortLo, PortHi uint16 // of Addr's side, inclusive; 0, 0 is every port and PortHi 0 only PortLo
}
