package gateway

import "net/netip"

// Hop is the way to an address: which port of the loop to send on, and to which link address.
type Hop struct {
	MAC   [6]byte
	VLAN  uint16 // 802.1Q VLAN identifier to tag with; 0 is none
	Port  uint8
	State HopState
}

// HopState says how much of a Hop is known.
type HopState uint8

// The states of a hop.
const (
	HopUnresolved HopState = iota // there is a route, but the next hop's link address is not known (yet)
	HopReady                      // Port and MAC are right
	HopNoRoute                    // no route, or one by none of the gateway's devices
)

// hopUnknown is the state of a hop that the resolver has not told of yet. No Hop has it.
const hopUnknown HopState = 255

// String returns the state's name in logs and in the status.
func (s HopState) String() string {
	return [...]string{"unresolved", "ready", "no route"}[s]
}

// Resolver finds the way to backends and keeps looking: StaticResolver in tests and closed
// networks, the kernel's routes and neighbours (NewKernelResolver) otherwise.
type Resolver interface {
	// Watch replaces the set of addresses to resolve. The resolver calls changed, from any
	// goroutine but one call at a time, with the hop of each address as soon as it is known and
	// whenever it changes. changed does not call back.
	Watch(addrs []netip.Addr, changed func(netip.Addr, Hop))

	// Close ends the calls of changed.
	Close() error
}

// StaticResolver is a fixed table. Addresses that it lacks have no route.
type StaticResolver map[netip.Addr]Hop

// Watch tells the hop of each address once.
func (r StaticResolver) Watch(addrs []netip.Addr, changed func(netip.Addr, Hop)) {
	for _, a := range addrs {
		hop, ok := r[a]
		if !ok {
			hop.State = HopNoRoute
		}
		changed(a, hop)
	}
}

// Close does nothing.
func (r StaticResolver) Close() error { return nil }
