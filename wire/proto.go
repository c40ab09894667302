package wire

import "strconv"

// EtherType values (IEEE 802 Numbers registry).
const (
	EtherTypeIPv4           uint16 = 0x0800
	EtherTypeARP            uint16 = 0x0806
	EtherTypeTEB            uint16 = 0x6558 // transparent Ethernet bridging: an Ethernet frame inside GRE, Geneve
	EtherTypeVLAN           uint16 = 0x8100 // 802.1Q customer tag
	EtherTypeIPv6           uint16 = 0x86dd
	EtherTypeMPLS           uint16 = 0x8847
	EtherTypeMPLSUpstream   uint16 = 0x8848 // upstream-assigned label, RFC 5332 3
	EtherTypeQinQ           uint16 = 0x88a8 // 802.1ad service tag
	EtherTypeLLDP           uint16 = 0x88cc
	EtherTypePPPoEDiscovery uint16 = 0x8863 // RFC 2516 4
	EtherTypePPPoE          uint16 = 0x8864 // session stage, RFC 2516 4
	EtherTypeCFM            uint16 = 0x8902 // connectivity fault management, IEEE 802.1Q 18
)

// IP protocol numbers and IPv6 next header values (IANA Protocol Numbers registry).
const (
	ProtoHopByHop uint8 = 0 // IPv6 hop-by-hop options, RFC 8200 4.3
	ProtoICMP     uint8 = 1
	ProtoIGMP     uint8 = 2
	ProtoIPIP     uint8 = 4 // IPv4 inside IP, RFC 2003
	ProtoTCP      uint8 = 6
	ProtoUDP      uint8 = 17
	ProtoIPv6     uint8 = 41  // IPv6 inside IP, RFC 2473
	ProtoRouting  uint8 = 43  // IPv6 routing header, RFC 8200 4.4
	ProtoFragment uint8 = 44  // IPv6 fragment header, RFC 8200 4.5
	ProtoGRE      uint8 = 47  // RFC 2784
	ProtoESP      uint8 = 50  // RFC 4303
	ProtoAH       uint8 = 51  // RFC 4302
	ProtoICMPv6   uint8 = 58  // RFC 4443
	ProtoNone     uint8 = 59  // no next header, RFC 8200 4.7
	ProtoDestOpts uint8 = 60  // IPv6 destination options, RFC 8200 4.6
	ProtoSCTP     uint8 = 132 // RFC 9260
	ProtoMobility uint8 = 135 // RFC 6275
)

// UDP ports of the encapsulations that are read here.
const (
	PortVXLAN  uint16 = 4789 // RFC 7348
	PortGUE    uint16 = 6080 // draft-ietf-intarea-gue
	PortGeneve uint16 = 6081 // RFC 8926
)

var protoNames = [256]string{
	ProtoHopByHop: "hop-by-hop", ProtoICMP: "icmp", ProtoIGMP: "igmp", ProtoIPIP: "ipip",
	ProtoTCP: "tcp", ProtoUDP: "udp", ProtoIPv6: "ipv6", ProtoRouting: "routing",
	ProtoFragment: "fragment", ProtoGRE: "gre", ProtoESP: "esp", ProtoAH: "ah",
	ProtoICMPv6: "icmpv6", ProtoNone: "none", ProtoDestOpts: "dest-opts", ProtoSCTP: "sctp",
	ProtoMobility: "mobility",
}

// ProtoName returns the lower-case name of an IP protocol, or its decimal number where the package
// has no name for it.
func ProtoName(proto uint8) string {
	if s := protoNames[proto]; s != "" {
		return s
	}
	return strconv.Itoa(int(proto))
}

// EtherTypeName returns the lower-case name of an EtherType, or its hexadecimal number where the
// package has no name for it.
func EtherTypeName(t uint16) string {
	switch t {
	case EtherTypeIPv4:
		return "ipv4"
	case EtherTypeARP:
		return "arp"
	case EtherTypeTEB:
		return "teb"
	case EtherTypeVLAN:
		return "vlan"
	case EtherTypeIPv6:
		return "ipv6"
	case EtherTypeMPLS:
		return "mpls"
	case EtherTypeQinQ:
		return "qinq"
	case EtherTypeLLDP:
		return "lldp"
	case EtherTypePPPoE:
		return "pppoe"
	case EtherTypePPPoEDiscovery:
		return "pppoe discovery"
	case EtherTypeMPLSUpstream:
		return "mpls upstream"
	case EtherTypeCFM:
		return "cfm"
	}
	return "0x" + strconv.FormatUint(uint64(t), 16)
}

// InnerProto returns the protocol number that announces an IP packet inside an IP packet: ProtoIPIP
// for IPv4 (RFC 2003 3.1), ProtoIPv6 for IPv6 (RFC 2473 3). The outer header may be of either version.
// It reports false where inner starts with neither.
func InnerProto(inner []byte) (proto uint8, ok bool) {
	switch Version(inner) {
	case 4:
		return ProtoIPIP, true
	case 6:
		return ProtoIPv6, true
	}
	return 0, false
}

// Version returns the IP version in the first four bits of b; 0 where b is empty.
func Version(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	return int(b[0] >> 4)
}
