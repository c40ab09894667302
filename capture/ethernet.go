package capture

import (
	"encoding/binary"
	"math"
)

// EtherTypes of synthesized headers (IEEE 802 numbers).
const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86DD
	etherPPP   = 0x880B // any PPP protocol that has no EtherType of its own
	etherPPPoE = 0x8864 // PPPoE session stage
	etherMPLS  = 0x8847
	etherMin   = 0x0600 // smaller values are lengths (IEEE 802.3)
)

// EthernetHeader is destination, source and EtherType.
type EthernetHeader [14]byte

func (h *EthernetHeader) setType(t uint16) { binary.BigEndian.PutUint16(h[12:], t) }

// ToEthernet returns the packet as an Ethernet frame. data of link type ETHERNET comes back as it
// is. For link types that carry IP the frame is built at the start of dst, which is grown where it
// is too small. Errors are those of Replace.
func ToEthernet(lt LinkType, data, dst []byte) ([]byte, error) {
	if lt == LinkTypeEthernet {
		return data, nil
	}
	h, skip, err := Replace(lt, data)
	if err != nil {
		return nil, err
	}
	dst = append(dst[:0], h[:]...)
	return append(dst, data[skip:]...), nil
}

// Replace returns the Ethernet header h that stands in for the first skip bytes of data, the
// packet's own link header; it is not for link type ETHERNET itself. Addresses that the link type
// does not carry are zero.
//
// ErrLinkType, with the type's name, reports that no packet of this type can be converted; ErrNotIP
// that this one cannot, because its header names neither IP nor an EtherType; ErrTruncated that it
// ends within its link header.
func Replace(lt LinkType, data []byte) (h EthernetHeader, skip int, err error) {
	var ether uint16
	switch lt {
	case LinkTypeRaw, LinkTypeRawBSD, LinkTypeRawOpenBSD:
		ether, err = ipVersion(data)
	case LinkTypeIPv4:
		ether = etherIPv4
	case LinkTypeIPv6:
		ether = etherIPv6
	case LinkTypeMPLS:
		ether = etherMPLS
	case LinkTypePPPEther:
		ether = etherPPPoE
	case LinkTypeNull, LinkTypeLoop:
		ether, skip, err = family(lt, data)
	case LinkTypePPP, LinkTypePPPHDLC:
		ether, skip, err = ppp(data)
	case LinkTypePPPPPPD, LinkTypePPPWithDir:
		ether, skip, err = pppWithDir(data)
	case LinkTypeCHDLC:
		ether, skip, err = chdlc(data)
	case LinkTypeLinuxSLL:
		ether, skip, err = h.sll(data)
	case LinkTypeLinuxSLL2:
		ether, skip, err = h.sll2(data)
	case LinkTypeIEEE80211:
		ether, skip, err = h.dot11(data)
	case LinkTypeRadiotap:
		ether, skip, err = h.radiotap(data)
	case LinkTypeNFLOG:
		ether, skip, err = nflog(data)
	default:
		return replaceAll(lt, data)
	}
	h.setType(ether)
	return h, skip, err
}

// replaceAll is Replace for link types whose packets may hold a whole Ethernet frame, or have addresses of their own.
func replaceAll(lt LinkType, data []byte) (h EthernetHeader, skip int, err error) {
	switch lt {
	case LinkTypePKTAP:
		return pktap(data)
	case LinkTypePPI:
		return ppi(data)
	case LinkTypeFrameRelay:
		return frameRelay(data)
	case LinkTypeFrameRelayDir:
		return withDir(LinkTypeFrameRelay, data)
	case LinkTypeCHDLCDir:
		return withDir(LinkTypeCHDLC, data)
	case LinkTypeFDDI:
		return fddi(data)
	case LinkTypeTokenRing:
		return tokenRing(data)
	case LinkTypeATMRFC1483:
		return h.atm(data, 0)
	case LinkTypeSunATM:
		return sunATM(data)
	case LinkTypeIPoIB:
		return ipoib(data)
	case LinkTypeDSA:
		return dsa(data, macs)
	case LinkTypeEDSA:
		return edsa(data)
	case LinkTypeBRCM:
		return brcm(data)
	case LinkTypeBRCMPrepend:
		return brcmPrepend(data)
	}
	return h, 0, linkError(lt)
}

// ppi reads the header of PPI, whose numbers are little-endian, and converts the packet behind it:
//
//	version 8, flags 8, length of header and fields 16, link type of the packet 32, fields
//
// A packet of PPI in PPI is refused: its depth would be the file's to choose.
func ppi(data []byte) (h EthernetHeader, skip int, err error) {
	const size = 8
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	end := int(binary.LittleEndian.Uint16(data[2:]))
	inner := binary.LittleEndian.Uint32(data[4:])
	switch {
	case end < size:
		return h, 0, ErrNotIP
	case end > len(data):
		return h, 0, ErrTruncated
	case inner > math.MaxUint16 || LinkType(inner) == LinkTypePPI || LinkType(inner) == LinkTypePKTAP:
		return h, 0, linkError(LinkTypePPI)
	}
	return inside(LinkType(inner), data, end)
}

