package expr

import (
	"fmt"
	"strings"
)

// LinkType is a link-layer header type with the number that libpcap has for it in memory on Linux (a
// DLT_ constant). Files have other numbers for a few types: see FromCapture.
type LinkType uint32

// The types whose headers Compile knows. Of others it compiles what needs no header: tests of the
// length, and of bytes by "link[...]".
const (
	LinkNull                   LinkType = 0   // BSD loopback: an address family in the byte order of the writer
	LinkEthernet               LinkType = 1   // Ethernet II and 802.3
	LinkEN3MB                  LinkType = 2   // experimental Ethernet
	LinkAX25                   LinkType = 3   // amateur packet radio
	LinkProNET                 LinkType = 4   // Proteon token ring
	LinkChaos                  LinkType = 5   // Chaosnet
	LinkTokenRing              LinkType = 6   // IEEE 802.5
	LinkARCNET                 LinkType = 7   // ARCnet, BSD form
	LinkSLIP                   LinkType = 8   // serial line IP
	LinkPPP                    LinkType = 9   // PPP with address and control bytes
	LinkFDDI                   LinkType = 10  // FDDI
	LinkATMRFC1483             LinkType = 11  // LLC and SNAP over ATM
	LinkRaw                    LinkType = 12  // IPv4 or IPv6, by the version
	LinkSLIPBSDOS              LinkType = 15  // serial line IP of BSD/OS
	LinkPPPBSDOS               LinkType = 16  // PPP of BSD/OS
	LinkATMClassicalIP         LinkType = 19  // classical IP over ATM
	LinkRedback                LinkType = 32  // Redback SmartEdge
	LinkPPPSerial              LinkType = 50  // PPP in HDLC framing
	LinkPPPoE                  LinkType = 51  // PPP over Ethernet of NetBSD
	LinkSymantecFirewall       LinkType = 99  // Symantec Enterprise Firewall
	LinkCiscoHDLC              LinkType = 104 // Cisco HDLC
	Link80211                  LinkType = 105 // 802.11
	LinkFrameRelay             LinkType = 107 // Frame Relay
	LinkLoop                   LinkType = 108 // OpenBSD loopback: an address family in network order
	LinkEnc                    LinkType = 109 // OpenBSD IPsec
	LinkHDLC                   LinkType = 112 // HDLC of NetBSD
	LinkLinuxCooked            LinkType = 113 // Linux cooked capture, version 1
	LinkLocalTalk              LinkType = 114 // Apple LocalTalk
	LinkPFLog                  LinkType = 117 // log of the BSD packet filter
	LinkPrism                  LinkType = 119 // 802.11 with a Prism header
	LinkIPOverFC               LinkType = 122 // IP over Fibre Channel
	LinkSunATM                 LinkType = 123 // SunATM devices
	LinkRadiotap               LinkType = 127 // 802.11 with a radiotap header
	LinkARCNETLinux            LinkType = 129 // ARCnet, Linux form
	LinkJuniperMLPPP           LinkType = 130 // Juniper multi-link PPP
	LinkJuniperMLFR            LinkType = 131 // Juniper multi-link Frame Relay
	LinkJuniperES              LinkType = 132 // Juniper encryption services
	LinkJuniperGGSN            LinkType = 133 // Juniper GGSN
	LinkJuniperMFR             LinkType = 134 // Juniper FRF.16 Frame Relay
	LinkJuniperATM2            LinkType = 135 // Juniper ATM2 cards
	LinkJuniperServices        LinkType = 136 // Juniper services cards
	LinkJuniperATM1            LinkType = 137 // Juniper ATM1 cards
	LinkFireWire               LinkType = 138 // Apple IP over IEEE 1394
	LinkMTP2Phdr               LinkType = 139 // SS7 MTP2 with a pseudo-header
	LinkMTP2                   LinkType = 140 // SS7 MTP2
	LinkAVS                    LinkType = 163 // 802.11 with an AVS header
	LinkJuniperMonitor         LinkType = 164 // Juniper monitoring cards
	LinkBACnetMSTP             LinkType = 165 // BACnet MS/TP
	LinkPPPD                   LinkType = 166 // PPP with a byte for the direction
	LinkJuniperPPPoE           LinkType = 167 // Juniper PPPoE
	LinkJuniperPPPoEATM        LinkType = 168 // Juniper PPPoE over ATM
	LinkJuniperEther           LinkType = 178 // Juniper Ethernet
	LinkJuniperPPP             LinkType = 179 // Juniper PPP
	LinkJuniperFrameRelay      LinkType = 180 // Juniper Frame Relay
	LinkJuniperCHDLC           LinkType = 181 // Juniper C-HDLC
	LinkMFR                    LinkType = 182 // FRF.16 Frame Relay
	LinkJuniperVP              LinkType = 183 // Juniper voice cards
	LinkPPI                    LinkType = 192 // per-packet information, with 802.11
	LinkJuniperISM             LinkType = 194 // Juniper integrated services
	LinkERF                    LinkType = 197 // Endace records
	LinkJuniperST              LinkType = 200 // Juniper secure tunnel
	LinkAX25KISS               LinkType = 202 // amateur packet radio with KISS
	LinkIPNET                  LinkType = 226 // Solaris ipnet
	LinkIPv4                   LinkType = 228 // IPv4 alone
	LinkIPv6                   LinkType = 229 // IPv6 alone
	LinkJuniperVS              LinkType = 232 // Juniper VS
	LinkJuniperSRXE2E          LinkType = 233 // Juniper SRX
	LinkJuniperFibreChannel    LinkType = 234 // Juniper Fibre Channel
	LinkJuniperATMCEMIC        LinkType = 238 // Juniper ATM CE MIC
	LinkNetAnalyzer            LinkType = 240 // Hilscher netANALYZER
	LinkNetAnalyzerTransparent LinkType = 241 // Hilscher netANALYZER, transparent
	LinkPFSync                 LinkType = 246 // state of the BSD packet filter
	LinkLinuxCooked2           LinkType = 276 // Linux cooked capture, version 2
	LinkDSATagBroadcom         LinkType = 281 // Ethernet with a Broadcom switch tag
	LinkDSATagMarvell          LinkType = 284 // Ethernet with a Marvell switch tag

	// Types of these numbers compile even where they have no row in the table.
	firstMatching LinkType = 104
	lastMatching  LinkType = 304
)

