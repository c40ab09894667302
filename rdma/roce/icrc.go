package roce

import (
	"hash/crc32"

	"github.com/millrace/millrace/wire"
)

// ICRC returns the invariant CRC of a packet from its IP header or GRH to the byte before the ICRC itself (InfiniBand
// specification 1, 7.8.1; A17.4.5.1). It goes into the packet with its low byte first. The caller has parsed the packet.
//
// The CRC is that of Ethernet over eight bytes of ones and the packet, in which fields that routers change count as ones:
//
//	IPv4: type of service, time to live, checksum
//	IPv6: traffic class, flow label, hop limit
//	UDP:  checksum
//	BTH:  byte 4, which has the congestion bits
func ICRC(l3 []byte) uint32 {
	bth := wire.IPv6Len + wire.UDPLen
	switch {
	case l3[0]>>4 == 4:
		bth = wire.IPv4Len + wire.UDPLen
	case l3[6] != wire.ProtoUDP:
		bth = wire.IPv6Len // a GRH
	}
	head := bth + BTHLen
	return crc32.Update(masked(l3[:head], bth), crc32.IEEETable, l3[head:])
}

// masked returns the CRC of the headers in h, whose BTH is at bth and of which the first BTHLen bytes may be followed by
// extension headers.
func masked(h []byte, bth int) uint32 {
	var buf [wire.IPv6Len + wire.UDPLen + MostHeaders]byte
	m := buf[:copy(buf[:], h)]
	if m[0]>>4 == 4 {
		m[1], m[8], m[10], m[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		m[0] |= 0x0f
		m[1], m[2], m[3], m[7] = 0xff, 0xff, 0xff, 0xff
	}
	if bth != wire.IPv6Len {
		m[bth-2], m[bth-1] = 0xff, 0xff
	}
	m[bth+4] = 0xff
	return crc32.Update(afterLRH, crc32.IEEETable, m)
}

// CopyCRC copies src to the beginning of dst and returns crc, a CRC-32 as of crc32.Update, updated with it. The bytes are
// loaded once. The slices do not overlap.
func CopyCRC(dst, src []byte, crc uint32) uint32 {
	n := len(src) &^ 15
	if n < leastFold || !canFold {
		copy(dst, src)
		return crc32.Update(crc, crc32.IEEETable, src)
	}
	crc = fold(dst[:n], src[:n], crc)
	copy(dst[n:], src[n:])
	return crc32.Update(crc, crc32.IEEETable, src[n:])
}

// leastFold is the shortest copy that is made by multiplication without carries.
const leastFold = 64
