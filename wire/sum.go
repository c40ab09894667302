package wire

import (
	"encoding/binary"
	"math/bits"
)

// SumPlain is the Internet checksum as RFC 1071 1 defines it: the ones' complement sum of big-endian
// 16-bit words, an odd last byte padded with zero on the right. It is the form that every fast one is
// compared with.
func SumPlain(b []byte, acc uint32) uint32 {
	acc = fold16(acc)
	for len(b) >= 2 {
		acc = fold16(acc + uint32(b[0])<<8 + uint32(b[1]))
		b = b[2:]
	}
	if len(b) == 1 {
		acc = fold16(acc + uint32(b[0])<<8)
	}
	return acc
}

// Sum adds the bytes of b to the running sum acc: 0, the result of Sum on the bytes before (an even
// number of them), of a pseudo header function, or several such added. The result is at most 0xffff,
// and 0 only where acc and all the bytes are.
func Sum(b []byte, acc uint32) uint32 {
	if len(b) < minLong {
		return sumGeneric(b, acc)
	}
	return sumLong(b, acc)
}

// minLong is the length from which vector registers win, by BenchmarkSum: below, most of their time goes
// into adding up their lanes.
const minLong = 128

// Fold turns a running sum into the checksum that goes into the header: its complement in 16 bits.
// Over bytes that contain a right checksum it returns 0.
func Fold(acc uint32) uint16 { return ^uint16(fold16(acc)) }

// fold16 adds the carries back in until 16 bits are left (RFC 1071 2 (1)). Two additions suffice: the
// first leaves at most 0x1fffe.
func fold16(acc uint32) uint32 {
	acc = acc>>16 + acc&0xffff
	return acc>>16 + acc&0xffff
}

// PseudoHeader returns PseudoHeader4 or PseudoHeader6, by the version of src. Both addresses are of one version.
func PseudoHeader(src, dst Addr, proto uint8, n uint32) uint32 {
	if src.Is4() {
		return PseudoHeader4(src.As4(), dst.As4(), proto, n)
	}
	return PseudoHeader6(src, dst, proto, n)
}

// PseudoHeader4 returns the running sum of the IPv4 pseudo header; n is the length of transport header
// and data in bytes.
//
//	+--------+--------+--------+--------+
//	|          source address           |
//	+--------+--------+--------+--------+
//	|        destination address        |
//	+--------+--------+--------+--------+
//	|  zero  |protocol|      length     |
//	+--------+--------+--------+--------+
//
// RFC 768, RFC 9293 3.1.
func PseudoHeader4(src, dst [4]byte, proto uint8, n uint32) uint32 {
	return words4(src) + words4(dst) + uint32(proto) + n>>16 + n&0xffff
}

// PseudoHeader6 returns the running sum of the IPv6 pseudo header; n is the length of the upper-layer
// packet in bytes, proto its protocol, which with extension headers is not the next header of the IPv6
// header, and dst the final destination, which with a routing header is not that of the IPv6 header.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    Source Address (128 bits)                  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                 Destination Address (128 bits)                |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                   Upper-Layer Packet Length                   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                      zero                     |  Next Header  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// RFC 8200 8.1.
func PseudoHeader6(src, dst [16]byte, proto uint8, n uint32) uint32 {
	return words16(src) + words16(dst) + uint32(proto) + n>>16 + n&0xffff
}

// words4 returns the sum of the two 16-bit words of a.
func words4(a [4]byte) uint32 {
	v := binary.BigEndian.Uint32(a[:])
	return v>>16 + v&0xffff
}

// words16 returns the ones' complement sum of the eight 16-bit words of a, in at most 17 bits.
func words16(a [16]byte) uint32 {
	s, c := bits.Add64(binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:]), 0)
	s = s>>32 + s&0xffffffff + c
	return uint32(s>>32 + s>>16&0xffff + s&0xffff)
}
