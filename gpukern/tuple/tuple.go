// Package tuple has what the stages of the header pass hand to each other: the 5-tuples of a chunk of
// packets. Addresses are two words of 64 bits, so that comparing and masking them costs no calls.
package tuple

import (
	"encoding/binary"
	"net/netip"
)

// ChunkSize is the number of packets that go through one stage before the next begins: enough for memory
// reads of many packets to be under way at once, few enough for their tuples to stay in the
// first-level cache.
const ChunkSize = 256

// Known lists the parts of a tuple that a packet has.
type Known uint8

const (
	None      Known = iota // not IP, or malformed: no lookups
	Addresses              // no ports: other protocols, later fragments, headers cut off
	Ports
)

// Tuple is the look-up key of a packet, between the stages of the pass. An IPv4 address fills the
// upper half of the first word, as the left end of an IPv6 address does.
type Tuple struct {
	SrcHi, SrcLo uint64
	DstHi, DstLo uint64
	Ports        uint32 // source << 16 | destination
	End          uint32 // of the IP packet, where it lies within the total, else 0
	Proto        uint8
	Known        Known
}

// Chunk is the packets that go through the stages of the pass together. The stages write what they find
// into the descriptors; between them go the tuples.
type Chunk struct {
	N     int
	At    [ChunkSize]int32 // index of the packet's first descriptor
	Tuple [ChunkSize]Tuple
	Sound [ChunkSize]bool // the device has verified the transport checksum
	Heads byte            // of the packets' first bytes: keeps the loads that fetch them
}

// New returns the tuple of a packet whose ports are known. Both addresses are of one family.
func New(src, dst netip.AddrPort, proto uint8) Tuple {
	t := Tuple{Proto: proto, Known: Ports, Ports: uint32(src.Port())<<16 | uint32(dst.Port())}
	t.SrcHi, t.SrcLo = Words(src.Addr())
	t.DstHi, t.DstLo = Words(dst.Addr())
	return t
}

// After reports whether the source end of t comes after the destination end, by address and then by port,
// of which ports has both. Two directions of a flow agree on which end is the lower.
func (t *Tuple) After(ports uint32) bool {
	if t.SrcHi != t.DstHi {
		return t.SrcHi > t.DstHi
	}
	if t.SrcLo != t.DstLo {
		return t.SrcLo > t.DstLo
	}
	return ports>>16 > ports&0xffff
}

// Words returns an address as a Tuple has it.
func Words(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// Addr is the inverse of Words.
func Addr(v4 bool, hi, lo uint64) netip.Addr {
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	if v4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}
