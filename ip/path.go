package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// LoopPort is the port of packets that this host sends to itself: what is sent there the caller passes
// back to Input, as received on LoopPort. Its frames have an Ethernet header of zero addresses.
const LoopPort uint8 = 254

// LoopMTU is the MTU of LoopPort, bytes.
const LoopMTU = 65535

// Ref names a path so that a connection can keep it in eight bytes and find it again without a
// lookup. 0 is none. It outlives the path: Path then answers nil.
type Ref uint64

// Path is the way to a destination: what every packet to one next hop has in common. A path with a
// Ref stays where it is, and its link addresses follow what the neighbour says, until Path answers nil
// for it; one without is good until the node's next method.
type Path struct {
	Ref      Ref
	Port     uint8
	Resolved bool                   // Header is right: frames may be sent at once; else Send queues them
	Kind     Kind                   // Unicast, Broadcast, Multicast
	MTU      int                    // of the link or the route, bytes of an IP packet; Node.MTU knows destinations
	NextHop  Addr                   // neighbour, or the destination itself
	Header   [wire.EthernetLen]byte // complete Ethernet header
}

// Route returns the way to dst for packets from src (zero: any of ours) by way of port (AnyPort: as
// the routes say). An unresolved neighbour is not an error: its resolution starts with the first packet
// that is sent. There is no path, and a reason, where there is no route (DropNoRoute) or where the
// neighbour table is full of busy entries (DropTableFull).
func (n *Node) Route(now clock.Time, dst, src Addr, port uint8) (*Path, packet.Verdict) {
	return n.route(now, dst, src, port)
}

// Path returns the path of r if it is still the way that Route would find, else nil.
func (n *Node) Path(now clock.Time, r Ref) *Path { return n.path(now, r) }

// Confirm says that the next hop of r answers: a connection made progress (RFC 4861 7.3.1).
func (n *Node) Confirm(now clock.Time, r Ref) { n.confirm(now, r) }

// MTU returns the largest IP packet, in bytes, that may go to dst by path p.
func (n *Node) MTU(now clock.Time, p *Path, dst Addr) int { return n.pmtu.mtu(now, p, dst) }

// Source returns the address of this host that packets to dst are sent from when nobody chose one
// (RFC 6724 5, RFC 1122 3.3.4.3).
func (n *Node) Source(now clock.Time, dst Addr, port uint8) (Addr, bool) {
	return n.source(now, dst, port)
}

// Header is what the IP header of a packet says beside lengths. TTL 0 is the node's own.
type Header struct {
	Src, Dst     Addr
	Proto        uint8
	TTL          uint8
	TOS          uint8
	DontFragment bool   // IPv4 DF; over both versions a packet larger than the path MTU is then refused
	ID           uint16 // IPv4, of packets that may be fragmented: NextID
	FlowLabel    uint32 // IPv6
}

// Put writes the Ethernet and IP headers of a packet with payload bytes behind them to the start of b
// and returns their length. The path is resolved; b has room for 54 bytes.
func (p *Path) Put(b []byte, h *Header, payload int) int { return p.put(b, h, payload) }

// Send sends one packet: Forward, or the reason why not: DropTooBig (DF and larger than the path
// MTU), DropUnresolved (the neighbour's queue is full), DropNoFrame (the caller may try again). payload
// are the pieces of transport header and data in order, with the checksum filled in; they are copied.
// What is larger than the MTU is fragmented unless h says not to.
func (n *Node) Send(now clock.Time, p *Path, h *Header, payload ...[]byte) packet.Verdict {
	return n.send(now, p, h, payload)
}

// NextID returns an identification for an IPv4 packet from src to dst that may be fragmented.
func (n *Node) NextID(h *Header) uint16 { return n.ids.next16(h) }
