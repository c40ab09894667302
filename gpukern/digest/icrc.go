package digest

import "hash/crc32"

// Sizes of the headers that the invariant CRC covers with some fields masked.
const (
	ipv4Size = 20
	ipv6Size = 40
	udpSize  = 8
	bthSize  = 12 // base transport header (InfiniBand specification 1, 9.2)
	protoUDP = 17

	mostHeader = 8 + ipv6Size + udpSize + bthSize
)

// isRoCE reports whether p may be a RoCEv2 packet from its IP header on. Routers drop options, and RoCEv2 has none.
func isRoCE(p []byte) bool {
	switch {
	case len(p) >= ipv4Size+udpSize+bthSize && p[0] == 0x45:
		return p[9] == protoUDP
	case len(p) >= ipv6Size+udpSize+bthSize && p[0]>>4 == 6:
		return p[6] == protoUDP
	}
	return false
}

// icrc returns the invariant CRC of a packet for which isRoCE is true (InfiniBand specification 1, 7.8.1; annex A17.3.3): the
// polynomial of Ethernet over 8 bytes of ones, in the place of a local route header, and the packet. Fields that routers
// change count as ones:
//
//	IPv4: type of service, time to live, checksum
//	IPv6: traffic class, flow label, hop limit
//	UDP:  checksum
//	BTH:  byte 4, which has the congestion bits
//
// It goes into the packet with its low byte first. The masked headers are made in masked.
func icrc(p []byte, masked *[mostHeader]byte) uint32 {
	for i := range 8 {
		masked[i] = 0xff
	}
	h := masked[8:]
	size := ipv4Size
	if p[0]>>4 == 6 {
		size = ipv6Size
	}
	copy(h, p[:size+udpSize+bthSize])
	if size == ipv4Size {
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		h[0] |= 0x0f
		h[1], h[2], h[3], h[7] = 0xff, 0xff, 0xff, 0xff
	}
	h[size+6], h[size+7] = 0xff, 0xff
	h[size+udpSize+4] = 0xff
	end := size + udpSize + bthSize
	crc := crc32.ChecksumIEEE(masked[:8+end])
	return crc32.Update(crc, crc32.IEEETable, p[end:])
}
