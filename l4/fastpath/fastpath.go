// Package fastpath is the contract between a loop of the gateway and what forwards established connections without
// it: the flows that a loop enters, and the traffic that it reads back. The loop's table stays the truth. A Forwarder is
// a cache of confirmed NAT connections, and each packet that it does not forward itself comes to the loop.
//
// Package l4/kernelflows implements it by eBPF programs in the kernel; docs/design/024-kernel-flows.md says why. The
// package itself moves no packet.
package fastpath

import "github.com/millrace/millrace/clock"

// Forwarder forwards packets of connections that a loop has entered, in the kernel and without the loop. It belongs
// to one loop, which alone calls it.
//
// # What comes to the loop
//
// Of an entered connection, the loop receives each packet that the kernel does not forward itself:
//
//   - SYN, FIN, RST, and TCP without ACK
//   - a segment that does not fit the sequence numbers: conditions I to IV of sequence.go, or whose data ends beyond
//     the window
//   - fragments, IPv4 options, IPv6 extension headers, malformed or truncated headers, a wrong IPv4 header checksum
//   - a TTL or hop limit of at most 1
//   - what is longer than Direction.MaxLen, a large packet by its segments
//   - frames with a VLAN tag, from another link address than Direction.From, or to another than Direction.To
//   - all of a flow that another generation entered (Renew), or that has come by another device
//
// and each that was on its way to the loop when the connection was entered: some of the packets of a busy connection
// always are. The loop decides all of them as usual, with the numbers of Read, and reports what it has forwarded by Raise.
// It takes the connection back (Leave) only where a packet changes what the kernel has a copy of: the state, the link
// address or device that packets come by, Flow.Loose. So forged segments, which change nothing, keep no connection from
// the kernel. A connection of another generation comes back with its first packet.
//
// # Order of the two sides
//
// Leave and Read see each packet that the kernel has forwarded before: a program counts a packet and raises the sequence
// numbers, and then looks once more whether the flow is still entered. After Leave returns the kernel forwards no
// packet of the connection that is not in the result, but packets that it has counted may still be about to be sent.
type Forwarder interface {
	// Enter gives a connection to the kernel, from the next Flush on. It copies f. It reports false where no slot is
	// free, or f is not for the kernel (a VLAN, a device without a program, addresses of two families): the loop goes on
	// without.
	Enter(f *Flow) (slot uint32, ok bool)

	// Leave takes a connection back at once and returns what the kernel has forwarded of it since Enter. It costs no
	// system call. The slot is not the caller's any more.
	Leave(slot uint32) Traffic

	// Read returns what the kernel has forwarded since Enter. It costs no system call.
	Read(slot uint32) Traffic

	// Raise has the kernel know sequence numbers of segments that the loop has forwarded: each number becomes the
	// later one of both sides'.
	Raise(slot uint32, to *[2]Sequence)

	// Renew ends the generation of all flows that were entered before: their packets come to the loop, which takes each
	// of these connections back when it sees one, or when it expires. For changes that may concern any of them.
	Renew()

	// Flush enters and removes the keys of what Enter and Leave have noted: a system call for all of a burst, none where
	// there is nothing to do. A connection whose key could not be entered goes on in the loop, and the error says how
	// many.
	Flush(now clock.Time) error
}

// Flow is a connection as a Forwarder forwards it.
type Flow struct {
	Proto      uint8        // wire.ProtoTCP or wire.ProtoUDP
	Directions [2]Direction // the client's packets, the backend's
	Sequences  [2]Sequence  // TCP: of what each side has sent
	Scales     uint8        // TCP: as Conn.scales of package datapath
	Loose      bool         // TCP: as connLoose
}

// Direction selects which packets of a connection come from one side, and what they become. Addresses are in their
// 16-byte form, IPv4 as ::ffff:a.b.c.d.
type Direction struct {
	Dev              uint8 // device that they come by, as Desc.Port
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	From             [6]byte // link address that they come from; zero is any
	To               [6]byte // link address that they are sent to: that of Dev
	VLAN             uint16  // 0; others are not supported yet

	OutDev                 uint8 // device that they leave by
	NewSrc, NewDst         [16]byte
	NewSrcPort, NewDstPort uint16
	NextHop                [6]byte // link address that they leave for
	OutMAC                 [6]byte // link address that they leave from: that of OutDev
	OutVLAN                uint16  // 0; others are not supported yet
	MaxLen                 int     // largest network-layer packet, as it is on the wire; 0 is no limit

	L3Delta, L4Delta uint16 // what the rewriting adds to the checksums, without the TTL, in host byte order: see Conn
}

// Sequence holds the sequence numbers of one side: see sequence of package datapath, whose fields these are.
type Sequence struct{ End, Limit, Window, Acked uint32 }

// Traffic counts what the kernel has forwarded of a connection, by direction.
type Traffic struct {
	Packets   [2]uint64     // a large packet counts once, as it does in the loop
	Bytes     [2]uint64     // with link headers
	Last      [2]clock.Time // of the last packet, to some milliseconds; 0: there was none
	Sequences [2]Sequence
	Loose     bool
}
