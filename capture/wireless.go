package capture

import (
	"encoding/binary"
	"math"
)

// radiotap skips the header that receivers put in front of an 802.11 frame: version 8, pad 8, length 16 (little-endian), fields.
func (h *EthernetHeader) radiotap(data []byte) (ether uint16, skip int, err error) {
	if len(data) < 4 {
		return 0, 0, ErrTruncated
	}
	n := int(binary.LittleEndian.Uint16(data[2:]))
	switch {
	case n < 8:
		return 0, 0, ErrNotIP
	case n > len(data):
		return 0, 0, ErrTruncated
	}
	ether, skip, err = h.dot11(data[n:])
	return ether, n + skip, err
}

// The frame control of 802.11 (IEEE 802.11 9.2.4.1), its first octet in the low bits.
const (
	dot11Type      = 0x000C
	dot11Data      = 0x0008
	dot11NoData    = 0x0040 // subtypes without a body
	dot11QoS       = 0x0080
	dot11ToDS      = 0x0100
	dot11FromDS    = 0x0200
	dot11Protected = 0x4000
	dot11Order     = 0x8000 // with QoS: an HT control field follows
	dot11AMSDU     = 0x80   // of the QoS control: several packets in one frame
)

// dot11 reads the header of an 802.11 data frame and the LLC/SNAP header behind it (IEEE 802.2, RFC 1042). Which address is
// whose depends on the two DS bits. Encrypted frames, and several packets in one, are no IP packets here.
//
//	control 16, duration 16, address 1, 2, 3, sequence 16 [, address 4] [, QoS 16 [, HT 32]] | AA AA 03 00 00 00, EtherType
func (h *EthernetHeader) dot11(data []byte) (ether uint16, skip int, err error) {
	if len(data) < 24 {
		return 0, 0, ErrTruncated
	}
	fc := binary.LittleEndian.Uint16(data)
	if fc&dot11Type != dot11Data || fc&(dot11NoData|dot11Protected) != 0 {
		return 0, 0, ErrNotIP
	}
	n, to, from := 24, 4, 10 // offsets of destination and source
	switch fc & (dot11ToDS | dot11FromDS) {
	case dot11ToDS:
		to = 16
	case dot11FromDS:
		from = 16
	case dot11ToDS | dot11FromDS:
		n, to, from = 30, 16, 24
	}
	if fc&dot11QoS != 0 {
		if len(data) < n+2 {
			return 0, 0, ErrTruncated
		}
		if data[n]&dot11AMSDU != 0 {
			return 0, 0, ErrNotIP
		}
		if n += 2; fc&dot11Order != 0 {
			n += 4
		}
	}
	if len(data) < n+8 {
		return 0, 0, ErrTruncated
	}
	if [6]byte(data[n:]) != [6]byte{0xAA, 0xAA, 0x03} {
		return 0, 0, ErrNotIP
	}
	copy(h[:6], data[to:to+6])
	copy(h[6:12], data[from:from+6])
	return binary.BigEndian.Uint16(data[n+6:]), n + 8, nil
}

// nflog finds the packet among the attributes of Linux's log target: family 8, version 8, resource 16, then attributes of length
// 16, type 16 in the byte order of the machine that captured. The length that fits is right.
func nflog(data []byte) (ether uint16, skip int, err error) {
	const payload = 9 // NFULA_PAYLOAD
	if len(data) < 4 {
		return 0, 0, ErrTruncated
	}
	switch data[0] {
	case 2:
		ether = etherIPv4
	case 10:
		ether = etherIPv6
	default:
		return 0, 0, ErrNotIP
	}
	for at := 4; ; {
		if len(data) < at+4 {
			return 0, 0, ErrTruncated
		}
		n, typ := int(binary.LittleEndian.Uint16(data[at:])), binary.LittleEndian.Uint16(data[at+2:])
		if typ > 0xFF {
			n, typ = int(binary.BigEndian.Uint16(data[at:])), binary.BigEndian.Uint16(data[at+2:])
		}
		switch {
		case n < 4:
			return 0, 0, ErrNotIP
		case typ == payload:
			return ether, at + 4, nil
		}
		at += (n + 3) &^ 3
	}
}

// pktap reads the header of Darwin's PKTAP, whose numbers are little-endian, and converts the packet behind it: length 32,
// record type 32, link type of the packet 32, fields.
func pktap(data []byte) (h EthernetHeader, skip int, err error) {
	if len(data) < 12 {
		return h, 0, ErrTruncated
	}
	end, inner := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[8:])
	switch {
	case end < 12:
		return h, 0, ErrNotIP
	case uint64(end) > uint64(len(data)):
		return h, 0, ErrTruncated
	case inner > math.MaxUint16 || LinkType(inner) == LinkTypePKTAP || LinkType(inner) == LinkTypePPI:
		return h, 0, linkError(LinkTypePKTAP)
	}
	return inside(LinkType(inner), data, int(end))
}

// inside converts the packet of a link type that lies behind end bytes.
func inside(lt LinkType, data []byte, end int) (h EthernetHeader, skip int, err error) {
	if lt == LinkTypeEthernet {
		if skip = end + len(h); skip > len(data) {
			return h, 0, ErrTruncated
		}
		copy(h[:], data[end:])
		return h, skip, nil
	}
	h, skip, err = Replace(lt, data[end:])
	return h, end + skip, err
}