// FromCapture returns the type for the number in a pcap or pcapng file (a LINKTYPE_ constant).
func FromCapture(number uint32) LinkType {
	switch number {
	case 100:
		return LinkATMRFC1483
	case 101:
		return LinkRaw
	case 102:
		return LinkSLIPBSDOS
	case 103:
		return LinkPPPBSDOS
	case 106:
		return LinkATMClassicalIP
	}
	return LinkType(number)
}

// ParseLinkType returns the type with a name of tcpdump -y: "EN10MB", "RAW", "LINUX_SLL2". Case does
// not count.
func ParseLinkType(name string) (LinkType, bool) {
	for t, l := range links {
		if strings.EqualFold(l.name, name) {
			return t, true
		}
	}
	return 0, false
}

// String returns the name of the type for tcpdump -y.
func (t LinkType) String() string {
	if l, ok := links[t]; ok {
		return l.name
	}
	return fmt.Sprintf("link type %d", uint32(t))
}

// unset is the offset of what a header does not have.
const unset = 0xffffffff

// family says how a header names the protocol of its payload.
type family uint8

const (
	familyNone       family = iota // not at all, or unknown
	familyEthernet                 // EtherType, or length and LLC
	familyEthertype                // EtherType
	familyLLC                      // LLC
	familyWLAN                     // LLC in data frames
	familySunATM                   // LLC in some cells
	familyCooked                   // EtherType, or a code for LLC
	familyVersion                  // the version of the IP header
	familyIPv4                     // always IPv4
	familyIPv6                     // always IPv6
	familyPPP                      // the protocol field of PPP
	familyPPPBSDOS                 // also with compressed TCP/IP headers
	familyHDLC                     // EtherType or OSI
	familyLoopback                 // an address family
	familyPFLog                    // an address family
	familyArcnet                   // a system code
	familyLocalTalk                // always AppleTalk
	familyFrameRelay               // an NLPID
	familyJuniper                  // none; a magic number tells that the header is one
	familyIPNET                    // an address family
)

// link describes one header type. Offsets are in bytes; those that vary are known only per packet.
type link struct {
	name          string // of tcpdump -y
	family        family
	header        uint32 // where the link-layer header proper begins
	headerVaries  bool
	protocol      uint32 // of the field with the payload's protocol
	payload       uint32 // of the first byte after the header
	payloadVaries bool
	network       uint32 // from payload to the network header, LLC and SNAP between them
	noSNAP        uint32 // from payload to the network header, LLC alone between them
	mac48         bool   // has 48-bit addresses
}

