package capture

import "encoding/binary"

// The network layer protocol identifiers of Frame Relay (ISO/IEC TR 9577, RFC 2427 3).
const (
	nlpidSNAP = 0x80
	nlpidIPv6 = 0x8E
	nlpidIPv4 = 0xCC
	nlpidPPP  = 0xCF
)

// frameRelay reads the header of Frame Relay: the address, then the encapsulation of RFC 2427, or Cisco's, which is an
// EtherType. A frame bridged over it (RFC 2427 4.2) is converted like one of Ethernet.
//
//	address 16 to 32, its last octet odd | control 03 [, pad 00], NLPID [, OUI 24, protocol 16] or EtherType
func frameRelay(data []byte) (h EthernetHeader, skip int, err error) {
	const mostAddress = 4
	at := 0
	for at < len(data) && data[at]&1 == 0 {
		at++
	}
	if at++; at > len(data) {
		return h, 0, ErrTruncated
	}
	if at < 2 || at > mostAddress {
		return h, 0, ErrNotIP
	}
	rest := data[at:]
	if len(rest) < 2 {
		return h, 0, ErrTruncated
	}
	if rest[0] != unnumbered {
		return h.named(binary.BigEndian.Uint16(rest), at+2)
	}
	if at++; rest[1] == 0 { // pad, so that what follows is aligned
		at++
	}
	return h.nlpid(data, at)
}

// snap reads OUI and protocol of a SNAP header at offset at: an EtherType with OUI 0, a whole Ethernet frame with that of
// IEEE 802.1 (RFC 2427 4.2; with protocol 1 its check sequence stays at the end, as padding).
func (h EthernetHeader) snap(data []byte, at int) (EthernetHeader, int, error) {
	const size = 5
	if len(data) < at+size {
		return h, 0, ErrTruncated
	}
	proto := binary.BigEndian.Uint16(data[at+3:])
	switch [3]byte(data[at:]) {
	case [3]byte{}:
		return h.named(proto, at+size)
	case [3]byte{0x00, 0x80, 0xC2}:
		if proto == 1 || proto == 7 {
			return inside(LinkTypeEthernet, data, at+size)
		}
	}
	return h, 0, ErrNotIP
}

// named sets the EtherType of a header whose packet begins at skip. Smaller numbers are no EtherTypes.
func (h EthernetHeader) named(ether uint16, skip int) (EthernetHeader, int, error) {
	if ether < etherMin {
		return EthernetHeader{}, 0, ErrNotIP
	}
	h.setType(ether)
	return h, skip, nil
}

// withDir converts a packet of link type lt behind an octet with its direction.
func withDir(lt LinkType, data []byte) (h EthernetHeader, skip int, err error) {
	if len(data) == 0 {
		return h, 0, ErrTruncated
	}
	return inside(lt, data, 1)
}

// ipoib reads the header of IP over InfiniBand (RFC 4391 6) behind the 40 octets of the global route header, which are
// undefined where the packet had none.
//
//	global route header 40 octets | EtherType 16, reserved 16
func ipoib(data []byte) (h EthernetHeader, skip int, err error) {
	const route, size = 40, 44
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	return h.named(binary.BigEndian.Uint16(data[route:]), size)
}
