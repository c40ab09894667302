package ip

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Node is the network layer of one loop.
type Node struct {
	cfg  Config
	pmtu pmtuCache
	ids  idents
}

type pmtuCache struct{}
type idents struct{}

func (*pmtuCache) mtu(clock.Time, *Path, Addr) int { return 0 }
func (*idents) next16(*Header) uint16              { return 0 }

func (n *Node) input(clock.Time, uint8, []byte, *packet.Desc, *Datagram) packet.Verdict {
	return packet.DropUnsupported
}
func (n *Node) route(clock.Time, Addr, Addr, uint8) (*Path, packet.Verdict) {
	return nil, packet.DropNoRoute
}
func (n *Node) path(clock.Time, Ref) *Path                               { return nil }
func (n *Node) confirm(clock.Time, Ref)                                  {}
func (n *Node) source(clock.Time, Addr, uint8) (Addr, bool)              { return Addr{}, false }
func (n *Node) send(clock.Time, *Path, *Header, [][]byte) packet.Verdict { return packet.DropNoRoute }
func (p *Path) put(b []byte, h *Header, payload int) int                 { return 0 }
func (n *Node) apply(clock.Time, *Change)                                {}

// New returns a node.
func New(cfg Config) *Node { return &Node{cfg: cfg} }

// Poll runs what is due and returns when it wants to be called next.
func (n *Node) Poll(now clock.Time) clock.Time { return clock.Never }

// Local returns what a is to this host when a packet to it comes in on port.
func (n *Node) Local(port uint8, a Addr) Kind { return NotLocal }

// Usable reports whether packets may be sent from a, which is an address of ours (tentative and
// duplicate ones are not).
func (n *Node) Usable(a Addr) bool { return false }

// Serve says that datagrams of protocol proto have a consumer, beside TCP and UDP: Input hands them out
// (for ICMP and ICMPv6 what is not the node's own business: echo replies). Others are answered
// with an ICMP error.
func (n *Node) Serve(proto uint8, on bool) {}

// Reject is what a RejectReason makes of g.
func (n *Node) Reject(now clock.Time, port uint8, pkt []byte, k ErrorKind) {}

// AddAddr gives port an address with the length of its on-link prefix. IPv6 and IPv4 addresses are
// checked for duplicates first unless noDAD is set: Changed tells of AddrUp or AddrDuplicate.
func (n *Node) AddAddr(now clock.Time, port uint8, p netip.Prefix, o Origin, noDAD bool) error {
	return nil
}

// DelAddr takes an address away.
func (n *Node) DelAddr(now clock.Time, port uint8, a Addr) error { return nil }

// AddRoute adds a route; DelRoute removes the one with the same prefix, gateway and port.
func (n *Node) AddRoute(now clock.Time, r Route) error { return nil }

// DelRoute removes a route.
func (n *Node) DelRoute(now clock.Time, r Route) error { return nil }

// AddNeighbor adds an entry that stays, and is not verified.
func (n *Node) AddNeighbor(now clock.Time, port uint8, a Addr, mac wire.MAC) error { return nil }

// DelNeighbor removes an entry, whatever its origin.
func (n *Node) DelNeighbor(now clock.Time, port uint8, a Addr) error { return nil }

// Listen sets which packets to group socket wants on port, as IPMulticastListen of RFC 3376 2: from
// sources alone (include), or from all but sources. Including none leaves the group. socket is any number
// that the caller chose for one socket.
func (n *Node) Listen(now clock.Time, socket uint32, port uint8, group Addr, include bool, sources []Addr) error {
	return nil
}

// Addrs, Routes, Neighbors and Groups are snapshots for people.
func (n *Node) Addrs() []AddrInfo { return nil }

// Routes returns all routes.
func (n *Node) Routes() []Route { return nil }

// Neighbors returns the neighbour table.
func (n *Node) Neighbors(now clock.Time) []NeighborInfo { return nil }

// AddrInfo is an address of this host.
type AddrInfo struct {
	Port             uint8
	Prefix           netip.Prefix
	Origin           Origin
	State            string // tentative, preferred, deprecated, duplicate
	Valid, Preferred clock.Time
}

// NeighborInfo is an entry of the neighbour table.
type NeighborInfo struct {
	Port   uint8
	Addr   Addr
	MAC    wire.MAC
	State  string // incomplete, reachable, stale, delay, probe, failed, permanent
	Since  clock.Time
	Router bool
}
