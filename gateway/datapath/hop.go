package datapath

// Device is a device of the loops, known by its place in Desc.Port.
type Device struct {
	Name string
	MAC  [6]byte // packets to another link address are dropped, answers and forwarded packets come from it
	MTU  int     // largest network-layer packet to send, bytes; 0 is no limit
}

// Hop is the next hop to an address: the device to send on, and the link address.
type Hop struct {
	MAC   [6]byte
	VLAN  uint16 // 802.1Q VLAN identifier to tag with; 0 is none
	Dev   uint8  // index of the device, as in Desc.Port
	State HopState
}

// HopState says how much of a Hop is known.
type HopState uint8

// The states of a hop.
const (
	HopUnresolved HopState = iota // there is a route; the next hop's link address is not known (yet)
	HopReady                      // all fields are valid
	HopNoRoute                    // no route, or one by none of the gateway's devices
)
