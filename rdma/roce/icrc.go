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
//
// They are ones in l3 itself while the CRC is computed, and restored then: a copy of the headers would cost an allocation,
// as crc32.Update moves what it gets to the heap.
func ICRC(l3 []byte) uint32 {
	bth := wire.IPv6Len + wire.UDPLen
	switch {
	case l3[0]>>4 == 4:
		bth = wire.IPv4Len + wire.UDPLen
	case l3[6] != wire.ProtoUDP:
		bth = wire.IPv6Len // a GRH
	}
	return maskedCRC(l3, bth)
}

// maskedCRC returns the CRC of a packet whose BTH is at bth, or of its first bytes: BTH at least.
func maskedCRC(l3 []byte, bth int) uint32 {
	ip, transport := *(*[12]byte)(l3), *(*[7]byte)(l3[bth-2:])
	if l3[0]>>4 == 4 {
		l3[1], l3[8], l3[10], l3[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		l3[0] |= 0x0f
		l3[1], l3[2], l3[3], l3[7] = 0xff, 0xff, 0xff, 0xff
	}
	if bth != wire.IPv6Len {
		l3[bth-2], l3[bth-1] = 0xff, 0xff
	}
	l3[bth+4] = 0xff
	crc := crc32.Update(afterLRH, crc32.IEEETable, l3)
	copy(l3, ip[:])
	copy(l3[bth-2:], transport[:])
	return crc
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
