package capture

import (
	"fmt"
	"strconv"
)

// LinkType defines what the first bytes of a packet are: the numbers and, as names, LINKTYPE_ words of
// tcpdump.org's list.
type LinkType uint16

// Link types that ToEthernet converts, Ethernet first.
const (
	LinkTypeEthernet   LinkType = 1
	LinkTypeNull       LinkType = 0   // BSD loopback: address family in the host's byte order
	LinkTypePPP        LinkType = 9   // PPP, with or without address and control
	LinkTypeRawBSD     LinkType = 12  // IP, as files of most systems number it
	LinkTypeRawOpenBSD LinkType = 14  // IP, as files of OpenBSD number it
	LinkTypePPPHDLC    LinkType = 50  // PPP in HDLC-like framing (RFC 1662)
	LinkTypePPPEther   LinkType = 51  // PPPoE session header (RFC 2516)
	LinkTypeRaw        LinkType = 101 // IPv4 or IPv6 by its version
	LinkTypeCHDLC      LinkType = 104 // Cisco HDLC
	LinkTypeLoop       LinkType = 108 // OpenBSD loopback: address family in network byte order
	LinkTypeLinuxSLL   LinkType = 113 // Linux "any" device
	LinkTypePPPPPPD    LinkType = 166 // PPP with a direction octet (Linux pppd)
	LinkTypePPPWithDir LinkType = 204 // PPP with a direction octet
	LinkTypeIPv4       LinkType = 228
	LinkTypeIPv6       LinkType = 229
	LinkTypePPI        LinkType = 192 // per-packet information, then a packet of the link type that it names
	LinkTypeMPLS       LinkType = 219
	LinkTypeLinuxSLL2  LinkType = 276 // Linux "any" device, second form
	LinkTypeIEEE80211  LinkType = 105 // 802.11 frames: the data frames that are not encrypted
	LinkTypeRadiotap   LinkType = 127 // the same behind a radiotap header
	LinkTypeNFLOG      LinkType = 239 // Linux's log target of netfilter
	LinkTypePKTAP      LinkType = 258 // Darwin: a header, then a packet of the link type that it names

	LinkTypeFrameRelay    LinkType = 107 // with the encapsulation of RFC 2427 or Cisco's
	LinkTypeFrameRelayDir LinkType = 206 // the same behind a direction octet
	LinkTypeCHDLCDir      LinkType = 205 // Cisco HDLC behind a direction octet
	LinkTypeIPoIB         LinkType = 242 // IP over InfiniBand (RFC 4391)
	LinkTypeBRCM          LinkType = 281 // Ethernet with the tag of a Broadcom switch
	LinkTypeBRCMPrepend   LinkType = 282 // the same with the tag in front
	LinkTypeDSA           LinkType = 284 // Ethernet with the tag of a Marvell switch
	LinkTypeEDSA          LinkType = 285 // the same behind an EtherType

	LinkTypeTokenRing  LinkType = 6   // IEEE 802.5
	LinkTypeFDDI       LinkType = 10  // with addresses in the order of Ethernet
	LinkTypeATMRFC1483 LinkType = 100 // LLC of RFC 2684 in AAL5
	LinkTypeSunATM     LinkType = 123 // the same, or LAN emulation, behind type and circuit

	LinkTypeUSBLinux  LinkType = 189 // not converted
	LinkTypeSocketCAN LinkType = 227 // not converted
)

// linkNames are the names under which tcpdump.org lists the link types that are met in practice.
var linkNames = map[LinkType]string{
	0: "NULL", 1: "ETHERNET", 2: "EXP_ETHERNET", 3: "AX25", 4: "PRONET", 5: "CHAOS",
	6: "IEEE802_5", 7: "ARCNET_BSD", 8: "SLIP", 9: "PPP", 10: "FDDI", 12: "RAW", 14: "RAW",
	50: "PPP_HDLC", 51: "PPP_ETHER", 99: "SYMANTEC_FIREWALL", 100: "ATM_RFC1483", 101: "RAW",
	104: "C_HDLC", 105: "IEEE802_11", 107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL", 114: "LTALK",
	117: "PFLOG", 119: "IEEE802_11_PRISM", 122: "IP_OVER_FC", 123: "SUNATM",
	127: "IEEE802_11_RADIOTAP", 129: "ARCNET_LINUX", 138: "APPLE_IP_OVER_IEEE1394",
	139: "MTP2_WITH_PHDR", 140: "MTP2", 141: "MTP3", 142: "SCCP", 143: "DOCSIS",
	144: "LINUX_IRDA", 147: "USER0", 148: "USER1", 149: "USER2", 150: "USER3",
	163: "IEEE802_11_AVS", 165: "BACNET_MS_TP", 166: "PPP_PPPD", 169: "GPRS_LLC",
	177: "LINUX_LAPD", 182: "MFR", 187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 192: "PPI",
	195: "IEEE802_15_4_WITHFCS", 196: "SITA", 197: "ERF", 201: "BLUETOOTH_HCI_H4_WITH_PHDR",
	202: "AX25_KISS", 203: "LAPD", 204: "PPP_WITH_DIR", 205: "C_HDLC_WITH_DIR",
	206: "FRELAY_WITH_DIR", 209: "IPMB_LINUX", 210: "FLEXRAY", 212: "LIN",
	215: "IEEE802_15_4_NONASK_PHY", 219: "MPLS", 220: "USB_LINUX_MMAPPED", 224: "FC_2",
	225: "FC_2_WITH_FRAME_DELIMS", 226: "IPNET", 227: "CAN_SOCKETCAN", 228: "IPV4", 229: "IPV6",
	230: "IEEE802_15_4_NOFCS", 231: "DBUS", 235: "DVB_CI", 236: "MUX27010", 237: "STANAG_5066_D_PDU",
	239: "NFLOG", 240: "NETANALYZER", 241: "NETANALYZER_TRANSPARENT", 242: "IPOIB", 243: "MPEG_2_TS",
	244: "NG40", 245: "NFC_LLCP", 247: "INFINIBAND", 248: "SCTP", 249: "USBPCAP",
	251: "BLUETOOTH_LE_LL", 252: "WIRESHARK_UPPER_PDU", 253: "NETLINK", 254: "BLUETOOTH_LINUX_MONITOR",
	256: "BLUETOOTH_LE_LL_WITH_PHDR", 257: "PROFIBUS_DL", 258: "PKTAP", 259: "EPON",
	260: "IPMI_HPM_2", 264: "ISO_14443", 265: "RDS", 266: "USB_DARWIN", 268: "SDLC", 271: "VSOCK",
	272: "NORDIC_BLE", 276: "LINUX_SLL2", 278: "OPENVIZSLA", 279: "EBHSCR", 283: "IEEE802_15_4_TAP",
	281: "DSA_TAG_BRCM", 282: "DSA_TAG_BRCM_PREPEND", 284: "DSA_TAG_DSA", 285: "DSA_TAG_EDSA",
	286: "ELEE", 287: "Z_WAVE_SERIAL", 288: "USB_2_0", 289: "ATSC_ALP", 290: "ETW",
}

// String returns the name without its LINKTYPE_ prefix, or the number where there is none.
func (t LinkType) String() string {
	if name, ok := linkNames[t]; ok {
		return name
	}
	return "LINKTYPE_" + strconv.Itoa(int(t))
}

// linkError is ErrLinkType with the link type; a value, because it is made once per packet.
type linkError LinkType

func (e linkError) Error() string {
	return fmt.Sprintf("%v: %v (%d)", ErrLinkType, LinkType(e), uint16(e))
}

func (linkError) Unwrap() error { return ErrLinkType }