var links = map[LinkType]link{
	LinkNull:                   {name: "NULL", family: familyLoopback, payload: 4},
	LinkEthernet:               {name: "EN10MB", family: familyEthernet, protocol: 12, payload: 14, noSNAP: 3, mac48: true},
	LinkEN3MB:                  {name: "EN3MB", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkAX25:                   {name: "AX25", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkProNET:                 {name: "PRONET", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkChaos:                  {name: "CHAOS", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkTokenRing:              {name: "IEEE802", family: familyLLC, protocol: 14, payload: 14, network: 8, noSNAP: 3, mac48: true},
	LinkARCNET:                 {name: "ARCNET", family: familyArcnet, protocol: 2, payload: 6},
	LinkSLIP:                   {name: "SLIP", family: familyVersion, protocol: unset, payload: 16},
	LinkPPP:                    {name: "PPP", family: familyPPP, protocol: 2, payload: 4},
	LinkFDDI:                   {name: "FDDI", family: familyLLC, protocol: 13, payload: 13, network: 8, noSNAP: 3, mac48: true},
	LinkATMRFC1483:             {name: "ATM_RFC1483", family: familyLLC, network: 8, noSNAP: 3},
	LinkRaw:                    {name: "RAW", family: familyVersion, protocol: unset},
	LinkSLIPBSDOS:              {name: "SLIP_BSDOS", family: familyVersion, protocol: unset, payload: 24},
	LinkPPPBSDOS:               {name: "PPP_BSDOS", family: familyPPPBSDOS, protocol: 5, payload: 24},
	LinkATMClassicalIP:         {name: "ATM_CLIP", family: familyLLC, network: 8, noSNAP: 3},
	LinkRedback:                {name: "REDBACK_SMARTEDGE", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkPPPSerial:              {name: "PPP_SERIAL", family: familyPPP, protocol: 2, payload: 4},
	LinkPPPoE:                  {name: "PPP_ETHER", family: familyPPP, protocol: 6, payload: 8},
	LinkSymantecFirewall:       {name: "SYMANTEC_FIREWALL", family: familyEthertype, protocol: 6, payload: 44},
	LinkCiscoHDLC:              {name: "C_HDLC", family: familyHDLC, protocol: 2, payload: 4},
	Link80211:                  {name: "IEEE802_11", family: familyWLAN, protocol: 24, payloadVaries: true, network: 8, noSNAP: 3, mac48: true},
	LinkFrameRelay:             {name: "FRELAY", family: familyFrameRelay, protocol: unset},
	LinkLoop:                   {name: "LOOP", family: familyLoopback, payload: 4},
	LinkEnc:                    {name: "ENC", family: familyLoopback, payload: 12},
	LinkHDLC:                   {name: "HDLC", family: familyHDLC, protocol: 2, payload: 4},
	LinkLinuxCooked:            {name: "LINUX_SLL", family: familyCooked, protocol: 14, payload: 16},
	LinkLocalTalk:              {name: "LTALK", family: familyLocalTalk, protocol: unset},
	LinkPFLog:                  {name: "PFLOG", family: familyPFLog, payloadVaries: true},
	LinkPrism:                  {name: "PRISM_HEADER", family: familyWLAN, headerVaries: true, protocol: 24, payloadVaries: true, network: 8, noSNAP: 3, mac48: true},
	LinkIPOverFC:               {name: "IP_OVER_FC", family: familyLLC, protocol: 16, payload: 16, network: 8, noSNAP: 3, mac48: true},
	LinkSunATM:                 {name: "SUNATM", family: familySunATM, protocol: 4, payload: 4, network: 8, noSNAP: 3},
	LinkRadiotap:               {name: "IEEE802_11_RADIO", family: familyWLAN, headerVaries: true, protocol: 24, payloadVaries: true, network: 8, noSNAP: 3, mac48: true},
	LinkARCNETLinux:            {name: "ARCNET_LINUX", family: familyArcnet, protocol: 4, payload: 8},
	LinkJuniperMLPPP:           {name: "JUNIPER_MLPPP", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkJuniperMLFR:            {name: "JUNIPER_MLFR", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkJuniperES:              {name: "JUNIPER_ES", family: familyJuniper, protocol: 6, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperGGSN:            {name: "JUNIPER_GGSN", family: familyJuniper, protocol: 6, payload: 12, noSNAP: unset},
	LinkJuniperMFR:             {name: "JUNIPER_MFR", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkJuniperATM2:            {name: "JUNIPER_ATM2", family: familyJuniper, protocol: 8, payload: 8, noSNAP: 10},
	LinkJuniperServices:        {name: "JUNIPER_SERVICES", family: familyJuniper, protocol: 12, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperATM1:            {name: "JUNIPER_ATM1", family: familyJuniper, protocol: 4, payload: 4, noSNAP: 10},
	LinkFireWire:               {name: "APPLE_IP_OVER_IEEE1394", family: familyEthertype, protocol: 16, payload: 18},
	LinkMTP2Phdr:               {name: "MTP2_WITH_PHDR", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkMTP2:                   {name: "MTP2", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkAVS:                    {name: "IEEE802_11_RADIO_AVS", family: familyWLAN, headerVaries: true, protocol: 24, payloadVaries: true, network: 8, noSNAP: 3, mac48: true},
	LinkJuniperMonitor:         {name: "JUNIPER_MONITOR", family: familyJuniper, protocol: 12, payload: 12, noSNAP: unset},
	LinkBACnetMSTP:             {name: "BACNET_MS_TP", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkPPPD:                   {name: "PPP_PPPD", family: familyPPP, protocol: 2, payload: 4},
	LinkJuniperPPPoE:           {name: "JUNIPER_PPPOE", family: familyJuniper, protocol: 16, payload: 14, network: 18, noSNAP: 21},
	LinkJuniperPPPoEATM:        {name: "JUNIPER_PPPOE_ATM", family: familyJuniper, protocol: 4, payload: 6, noSNAP: unset},
	LinkJuniperEther:           {name: "JUNIPER_ETHER", family: familyJuniper, protocol: 16, payload: 14, network: 18, noSNAP: 21},
	LinkJuniperPPP:             {name: "JUNIPER_PPP", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkJuniperFrameRelay:      {name: "JUNIPER_FRELAY", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkJuniperCHDLC:           {name: "JUNIPER_CHDLC", family: familyJuniper, protocol: 4, payload: 4, noSNAP: unset},
	LinkMFR:                    {name: "MFR", family: familyNone, protocol: unset, network: 4},
	LinkJuniperVP:              {name: "JUNIPER_VP", family: familyJuniper, protocol: 18, payload: unset, network: unset, noSNAP: unset},
	LinkPPI:                    {name: "PPI", family: familyWLAN, headerVaries: true, protocol: 24, payloadVaries: true, network: 8, noSNAP: 3, mac48: true},
	LinkJuniperISM:             {name: "JUNIPER_ISM", family: familyJuniper, protocol: 8, payload: unset, network: unset, noSNAP: unset},
	LinkERF:                    {name: "ERF", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperST:              {name: "JUNIPER_ST", family: familyJuniper, protocol: 18, payload: unset, network: unset, noSNAP: unset},
	LinkAX25KISS:               {name: "AX25_KISS", family: familyNone, protocol: unset, payload: unset, network: unset, noSNAP: unset},
	LinkIPNET:                  {name: "IPNET", family: familyIPNET, protocol: 1, payload: 24, noSNAP: unset},
	LinkIPv4:                   {name: "IPV4", family: familyIPv4, protocol: unset},
	LinkIPv6:                   {name: "IPV6", family: familyIPv6, protocol: unset},
	LinkJuniperVS:              {name: "JUNIPER_VS", family: familyJuniper, protocol: 8, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperSRXE2E:          {name: "JUNIPER_SRX_E2E", family: familyJuniper, protocol: 8, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperFibreChannel:    {name: "JUNIPER_FIBRECHANNEL", family: familyJuniper, protocol: 8, payload: unset, network: unset, noSNAP: unset},
	LinkJuniperATMCEMIC:        {name: "JUNIPER_ATM_CEMIC", family: familyJuniper, protocol: 8, payload: unset, network: unset, noSNAP: unset},
	LinkNetAnalyzer:            {name: "NETANALYZER", family: familyEthernet, header: 4, protocol: 16, payload: 18, noSNAP: 3, mac48: true},
	LinkNetAnalyzerTransparent: {name: "NETANALYZER_TRANSPARENT", family: familyEthernet, header: 12, protocol: 24, payload: 26, noSNAP: 3, mac48: true},
	LinkPFSync:                 {name: "PFSYNC", family: familyNone, protocol: unset, payload: 4},
	LinkLinuxCooked2:           {name: "LINUX_SLL2", family: familyEthertype, payload: 20},
	LinkDSATagBroadcom:         {name: "DSA_TAG_BRCM", family: familyEthernet, protocol: 16, payload: 18, noSNAP: 3, mac48: true},
	LinkDSATagMarvell:          {name: "DSA_TAG_DSA", family: familyEthernet, protocol: 16, payload: 18, noSNAP: 3, mac48: true},
}
