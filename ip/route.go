package ip

import (
	"errors"
	"net/netip"
)

// Errors of changes to a node.
var (
	ErrPort    = errors.New("no such port")
	ErrAddress = errors.New("address cannot be used")
	ErrExists  = errors.New("exists already")
	ErrMissing = errors.New("does not exist")
	ErrFull    = errors.New("table is full")
)

// Origin is where an address, a route or a neighbour comes from.
type Origin uint8

// Origins.
const (
	Static Origin = iota // given by the caller
	Kernel               // follows from an address: the on-link route
	RouterAdvert
	DHCP
	Learned // ARP, neighbour discovery
)

// Route is one route.
type Route struct {
	Prefix  netip.Prefix
	Gateway Addr // zero: on link
	Port    uint8
	Origin  Origin
	Metric  uint32 // of routes with the same prefix the smallest is used
	MTU     int    // 0: the link's
	Source  Addr   // preferred; zero: chosen
	Reject  bool   // destinations count as unreachable
}
