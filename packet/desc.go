// Package packet holds the three types that every other package passes on: the descriptor of a
// packet (Desc), a batch of descriptors (Batch) and the view of the memory they point into (Arena).
//
// A packet's bytes never move. A driver writes them into a frame of an arena and describes them in
// 32 bytes; the engine, the filter, the gateway and the transports read and rewrite those bytes in
// place and pass the descriptor on. A Desc has no pointers, so the garbage collector never scans
// packets, and its layout is the same in Go, C and CUDA (desc.h).
//
// # Ownership
//
// A frame has one owner at any moment: driver, loop, engine, loop, driver or pool. Passing a Batch passes
// its frames. The comment of a function that keeps them has the word "takes"; that of one which only reads them
// "borrows".
//
// The package is pure: it allocates no memory of its own, starts nothing and imports nothing.
package packet

// DescSize is the size of a Desc in bytes: half a CPU cache line, one sector of GPU memory.
const DescSize = 32

// Desc describes one packet, or one piece of a packet that spans several frames (FlagMore).
//
//	 0         4     6 7 8      10      12       16
//	+---------+-----+-+-+------+-------+--------+
//	| Off     | Len |P|3| L4   |Payload| Hash   |
//	+---------+-----+-+-+------+-------+--------+
//	| Flow    | Rule|NextHop   | Stamp |Fl|Pr|Ve |
//	+---------+-----+----------+-------+--------+
//	16        20    22         24      28 30 31
//
// The driver writes Off, Len and Stamp, and FlagL4ChecksumOK where the device has verified that checksum; the loop writes Port; the engine's header pass writes L3 to NextHop,
// Flags and Proto; the filter, the gateway or the transport writes Verdict.
//
// Port is the index of a device in its loop, as rte_mbuf.port is in DPDK. It is the one place in the
// tree where "port" is not a transport port: C and CUDA code share the name with DPDK's.
type Desc struct {
	Off     uint32  // of the packet's first byte, from the start of the arena
	Len     uint16  // bytes of the packet in this frame
	Port    uint8   // device of the loop: where it came from, and after the verdict Forward where it goes
	L3      uint8   // offset of the network header from the packet's first byte
	L4      uint16  // offset of the transport header; 0 where there is none
	Payload uint16  // offset of the transport payload; 0 where there is none
	Hash    uint32  // symmetric Toeplitz hash of the flow
	Flow    uint32  // slot of the flow table << 1 | direction, 0 is none; with Handover the loop that decides
	Rule    uint16  // ACL rule that matched, counted from 1; 0 is none
	NextHop uint16  // result of the longest prefix match; 0 is none
	Stamp   uint32  // arrival: low 32 bits of the clock, in nanoseconds (Batch.Time)
	Flags   Flags   // what the header pass found
	Proto   uint8   // IP protocol number of the transport header, after extension headers
	Verdict Verdict // what to do with the packet
}

// RuleClaimed is the Rule of a received packet that a rule of the device (DPDK's rte_flow) has marked as claimed. The header
// pass clears it.
const RuleClaimed = 0xffff

// Flags are the findings of the header pass about one packet, and how it reached this loop.
type Flags uint16

// The bits of Flags. A checksum bit says "verified and right"; it is clear where the checksum is
// wrong, absent or covers bytes that are not there.
//
// FlagTruncated is set where a header goes on beyond the captured bytes, or where IP claims a length
// beyond those present. Where only payload is missing, offsets and lookups are valid nevertheless: L4
// and Payload are 0 unless the transport header was complete.
const (
	FlagIPv4         Flags = 1 << iota // the network header is IPv4
	FlagIPv6                           // the network header is IPv6
	FlagVLAN                           // one or two 802.1Q/ad tags lie between Ethernet and IP
	FlagIPChecksumOK                   // IPv4 header checksum verified
	FlagL4ChecksumOK                   // TCP, UDP, ICMP or ICMPv6 checksum verified
	FlagL4NoChecksum                   // UDP over IPv4 without a checksum (RFC 768): legal, nothing to verify
	FlagFragment                       // any fragment
	FlagFragmentRest                   // a fragment other than the first: no transport header
	FlagOptions                        // IPv4 options or IPv6 extension headers are present
	FlagMalformed                      // a length or version contradicts the bytes; L4 and Payload are 0
	FlagTruncated                      // headers, or the length that IP claims, go on beyond the bytes present
	FlagMore                           // the packet goes on in the next Desc of the batch
	FlagTunnel                         // offsets and hash describe the inner packet of a tunnel
	FlagHanded                         // another loop received the packet and handed it over
	FlagHandedAgain                    // the second loop handed it over too: the third decides, so that none circulates
	FlagOffload                        // checksum and segmentation are left to the device that sends the packet (Offload)
)

// Has reports whether all the bits of f are set.
func (g Flags) Has(f Flags) bool { return g&f == f }
