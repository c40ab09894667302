package cm

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// Port spaces of RDMA-CM, which are the IP protocol that the port would belong to.
const (
	SpaceTCP = 0x06 // connections
	SpaceUDP = 0x11 // datagrams
)

// servicePrefix is the part of a service ID that is the same in all of the IP CM service (A11.2):
//
//	 63                           24 23      16 15             0
//	+-------------------------------+----------+----------------+
//	|         0x0000000001          | protocol |      port      |
//	+-------------------------------+----------+----------------+
const servicePrefix = 0x0000000001 << 24

// ServiceID returns the service of a port.
func ServiceID(space uint8, port uint16) uint64 {
	return servicePrefix | uint64(space)<<16 | uint64(port)
}

// ServicePort returns the port of a service of the space; false where it is none.
func ServicePort(space uint8, service uint64) (port uint16, ok bool) {
	return uint16(service), service>>16 == servicePrefix>>16|uint64(space)
}

// IPHeader precedes the private data of REQ and SIDR_REQ in RDMA-CM (A11.5). It holds the addresses as the program named
// them.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+-------+-------+-------------------------------+
//	|Version major 0| IPV   |       |          Source Port          |
//	+-------+-------+-------+-------+-------------------------------+
//	|          Source IP address; IPv4 in the last 4 bytes          |
//	|                           (16 bytes)                          |
//	+---------------------------------------------------------------+
//	|                 Destination IP address (16 bytes)             |
//	+---------------------------------------------------------------+
type IPHeader struct {
	Src, Dst wire.Addr
	SrcPort  uint16
}

// IPHeaderLen is the size of an IPHeader.
const IPHeaderLen = 36

// Append appends the header.
func (h *IPHeader) Append(b []byte) []byte {
	version := byte(6)
	if h.Src.Is4() {
		version = 4
	}
	b = binary.BigEndian.AppendUint16(append(b, 0, version<<4), h.SrcPort)
	for _, a := range [2]wire.Addr{h.Src, h.Dst} {
		if version == 4 {
			v4 := a.As4()
			b = append(append(b, make([]byte, 12)...), v4[:]...)
		} else {
			b = append(b, a[:]...)
		}
	}
	return b
}

// ParseIPHeader reads the header, and returns what follows it.
func ParseIPHeader(b []byte) (h IPHeader, rest []byte, ok bool) {
	if len(b) < IPHeaderLen || b[0] != 0 {
		return h, nil, false
	}
	h.SrcPort = binary.BigEndian.Uint16(b[2:])
	switch b[1] >> 4 {
	case 4:
		h.Src, h.Dst = wire.AddrFrom4([4]byte(b[16:20])), wire.AddrFrom4([4]byte(b[32:36]))
	case 6:
		h.Src, h.Dst = wire.Addr(b[4:20]), wire.Addr(b[20:36])
		if h.Src.Is4() || h.Dst.Is4() { // IPv4-mapped addresses have version 4
			return h, nil, false
		}
	default:
		return h, nil, false
	}
	return h, b[IPHeaderLen:], true
}
