package udp

import (
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Datagram is a received datagram, or several of one flow that a device or the host merged.
// Everything in it is borrowed. Addresses are those of the IP header, ports those of the
// UDP header.
type Datagram struct {
	Payload     [][]byte   // behind the UDP header, in order
	Len         int        // bytes of payload, in all Payload
	SegmentSize int        // bytes of each datagram but the last, where several were merged; 0 is one datagram
	Hash        uint32     // of the flow (packet.Desc.Hash); 0 where it is not known
	Interface   uint32     // that it came in by: the node's port + 1; 0 where it is not known
	TOS         uint8      // DSCP and ECN of the IP header (RFC 2474, RFC 3168)
	TTL         uint8      // or hop limit
	Broadcast   bool       // Local is a broadcast address
	NoChecksum  bool       // the sender made no checksum; over IPv6 only sockets that allow it take it
	Time        clock.Time // of arrival
}

// Message is a datagram, or several of equal size to or from one peer, as sockets read and
// write them.
type Message struct {
	Buffers [][]byte // in order; read: filled; written: sent, and borrowed for the call

	// N is the number of bytes read. Before a Write it must be 0; where that stops within
	// the message for want of room, N is what has gone, and a further Write goes on
	// behind it.
	N int

	// Remote is the peer. On connected sockets, a Write takes the zero value for the
	// socket's peer.
	Remote     wire.Addr
	RemotePort uint16

	// Local is the address that the datagram was sent to, a group's too. For a Write it is
	// the source address; zero leaves the choice to the socket, or else the host.
	Local wire.Addr

	Interface   uint32     // came in by, or is to leave by; 0 is not known, or by the routes
	SegmentSize int        // bytes of each datagram but the last; 0 is one datagram
	TOS         uint8      // DSCP and ECN; for a Write, 0 is the socket's, and so is DSCP where that is 0
	TTL         uint8      // or hop limit; for a Write, 0 is the socket's
	Truncated   bool       // Buffers were too small and the rest was lost
	Time        clock.Time // of arrival; unused by Write
}

// Peer returns Remote and RemotePort.
func (m *Message) Peer() netip.AddrPort { return netip.AddrPortFrom(m.Remote.Netip(), m.RemotePort) }

// SetPeer sets Remote and RemotePort.
func (m *Message) SetPeer(a netip.AddrPort) {
	m.Remote, m.RemotePort = wire.AddrFrom(a.Addr()), a.Port()
}

// Outgoing is a datagram to be sent, or as many as SegmentSize cuts it into. The Output
// borrows it for the call.
type Outgoing struct {
	Tuple        *wire.Tuple // Local may be zero: the Output chooses by the way
	Payload      [][]byte
	Len          int // bytes of payload, in all Payload
	SegmentSize  int // bytes of each datagram but the last; Len where it is one
	Interface    uint32
	TOS          uint8
	TTL          uint8   // 0 is the host's
	DontFragment bool    // longer than the path's MTU is packet.DropTooBig, and IPv4 has the DF bit
	Broadcast    bool    // may go to a broadcast address; otherwise that is packet.DropDenied
	Loop         bool    // multicast: members on this host receive it too
	NoChecksum   bool    // send the checksum 0 (RFC 768; RFC 6935 over IPv6)
	RouteCache   *uint64 // eight bytes of the socket in which the Output may keep the route it found; 0 at first; nil where there are none
}

// Output is where datagrams go.
type Output interface {
	// Send sends o, all of it or nothing. Forward is that it was sent, or waits for
	// neighbour resolution. DropTxFull is no room now: try again after the next Poll.
	// DropNoRoute is no route, DropTooBig longer than the MTU with DontFragment, DropDenied
	// a broadcast without permission or a source address that is not this host's.
	Send(now clock.Time, o *Outgoing) packet.Verdict

	// Offload returns the most payload that one Outgoing of several datagrams may carry, in
	// bytes; 0 where it cuts nothing, and the Mux does.
	Offload() int
}

// Groups joins and leaves multicast groups for sockets.
type Groups interface {
	// Listen sets which packets to group a socket wants by an interface (0: the one of the
	// route to the group), as IPMulticastListen of RFC 3376 2 and RFC 3810 3. Numbers of
	// sockets are the Mux's own.
	Listen(now clock.Time, socket uint32, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error
}

// Events are the conditions that are reported to an Owner.
type Events uint16

// The bits of Events.
const (
	Readable Events = 1 << iota // a datagram, or an error (TakeErr)
	Writable                    // room, after a Write that found none
)

// Owner handles the events of its socket. Ready is called once at the end of each burst,
// from Poll, and may call the socket's methods.
type Owner interface {
	Ready(ev Events)
}
