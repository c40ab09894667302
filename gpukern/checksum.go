package gpukern

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// checksum is the stage that verifies the IPv4 header checksum (RFC 791 3.1) and those of TCP (RFC
// 9293 3.1), UDP (RFC 768, RFC 8200 8.1), ICMP (RFC 792) and ICMPv6 (RFC 4443 2.3). Fragments and
// packets whose payload is not all there are left unverified. One that the sending device will make
// (packet.FlagOffload) counts as right, and so does one of TCP or UDP that the receiving device has verified. The pseudo-header has the destination of
// the IP header, so that the checksum of a packet whose routing header has segments left comes out
// wrong: it is for the node that the last segment names (RFC 8200 8.1).
func checksum(w *tuple.Chunk, b *packet.Batch) {
	for k := range w.N {
		d, t := &b.D[w.At[k]], &w.Tuple[k]
		p := b.Arena.Bytes(d)
		f := d.Flags
		if f&packet.FlagIPv4 != 0 && right(headerSum(p[d.L3:])) {
			f |= packet.FlagIPChecksumOK
		}
		switch {
		case d.Payload == 0 || t.End == 0 || f&packet.FlagFragment != 0 || t.Proto == wire.ProtoSCTP: // CRC32c, not a sum
		case f&packet.FlagOffload != 0: // not there yet, so nothing can have broken it
			f |= packet.FlagL4ChecksumOK
		case w.Sound[k] && f&packet.FlagTunnel == 0 && summed(t.Proto, p[d.L4:]):
			f |= packet.FlagL4ChecksumOK
		case f&packet.FlagMore == 0:
			f |= verify(f, t, p[d.L4:t.End])
		default:
			f |= verifyChain(b, int(w.At[k]), t)
		}
		d.Flags = f
	}
}

// summed reports whether the transport header at the start of l4 has a checksum that devices verify: TCP's, or one of UDP that
// its sender has not left out (RFC 768).
func summed(proto uint8, l4 []byte) bool {
	return proto == wire.ProtoTCP || proto == wire.ProtoUDP && l4[6]|l4[7] != 0
}

// headerSum returns the sum of the IPv4 header at the start of h.
func headerSum(h []byte) uint64 {
	if h[0] != 0x45 {
		return sumLE(h[:int(h[0]&15)*4])
	}
	h = h[:20]
	s, c := bits.Add64(binary.LittleEndian.Uint64(h), binary.LittleEndian.Uint64(h[8:]), 0)
	return s>>32 + s&low + c + uint64(binary.LittleEndian.Uint32(h[16:]))
}

// right reports whether s, the sum of bytes that include their checksum, says that it is right: all
// ones when folded (RFC 1071 1), which is a multiple of 65535 other than 0.
func right(s uint64) bool { return s%0xffff == 0 && s != 0 }

// low masks the lower half of a sum.
const low = 1<<32 - 1

// verify checks the transport checksum of the segment l4 in a packet with flags f.
func verify(f packet.Flags, t *tuple.Tuple, l4 []byte) packet.Flags {
	n, size := len(l4), int(binary.BigEndian.Uint16(l4[4:]))
	if t.Proto == wire.ProtoUDP {
		n = size // a move, not a jump: TCP and UDP come at random
	}
	if binary.LittleEndian.Uint16(l4[6:]) == 0 && t.Proto == wire.ProtoUDP {
		return noChecksum(f)
	}
	if right(sum(l4[:n]) + pseudo(t, n)) {
		return packet.FlagL4ChecksumOK
	}
	return 0
}

// noChecksum is the result for a UDP checksum field of 0: over IPv6 it is not legal (RFC 8200 8.1).
func noChecksum(f packet.Flags) packet.Flags {
	if f&packet.FlagIPv4 != 0 {
		return packet.FlagL4NoChecksum
	}
	return 0
}

// verifyChain is verify for a packet of several descriptors, the first of them at i.
func verifyChain(b *packet.Batch, i int, t *tuple.Tuple) packet.Flags {
	d := &b.D[i]
	l4 := b.Arena.Bytes(d)[d.L4:]
	if t.Proto == wire.ProtoUDP && l4[6]|l4[7] == 0 {
		return noChecksum(d.Flags)
	}
	n := covered(t, d, l4)
	if right(pseudo(t, n) + sumChain(b, i, n)) {
		return packet.FlagL4ChecksumOK
	}
	return 0
}

// covered returns how many bytes the transport checksum covers; l4 begins with the transport header.
func covered(t *tuple.Tuple, d *packet.Desc, l4 []byte) int {
	if t.Proto == wire.ProtoUDP {
		return int(binary.BigEndian.Uint16(l4[4:]))
	}
	return int(t.End) - int(d.L4)
}

// sumChain adds up n bytes from the transport header on of a packet of several descriptors, the first of
// them at i.
func sumChain(b *packet.Batch, i, n int) uint64 {
	var acc uint64
	for at, skip := 0, int(b.D[i].L4); at < n; i, skip = i+1, 0 {
		piece := b.Bytes(i)[skip:]
		piece = piece[:min(len(piece), n-at)]
		s := sum(piece)
		if at&1 != 0 {
			s <<= 8 // RFC 1071 2(B): a piece on an odd offset counts with its bytes swapped
		}
		acc += s
		at += len(piece)
	}
	return acc
}

// pseudo returns the sum of the pseudo-header of t with an upper-layer length of n, in the byte
// order of sumLE: to swap the bytes of a word is to multiply it by 256, modulo 65535. ICMP over IPv4
// has none.
func pseudo(t *tuple.Tuple, n int) uint64 {
	if t.Proto == wire.ProtoICMP {
		return 0
	}
	s, c := bits.Add64(t.SrcHi, t.SrcLo, 0)
	s, c = bits.Add64(s, t.DstHi, c)
	s, c = bits.Add64(s, t.DstLo, c)
	return (s>>32 + s&low + c + uint64(t.Proto) + uint64(n)) << 8
}

// long is the length from which the vector form of package wire wins, calls and all.
const long = 128

// sum is sumLE for any length.
func sum(b []byte) uint64 {
	if len(b) < long {
		return sumLE(b)
	}
	return uint64(bits.ReverseBytes16(uint16(wire.Sum(b, 0))))
}

// sumLE adds up b as 16-bit words in little-endian order, which costs no swap per word: a
// one's-complement sum is the same in either order, but for a swap of its result (RFC 1071 2(B)).
func sumLE(b []byte) uint64 {
	var s, c uint64
	all := b
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[24:]), c)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
		b = b[8:]
	}
	if len(b) > 0 {
		s, c = bits.Add64(s, tailLE(all, len(b)), c)
	}
	return s>>32 + s&low + c
}

// tailLE returns the last n bytes of b, 1 to 7, as a little-endian word.
func tailLE(b []byte, n int) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b[len(b)-8:]) >> (64 - 8*n)
	}
	var v uint64
	for i, c := range b[len(b)-n:] {
		v |= uint64(c) << (8 * i)
	}
	return v
}