func ipVersion(data []byte) (uint16, error) {
	if len(data) == 0 {
		return 0, ErrTruncated
	}
	switch data[0] >> 4 {
	case 4:
		return etherIPv4, nil
	case 6:
		return etherIPv6, nil
	}
	return 0, ErrNotIP
}

// family reads the address family of BSD's loopback. In NULL it has the byte order of the machine
// that captured, which the file does not contain: the order that gives a small number is right.
func family(lt LinkType, data []byte) (ether uint16, skip int, err error) {
	if len(data) < 4 {
		return 0, 0, ErrTruncated
	}
	af := binary.BigEndian.Uint32(data)
	if lt == LinkTypeNull && af > 0xFFFF {
		af = binary.LittleEndian.Uint32(data)
	}
	switch af {
	case 2: // AF_INET everywhere
		return etherIPv4, 4, nil
	case 10, 23, 24, 28, 30: // AF_INET6 of Linux, Windows, NetBSD and OpenBSD, FreeBSD, Darwin
		return etherIPv6, 4, nil
	}
	return 0, 0, ErrNotIP
}

// ppp reads the protocol field of PPP, behind address and control where they were not compressed
// away (RFC 1661 2 and 6.6, RFC 1662 3.1). Cisco's HDLC framing shares the link type PPP_HDLC.
func ppp(data []byte) (ether uint16, skip int, err error) {
	if len(data) >= 2 && data[0] == 0xFF && data[1] == 0x03 {
		skip = 2
	} else if len(data) >= 1 && (data[0] == 0x0F || data[0] == 0x8F) {
		return chdlc(data)
	}
	rest := data[skip:]
	if len(rest) == 0 {
		return 0, 0, ErrTruncated
	}
	proto, n := uint16(rest[0]), 1 // an odd first octet is a compressed protocol field
	if rest[0]&1 == 0 {
		if len(rest) < 2 {
			return 0, 0, ErrTruncated
		}
		proto, n = binary.BigEndian.Uint16(rest), 2
	}
	switch proto {
	case 0x0021:
		return etherIPv4, skip + n, nil
	case 0x0057:
		return etherIPv6, skip + n, nil
	case 0x0281:
		return etherMPLS, skip + n, nil
	}
	return etherPPP, skip, nil
}

func pppWithDir(data []byte) (ether uint16, skip int, err error) {
	if len(data) == 0 {
		return 0, 0, ErrTruncated
	}
	ether, skip, err = ppp(data[1:])
	return ether, skip + 1, err
}

// chdlc reads Cisco HDLC (RFC 1547 4.3.1): address, control, EtherType.
func chdlc(data []byte) (ether uint16, skip int, err error) {
	if len(data) < 4 {
		return 0, 0, ErrTruncated
	}
	return binary.BigEndian.Uint16(data[2:]), 4, nil
}

// sll reads the header of Linux's "any" device:
//
//	packet type 16, ARPHRD 16, address length 16, address 8 octets, protocol 16
func (h *EthernetHeader) sll(data []byte) (ether uint16, skip int, err error) {
	const size = 16
	if len(data) < size {
		return 0, 0, ErrTruncated
	}
	h.addresses(binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[4:]), data[6:14])
	ether, err = sllProtocol(binary.BigEndian.Uint16(data[14:]), len(data)-size)
	return ether, size, err
}

// sll2 reads the second form of that header:
//
//	protocol 16, reserved 16, interface 32, ARPHRD 16, packet type 8, address length 8, address 8 octets
func (h *EthernetHeader) sll2(data []byte) (ether uint16, skip int, err error) {
	const size = 20
	if len(data) < size {
		return 0, 0, ErrTruncated
	}
	h.addresses(uint16(data[10]), uint16(data[11]), data[12:20])
	ether, err = sllProtocol(binary.BigEndian.Uint16(data), len(data)-size)
	return ether, size, err
}

// addresses fills in the addresses that Linux stores: the sender, and whether the packet was a broadcast.
func (h *EthernetHeader) addresses(kind, n uint16, addr []byte) {
	const broadcast = 1
	if n == 6 {
		copy(h[6:12], addr)
	}
	if kind == broadcast {
		for i := range h[:6] {
			h[i] = 0xFF
		}
	}
}

// sllProtocol turns Linux's protocol field into an EtherType: it is one, or one of the ETH_P_
// numbers below 0x600, of which 802.3 and 802.2 stand for a frame with a length.
func sllProtocol(p uint16, payload int) (uint16, error) {
	const p8023, p8022 = 1, 4
	switch {
	case p >= etherMin:
		return p, nil
	case (p == p8023 || p == p8022) && payload < etherMin:
		return uint16(payload), nil
	}
	return 0, ErrNotIP
}
