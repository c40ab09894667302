package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Link is one port of the node: an Ethernet interface.
type Link struct {
	MAC wire.MAC
	MTU int // largest IP packet, bytes; at least 1280 where the link has IPv6 (RFC 8200 5), 68 else

	// Accept takes router advertisements: default routers, prefixes, addresses (RFC 4862).
	Accept bool
	// NoLinkLocal leaves the IPv6 link-local address to the caller; else the node makes one.
	NoLinkLocal bool
}

// Output is where frames go: the host, which writes them straight into frames of its pool.
type Output interface {
	// Frame lends room for a frame of n bytes, from the Ethernet header on, to be sent on port. It is
	// nil where there is none now.
	Frame(port uint8, n int) []byte

	// Send transmits the first n bytes of what the last Frame lent.
	Send(port uint8, n int)
}

// Config is what a Node is made of. Zero values of limits are the documented defaults.
type Config struct {
	Now    clock.Time
	Seed   uint64   // of random delays and identifiers
	Secret [32]byte // of what others must not guess: identifiers, stable addresses (RFC 7217)
	Links  []Link   // by port
	Output Output

	// Follower is one node of several on the same links: another, the leader, speaks ARP, neighbour
	// discovery and group membership, and tells by Changed what Apply takes here. A follower's Input
	// answers Handover to such packets.
	Follower bool

	// Changed is told of what other nodes on the same links have to know: the caller passes it to their
	// Apply. It may be nil.
	Changed func(now clock.Time, c Change)

	// Error is told of ICMP errors about packets of this host, and of packets that were given up because
	// their next hop does not answer. e is borrowed. It may be nil.
	Error func(now clock.Time, e *ICMPError)

	MaxNeighbors   int // entries of the neighbour table; 0 is 1024
	MaxQueued      int // packets that wait for one neighbour; 0 is 16
	MaxQueuedBytes int // of packets that wait for neighbours, all together; 0 is 256 KiB
	MaxFragments   int // bytes held for reassembly; 0 is 1 MiB
	MaxReassembly  int // datagrams in reassembly; 0 is 256
	MaxPathMTU     int // destinations with a path MTU of their own; 0 is 1024
	MaxGroups      int // multicast groups, all ports together; 0 is 256
	ErrorRate      int // ICMP errors and answers that the node sends, a second; 0 is 1000
}

// Input is given the frame that d describes, with its Ethernet header, as the engine's header pass
// left it: d.L3, d.L4, d.Proto and d.Flags are trusted. It answers ARP, neighbour discovery and ICMP
// itself. The verdict is one of
//
//   - Undecided: g is a datagram for a transport, whole (a packet, or reassembled), with valid lengths
//     and checksum; the caller decides what becomes of it. What g points at is valid until the next call.
//   - Deliver: the node has taken what the packet says; the frame is free.
//   - Handover: a follower's packet that the leader must see.
//   - a reason to drop it.
//
// The frame is borrowed.
func (n *Node) Input(now clock.Time, port uint8, frame []byte, d *packet.Desc, g *Datagram) packet.Verdict {
	return n.input(now, port, frame, d, g)
}

// Datagram is what a transport gets: the payload of an IP packet. It borrows everything.
type Datagram struct {
	Src, Dst  Addr
	Proto     uint8
	TTL       uint8
	TOS       uint8 // type of service or traffic class, with ECN in the low two bits
	Port      uint8
	Kind      Kind   // of Dst
	FlowLabel uint32 // IPv6
	Packets   uint16 // 1, or as many fragments as were put together
	Payload   []byte // transport header and data
	Packet    []byte // the packet from its IP header on, for Reject; only the start of it where it was reassembled
}

// ECN returns the congestion notification field; that of a reassembled datagram is CE if one of its
// fragments had it (RFC 3168 5.3).
func (g *Datagram) ECN() wire.ECN { return wire.ECN(g.TOS & 3) }
