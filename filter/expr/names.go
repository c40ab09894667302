package expr

import "net/netip"

// Names resolves the names in an expression. A nil function knows none, but for Protocol.
// The functions are called by Compile, in the order of the text.
type Names struct {
	// Host returns the addresses of a host. At most 100 of each family are taken.
	Host func(name string) []netip.Addr
	// Ethernet returns the MAC address of a host, as ethers(5) does.
	Ethernet func(name string) (mac [6]byte, ok bool)
	// Network returns the number of an IPv4 network, as networks(5) does.
	Network func(name string) (netip.Addr, bool)
	// Port returns the number of a service for "tcp" or "udp".
	Port func(name, protocol string) (port uint16, ok bool)
	// Protocol returns the number of an IP protocol, as protocols(5) does; nil knows the usual ones.
	Protocol func(name string) (number uint8, ok bool)
}

// ProtocolNumber returns what n.Protocol does, or the number of a usual protocol where that is nil.
func (n Names) ProtocolNumber(name string) (number uint8, ok bool) {
	if n.Protocol != nil {
		return n.Protocol(name)
	}
	number, ok = ipProtocols[name]
	return number, ok
}

// ipProtocols are numbers of IANA's registry "Protocol Numbers".
var ipProtocols = map[string]uint8{
	"ip": 0, "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "st": 5, "tcp": 6, "egp": 8, "igp": 9, "pup": 12,
	"udp": 17, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "dccp": 33, "xtp": 36, "ddp": 37, "idpr-cmtp": 38,
	"ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "skip": 57,
	"ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89, "ax.25": 93,
	"ipip": 94, "etherip": 97, "encap": 98, "pim": 103, "ipcomp": 108, "vrrp": 112, "l2tp": 115, "isis": 124,
	"sctp": 132, "fc": 133, "mobility-header": 135, "udplite": 136, "mpls-in-ip": 137, "manet": 138, "hip": 139,
	"shim6": 140, "wesp": 141, "rohc": 142,
}

// Numbers of the link layer, by the names that "ether proto" takes. Those up to 0xff are LLC SAPs
// (IEEE 802.2), the others EtherTypes.
const (
	sapIP      = 0x06
	sapSTP     = 0x42
	sapSNAP    = 0xaa
	sapIPX     = 0xe0
	sapNetBEUI = 0xf0
	sapISO     = 0xfe

	typeXNS       = 0x0600
	typeIPv4      = 0x0800
	typeARP       = 0x0806
	typeMOPDL     = 0x6001
	typeMOPRC     = 0x6002
	typeDECnet    = 0x6003
	typeLAT       = 0x6004
	typeSCA       = 0x6007
	typeTEB       = 0x6558
	typeRARP      = 0x8035
	typeAppleTalk = 0x809b
	typeAARP      = 0x80f3
	typeVLAN      = 0x8100
	typeIPX       = 0x8137
	typeIPv6      = 0x86dd
	typeMPLS      = 0x8847
	typePPPoED    = 0x8863
	typePPPoES    = 0x8864
	typeQinQ      = 0x88a8 // IEEE 802.1ad
	typeQinQOld   = 0x9100
)

var linkProtocols = map[string]uint32{
	"aarp": typeAARP, "arp": typeARP, "atalk": typeAppleTalk, "decnet": typeDECnet, "ip": typeIPv4, "ip6": typeIPv6,
	"lat": typeLAT, "lldp": 0x88cc, "loopback": 0x9000, "mopdl": typeMOPDL, "moprc": typeMOPRC, "rarp": typeRARP,
	"sca": typeSCA, "slow": 0x8809,
	"iso": sapISO, "stp": sapSTP, "ipx": sapIPX, "netbeui": sapNetBEUI,
}

// IP protocol numbers.
const (
	ipHopByHop = 0
	ipICMP     = 1
	ipIGMP     = 2
	ipTCP      = 6
	ipIGRP     = 9
	ipUDP      = 17
	ipRouting  = 43
	ipFragment = 44
	ipESP      = 50
	ipAH       = 51
	ipICMPv6   = 58
	ipNoNext   = 59
	ipDestOpts = 60
	ipPIM      = 103
	ipVRRP     = 112 // CARP took the same number
	ipSCTP     = 132
	anyIPProto = -1 // TCP, UDP and SCTP
)

// Network layer protocol identifiers of ISO/IEC TR 9577.
const (
	nlpidCLNP = 0x81
	nlpidESIS = 0x82
	nlpidISIS = 0x83
	nlpidIPv6 = 0x8e
	nlpidIPv4 = 0xcc
)

var protoNumbers = map[proto]uint32{
	protoAH: ipAH, protoCARP: ipVRRP, protoESP: ipESP, protoICMP: ipICMP, protoICMPv6: ipICMPv6, protoIGMP: ipIGMP,
	protoIGRP: ipIGRP, protoPIM: ipPIM, protoSCTP: ipSCTP, protoTCP: ipTCP, protoUDP: ipUDP, protoVRRP: ipVRRP,
	protoAARP: typeAARP, protoARP: typeARP, protoAppleTalk: typeAppleTalk, protoDECnet: typeDECnet, protoIP: typeIPv4,
	protoIPv6: typeIPv6, protoLAT: typeLAT, protoMOPDL: typeMOPDL, protoMOPRC: typeMOPRC, protoRARP: typeRARP,
	protoSCA: typeSCA,
	protoIPX: sapIPX, protoISO: sapISO, protoNetBEUI: sapNetBEUI, protoSTP: sapSTP,
	protoESIS: nlpidESIS, protoISIS: nlpidISIS, protoCLNP: nlpidCLNP,
}
