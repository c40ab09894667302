package capture

import "encoding/binary"

// LLC headers (IEEE 802.2) of the link types that have nothing else between their addresses and IP: FDDI, Token Ring and
// ATM. Frames of Ethernet with LLC are read by findNetwork, for they keep their length field.
const (
	sapIP   = 0x06
	sapSNAP = 0xAA
	sapISO  = 0xFE // NLPIDs (RFC 2684 5.1)

	unnumbered = 0x03 // control field of frames without sequence numbers
)

// llc reads the LLC header at offset at: SNAP, IP by its SAP (RFC 1042), or an NLPID.
//
//	DSAP 8, SSAP 8, control 03 | SNAP: OUI 24, protocol 16 | SAP 06: IP | SAP FE: NLPID 8
func (h EthernetHeader) llc(data []byte, at int) (EthernetHeader, int, error) {
	const size = 3
	if len(data) < at+size {
		return h, 0, ErrTruncated
	}
	if data[at] != data[at+1] || data[at+2] != unnumbered {
		return h, 0, ErrNotIP
	}
	switch data[at] {
	case sapSNAP:
		return h.snap(data, at+size)
	case sapIP:
		return h.named(etherIPv4, at+size)
	case sapISO:
		if len(data) > at+size && data[at+size] != nlpidSNAP { // which has a SAP of its own
			return h.nlpid(data, at+size)
		}
	}
	return h, 0, ErrNotIP
}

// atm reads the LLC header of a frame of AAL5 at offset at. ATM pads bridged frames behind the SNAP header, so that what they
// hold is aligned (RFC 2684 5.3): those of 802.3 by 2 octets, of 802.5 by 2 in front of its access control, and of FDDI by 3.
// The protocols below 7 have a check sequence at the end, which stays as padding. What they hold is no bridged frame of ATM
// again: the depth would be the file's to choose.
func (h EthernetHeader) atm(data []byte, at int) (EthernetHeader, int, error) {
	const size = 8
	if len(data) < at+size || [6]byte(data[at:]) != [6]byte{sapSNAP, sapSNAP, unnumbered, 0x00, 0x80, 0xC2} {
		return h.llc(data, at)
	}
	at += size
	pad, lt := 2, LinkTypeEthernet
	switch binary.BigEndian.Uint16(data[at-2:]) {
	case 1, 7:
	case 3, 9:
		lt = LinkTypeTokenRing
	case 4, 10:
		pad, lt = 3, LinkTypeFDDI
	default:
		return h, 0, ErrNotIP
	}
	if len(data) < at+pad {
		return h, 0, ErrTruncated
	}
	return inside(lt, data, at+pad)
}

// nlpid reads the network layer protocol identifier at offset at.
func (h EthernetHeader) nlpid(data []byte, at int) (EthernetHeader, int, error) {
	if len(data) <= at {
		return h, 0, ErrTruncated
	}
	switch data[at] {
	case nlpidIPv4:
		return h.named(etherIPv4, at+1)
	case nlpidIPv6:
		return h.named(etherIPv6, at+1)
	case nlpidPPP: // RFC 1973, RFC 2364
		return inside(LinkTypePPP, data, at+1)
	case nlpidSNAP:
		return h.snap(data, at+1)
	}
	return h, 0, ErrNotIP
}

// fddi reads the header of FDDI (ISO 9314-2), whose addresses are in the order of Ethernet. Frames other than those of LLC
// manage the ring, and synchronous ones, which IP does not use (RFC 1390), are read by no other program either.
//
//	frame control 0101xxxx (LLC, asynchronous), destination, source, LLC
func fddi(data []byte) (h EthernetHeader, skip int, err error) {
	const size, mask, asynchronous = 13, 0xF0, 0x50
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	if data[0]&mask != asynchronous {
		return h, 0, ErrNotIP
	}
	copy(h[:12], data[1:])
	return h.llc(data, size)
}

// tokenRing reads the header of Token Ring (IEEE 802.5). The first bit of the source says that a route lies behind it, whose
// first octet holds its length.
//
//	access control 8, frame control 01xxxxxx (LLC), destination, source [, route], LLC
func tokenRing(data []byte) (h EthernetHeader, skip int, err error) {
	const size, mask, llc, source, routed = 14, 0xC0, 0x40, 8, 0x80
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	if data[1]&mask != llc {
		return h, 0, ErrNotIP
	}
	copy(h[:12], data[2:])
	if data[source]&routed == 0 {
		return h.llc(data, size)
	}
	h[6] &^= routed
	if len(data) == size {
		return h, 0, ErrTruncated
	}
	const lengthBits, least = 0x1F, 2
	n := int(data[size] & lengthBits)
	if n < least {
		return h, 0, ErrNotIP
	}
	return h.llc(data, size+n)
}

// sunATM reads the header of SunATM: a frame with LLC (RFC 2684 5), also without a type, or one of LAN emulation for 802.3,
// which has the identifier of its sender in front. Signalling is no IP.
//
//	direction 1, type 7 (1: LAN emulation, 2: LLC), VPI 8, VCI 16, LLC or identifier 16, 802.3
func sunATM(data []byte) (h EthernetHeader, skip int, err error) {
	const size, mask, none, emulation, llc, identifier = 4, 0x0F, 0, 1, 2, 2
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	switch data[0] & mask {
	case none, llc:
		return h.atm(data, size)
	case emulation:
		if len(data) < size+identifier {
			return h, 0, ErrTruncated
		}
		return inside(LinkTypeEthernet, data, size+identifier)
	}
	return h, 0, ErrNotIP
}
