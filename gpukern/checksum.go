package gpukern

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// checksum is the stage that verifies the IPv4 header checksum (RFC 791 3.1) and those of TCP (RFC
// 9293 3.1), UDP (RFC 768, RFC 8200 8.1), ICMP (RFC 792) and ICMPv6 (RFC 4443 2.3). Fragments and
// packets whose payload is not all there are left unverified, as are those with a routing header
// that has segments left: their pseudo-header names an address further on.
func (w *chunk) checksum(b *packet.Batch) {
	for k := range w.n {
		d, t := &b.D[w.at[k]], &w.tuple[k]
		p := b.Arena.Bytes(d)
		if d.Flags&packet.FlagIPv4 != 0 {
			header := p[d.L3:]
			if folded(sumLE(header[:int(header[0]&15)*4])) == 0xffff {
				d.Flags |= packet.FlagIPChecksumOK
			}
		}
		if d.Payload == 0 || t.end == 0 || d.Flags&packet.FlagFragment != 0 {
			continue
		}
		if d.Flags&packet.FlagMore == 0 {
			d.Flags |= verify(d, t, p[d.L4:t.end])
			continue
		}
		d.Flags |= verifyChain(b, int(w.at[k]), t)
	}
}

// verify judges the transport checksum of the segment l4.
func verify(d *packet.Desc, t *tuple, l4 []byte) packet.Flags {
	n := len(l4)
	if t.proto == wire.ProtoUDP {
		if l4[6]|l4[7] == 0 {
			return noChecksum(d)
		}
		n = int(binary.BigEndian.Uint16(l4[4:]))
	}
	if t.proto == wire.ProtoSCTP {
		return 0 // CRC32c, not a sum
	}
	if folded(sumLE(l4[:n])+pseudo(t, n)) != 0xffff {
		return 0
	}
	return packet.FlagL4ChecksumOK
}

// noChecksum is what a UDP checksum field of 0 means: over IPv6 it is not legal (RFC 8200 8.1).
func noChecksum(d *packet.Desc) packet.Flags {
	if d.Flags&packet.FlagIPv4 != 0 {
		return packet.FlagL4NoChecksum
	}
	return 0
}

// verifyChain is verify for a packet of several descriptors, the first of them at i.
func verifyChain(b *packet.Batch, i int, t *tuple) packet.Flags {
	d := &b.D[i]
	if t.proto == wire.ProtoSCTP {
		return 0
	}
	p := b.Arena.Bytes(d)
	n := int(t.end) - int(d.L4)
	if t.proto == wire.ProtoUDP {
		if h := p[d.L4:]; h[6]|h[7] == 0 {
			return noChecksum(d)
		} else {
			n = int(binary.BigEndian.Uint16(h[4:]))
		}
	}
	sum := pseudo(t, n)
	for at, skip := 0, int(d.L4); at < n; i, skip = i+1, 0 {
		piece := b.Bytes(i)[skip:]
		piece = piece[:min(len(piece), n-at)]
		s := uint64(folded(sumLE(piece)))
		if at&1 != 0 { // RFC 1071 2(B): a piece on an odd offset counts byte-swapped
			s = uint64(bits.ReverseBytes16(uint16(s)))
		}
		sum += s
		at += len(piece)
	}
	if folded(sum) != 0xffff {
		return 0
	}
	return packet.FlagL4ChecksumOK
}

// pseudo returns the sum of the pseudo-header of t with an upper-layer length of n, in the byte
// order of sumLE. ICMP over IPv4 has none.
func pseudo(t *tuple, n int) uint64 {
	if t.proto == wire.ProtoICMP {
		return 0
	}
	const low = 1<<32 - 1
	sum := t.srcHi>>32 + t.srcHi&low + t.srcLo>>32 + t.srcLo&low +
		t.dstHi>>32 + t.dstHi&low + t.dstLo>>32 + t.dstLo&low +
		uint64(t.proto) + uint64(n)
	return uint64(bits.ReverseBytes16(folded(sum)))
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
	return s>>32 + s&(1<<32-1) + c
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

// folded adds the carries of a sum below 1<<48 back in (RFC 1071 1).
func folded(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}
