package capture

// The tags of switches that are managed over Ethernet (Linux's distributed switch architecture) stand between the addresses
// and the EtherType, or in front of the frame.

const (
	macs      = 12 // bytes of the two addresses
	etherVLAN = 0x8100
)

// dsa reads an Ethernet frame with Marvell's tag of 4 octets at offset tag. A tag with the bit "tagged" replaces the VLAN
// tag and holds its TCI in the last two octets, so the VLAN tag is restored:
//
//	mode 2, tagged 1, device 5 | port 5, flags 3 | priority 3, code 1, VLAN 12
func dsa(data []byte, tag int) (h EthernetHeader, skip int, err error) {
	const tagged = 1 << 5
	if len(data) < tag+4+2 {
		return h, 0, ErrTruncated
	}
	copy(h[:macs], data)
	if data[tag]&tagged != 0 {
		h.setType(etherVLAN)
		return h, tag + 2, nil
	}
	copy(h[macs:], data[tag+4:])
	return h, tag + 4 + 2, nil
}

// edsa reads the same behind an EtherType of its own, DADA, and two reserved octets. A frame without it has no tag.
func edsa(data []byte) (h EthernetHeader, skip int, err error) {
	if len(data) < macs+2 {
		return h, 0, ErrTruncated
	}
	if data[macs] != 0xDA || data[macs+1] != 0xDA {
		return inside(LinkTypeEthernet, data, 0)
	}
	return dsa(data, macs+4)
}

// brcm reads Broadcom's tag of 4 octets behind the addresses. It keeps VLAN tags.
func brcm(data []byte) (h EthernetHeader, skip int, err error) {
	const size = macs + 4 + 2
	if len(data) < size {
		return h, 0, ErrTruncated
	}
	copy(h[:macs], data)
	copy(h[macs:], data[macs+4:])
	return h, size, nil
}

// brcmPrepend reads the same tag in front of the frame.
func brcmPrepend(data []byte) (h EthernetHeader, skip int, err error) {
	if len(data) < 4 {
		return h, 0, ErrTruncated
	}
	return inside(LinkTypeEthernet, data, 4)
}
