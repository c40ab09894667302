package roce

import (
	"encoding/binary"
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
// Where the processor multiplies without carries they become ones in its registers. Otherwise they are ones in l3 itself while the CRC
// is computed, and restored then: a copy of the headers would cost an allocation, as crc32.Update moves what it gets to the heap.
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
	if mask := maskOf(l3[0]>>4 == 4, bth); canFold && len(l3) >= len(mask) {
		n := min(len(l3)&^15, mostShort&^15)
		return update(short(l3[:n], mask, afterLRH), l3[n:])
	}
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
	crc := update(afterLRH, l3)
	copy(l3, ip[:])
	copy(l3[bth-2:], transport[:])
	return crc
}

// masks have ones where the fields of ICRC's comment are: of IPv4, IPv6, and RoCEv1, up to the byte behind the BTH and a multiple of 16.
var masks = [3][]byte{
	newMask(48, 1, 8, 10, 11, 26, 27, 32),
	newMask(64, 1, 2, 3, 7, 46, 47, 52),
	newMask(64, 1, 2, 3, 7, 44),
}

func newMask(n int, ones ...int) []byte {
	m := make([]byte, n)
	for _, i := range ones {
		m[i] = 0xff
	}
	if n > 48 {
		m[0] = 0x0f // the traffic class begins within the first byte
	}
	return m
}

// maskOf returns the mask of a packet whose BTH is at bth.
func maskOf(v4 bool, bth int) []byte {
	switch {
	case v4:
		return masks[0]
	case bth != wire.IPv6Len:
		return masks[1]
	}
	return masks[2]
}

// CopyCRC copies src to the beginning of dst and returns crc, a CRC-32 as of crc32.Update, updated with it. The bytes are
// loaded once. The slices do not overlap.
func CopyCRC(dst, src []byte, crc uint32) uint32 {
	n := len(src) &^ 15
	if n < leastFold || !canFold {
		copy(dst, src)
		return update(crc, src)
	}
	crc = fold(dst[:n], src[:n], crc)
	copy(dst[n:], src[n:])
	return tail(crc, src[n:])
}

// mostShort is the longest span for which short is faster than crc32.Update, which begins with 64 bytes.
const mostShort = 255

// update is crc32.Update for the polynomial of Ethernet. That one takes a byte at a time of what is left behind a multiple of 16
// bytes, and of all that is shorter than 64 a table's step at a time: a third of the time that a packet of 64 bytes takes.
func update(crc uint32, b []byte) uint32 {
	n := len(b) &^ 15
	switch {
	case !canFold: // other processors have an instruction for it
		return crc32.Update(crc, crc32.IEEETable, b)
	case n == 0:
	case n > mostShort:
		crc = crc32.Update(crc, crc32.IEEETable, b[:n])
	default:
		crc = short(b[:n], nil, crc)
	}
	return tail(crc, b[n:])
}

// slices[i] holds the CRC of each byte with i bytes of zeros behind it.
var slices = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for i := 1; i < len(t); i++ {
		for b := range t[i] {
			t[i][b] = t[0][t[i-1][b]&0xff] ^ t[i-1][b]>>8
		}
	}
	return t
}()

// tail updates crc with b, eight and four bytes at a time: packets have lengths that four divides.
func tail(crc uint32, b []byte) uint32 {
	crc = ^crc
	for ; len(b) >= 8; b = b[8:] {
		x := crc ^ binary.LittleEndian.Uint32(b)
		y := binary.LittleEndian.Uint32(b[4:])
		crc = slices[7][x&0xff] ^ slices[6][x>>8&0xff] ^ slices[5][x>>16&0xff] ^ slices[4][x>>24] ^
			slices[3][y&0xff] ^ slices[2][y>>8&0xff] ^ slices[1][y>>16&0xff] ^ slices[0][y>>24]
	}
	if len(b) >= 4 {
		x := crc ^ binary.LittleEndian.Uint32(b)
		crc = slices[3][x&0xff] ^ slices[2][x>>8&0xff] ^ slices[1][x>>16&0xff] ^ slices[0][x>>24]
		b = b[4:]
	}
	for _, v := range b {
		crc = slices[0][byte(crc)^v] ^ crc>>8
	}
	return ^crc
}

// leastFold is the shortest copy that is made by multiplication without carries.
const leastFold = 64
