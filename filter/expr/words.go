package expr

// token is a kind of lexical token.
type token uint8

const (
	tokEnd       token = iota
	tokInvalid         // a byte that starts no token
	tokNumber          // 80, 0x50, 0120 and the named constants
	tokIPv4            // 10.1, 10.1.2, 10.1.2.3
	tokIPv6            // 2001:db8::1
	tokMAC             // 02:00:00:00:00:01 and the other forms
	tokARCnet          // $7f
	tokName            // a word that is no keyword, or one after a backslash
	tokProto           // tcp, ether, ...: word.value is a proto
	tokDirection       // addr1, ra, ...: word.value is a direction
	tokSrc
	tokDst
	tokType // host, net, port, ...: word.value is an addrType
	tokMask
	tokAnd
	tokOr
	tokNot
	tokLen
	tokPrimitive // broadcast, vlan, ...: word.value is a primitive
	tokField     // vpi, opc, ...: word.value is a field
	tokGE
	tokLE
	tokNE
	tokShl
	tokShr
	// Single bytes: + - * / % : [ ] ! < > ( ) & | ^ = have the value of the byte.
)

// proto is a protocol qualifier.
type proto uint8

const (
	protoNone proto = iota
	protoLink
	protoIP
	protoARP
	protoRARP
	protoSCTP
	protoTCP
	protoUDP
	protoICMP
	protoIGMP
	protoIGRP
	protoPIM
	protoVRRP
	protoCARP
	protoAppleTalk
	protoAARP
	protoDECnet
	protoLAT
	protoSCA
	protoMOPRC
	protoMOPDL
	protoIPv6
	protoICMPv6
	protoAH
	protoESP
	protoISO
	protoESIS
	protoISIS
	protoISISL1
	protoISISL2
	protoISISIIH
	protoISISLSP
	protoISISSNP
	protoISISCSNP
	protoISISPSNP
	protoCLNP
	protoSTP
	protoIPX
	protoNetBEUI
	protoRadio
)

// direction is a direction qualifier.
type direction uint8

const (
	dirNone direction = iota
	dirSrc
	dirDst
	dirOr
	dirAnd
	dirAddr1
	dirAddr2
	dirAddr3
	dirAddr4
	dirRA
	dirTA
)

// addrType is a qualifier of the type of an identifier.
type addrType uint8

const (
	typeNone addrType = iota
	typeHost
	typeNet
	typePort
	typePortRange
	typeGateway
	typeProto
	typeProtoChain
	// typeUndefined marks that no qualifiers precede: "tcp and 80".
	typeUndefined
)

// primitive is a keyword that stands for a test of its own.
type primitive uint8

const (
	primBroadcast primitive = iota
	primMulticast
	primLess
	primGreater
	primByte
	primInbound
	primOutbound
	primIfindex
	primVLAN
	primMPLS
	primPPPoED
	primPPPoES
	primGeneve
	primVXLAN
	primLLC
	primIfname
	primRuleset
	primRuleNumber
	primSubruleNumber
	primReason
	primAction
	primType
	primSubtype
	primDir
	// ATM, by itself or by several virtual channels.
	primLane
	primMetac
	primBcc
	primOam
	primOamf4
	primOamf4ec
	primOamf4sc
	primSc
	primIlmic
	primConnectmsg
	primMetaconnect
	// SS7, MTP2 signal units.
	primFisu
	primLssu
	primMsu
	primHfisu
	primHlssu
	primHmsu
)

// field is a header field that is compared with numbers by name.
type field uint8

const (
	fieldVPI field = iota
	fieldVCI
	fieldSIO
	fieldOPC
	fieldDPC
	fieldSLS
	fieldHSIO
	fieldHOPC
	fieldHDPC
	fieldHSLS
)

// word describes a reserved word to the scanner.
type word struct {
	tok   token
	value uint32
}

// keywords are the reserved words; a backslash before one makes it a name.
var keywords = map[string]word{
	"dst": {tokDst, 0}, "src": {tokSrc, 0},
	"and": {tokAnd, 0}, "or": {tokOr, 0}, "not": {tokNot, 0},
	"len": {tokLen, 0}, "length": {tokLen, 0}, "mask": {tokMask, 0},

	"link": {tokProto, uint32(protoLink)}, "ether": {tokProto, uint32(protoLink)},
	"ppp": {tokProto, uint32(protoLink)}, "slip": {tokProto, uint32(protoLink)},
	"fddi": {tokProto, uint32(protoLink)}, "tr": {tokProto, uint32(protoLink)},
	"wlan": {tokProto, uint32(protoLink)},
	"arp":  {tokProto, uint32(protoARP)}, "rarp": {tokProto, uint32(protoRARP)},
	"ip": {tokProto, uint32(protoIP)}, "ip6": {tokProto, uint32(protoIPv6)},
	"sctp": {tokProto, uint32(protoSCTP)}, "tcp": {tokProto, uint32(protoTCP)},
	"udp": {tokProto, uint32(protoUDP)}, "icmp": {tokProto, uint32(protoICMP)},
	"icmp6": {tokProto, uint32(protoICMPv6)}, "igmp": {tokProto, uint32(protoIGMP)},
	"igrp": {tokProto, uint32(protoIGRP)}, "pim": {tokProto, uint32(protoPIM)},
	"vrrp": {tokProto, uint32(protoVRRP)}, "carp": {tokProto, uint32(protoCARP)},
	"ah": {tokProto, uint32(protoAH)}, "esp": {tokProto, uint32(protoESP)},
	"radio": {tokProto, uint32(protoRadio)},
	"atalk": {tokProto, uint32(protoAppleTalk)}, "aarp": {tokProto, uint32(protoAARP)},
	"decnet": {tokProto, uint32(protoDECnet)}, "lat": {tokProto, uint32(protoLAT)},
	"sca": {tokProto, uint32(protoSCA)}, "moprc": {tokProto, uint32(protoMOPRC)},
	"mopdl": {tokProto, uint32(protoMOPDL)},
	"iso":   {tokProto, uint32(protoISO)}, "clnp": {tokProto, uint32(protoCLNP)},
	"esis": {tokProto, uint32(protoESIS)}, "es-is": {tokProto, uint32(protoESIS)},
	"isis": {tokProto, uint32(protoISIS)}, "is-is": {tokProto, uint32(protoISIS)},
	"l1": {tokProto, uint32(protoISISL1)}, "l2": {tokProto, uint32(protoISISL2)},
	"iih": {tokProto, uint32(protoISISIIH)}, "lsp": {tokProto, uint32(protoISISLSP)},
	"snp": {tokProto, uint32(protoISISSNP)}, "csnp": {tokProto, uint32(protoISISCSNP)},
	"psnp": {tokProto, uint32(protoISISPSNP)},
	"stp":  {tokProto, uint32(protoSTP)}, "ipx": {tokProto, uint32(protoIPX)},
	"netbeui": {tokProto, uint32(protoNetBEUI)},

	"host": {tokType, uint32(typeHost)}, "net": {tokType, uint32(typeNet)},
	"port": {tokType, uint32(typePort)}, "portrange": {tokType, uint32(typePortRange)},
	"gateway": {tokType, uint32(typeGateway)}, "proto": {tokType, uint32(typeProto)},
	"protochain": {tokType, uint32(typeProtoChain)},

	"addr1": {tokDirection, uint32(dirAddr1)}, "address1": {tokDirection, uint32(dirAddr1)},
	"addr2": {tokDirection, uint32(dirAddr2)}, "address2": {tokDirection, uint32(dirAddr2)},
	"addr3": {tokDirection, uint32(dirAddr3)}, "address3": {tokDirection, uint32(dirAddr3)},
	"addr4": {tokDirection, uint32(dirAddr4)}, "address4": {tokDirection, uint32(dirAddr4)},
	"ra": {tokDirection, uint32(dirRA)}, "ta": {tokDirection, uint32(dirTA)},

	"broadcast": {tokPrimitive, uint32(primBroadcast)}, "multicast": {tokPrimitive, uint32(primMulticast)},
	"less": {tokPrimitive, uint32(primLess)}, "greater": {tokPrimitive, uint32(primGreater)},
	"byte": {tokPrimitive, uint32(primByte)}, "inbound": {tokPrimitive, uint32(primInbound)},
	"outbound": {tokPrimitive, uint32(primOutbound)}, "ifindex": {tokPrimitive, uint32(primIfindex)},
	"vlan": {tokPrimitive, uint32(primVLAN)}, "mpls": {tokPrimitive, uint32(primMPLS)},
	"pppoed": {tokPrimitive, uint32(primPPPoED)}, "pppoes": {tokPrimitive, uint32(primPPPoES)},
	"geneve": {tokPrimitive, uint32(primGeneve)}, "vxlan": {tokPrimitive, uint32(primVXLAN)},
	"llc": {tokPrimitive, uint32(primLLC)},
	"on":  {tokPrimitive, uint32(primIfname)}, "ifname": {tokPrimitive, uint32(primIfname)},
	"rset": {tokPrimitive, uint32(primRuleset)}, "ruleset": {tokPrimitive, uint32(primRuleset)},
	"rnr": {tokPrimitive, uint32(primRuleNumber)}, "rulenum": {tokPrimitive, uint32(primRuleNumber)},
	"srnr": {tokPrimitive, uint32(primSubruleNumber)}, "subrulenum": {tokPrimitive, uint32(primSubruleNumber)},
	"reason": {tokPrimitive, uint32(primReason)}, "action": {tokPrimitive, uint32(primAction)},
	"type": {tokPrimitive, uint32(primType)}, "subtype": {tokPrimitive, uint32(primSubtype)},
	"dir": {tokPrimitive, uint32(primDir)}, "direction": {tokPrimitive, uint32(primDir)},
	"lane": {tokPrimitive, uint32(primLane)}, "metac": {tokPrimitive, uint32(primMetac)},
	"bcc": {tokPrimitive, uint32(primBcc)}, "oam": {tokPrimitive, uint32(primOam)},
	"oamf4": {tokPrimitive, uint32(primOamf4)}, "oamf4ec": {tokPrimitive, uint32(primOamf4ec)},
	"oamf4sc": {tokPrimitive, uint32(primOamf4sc)}, "sc": {tokPrimitive, uint32(primSc)},
	"ilmic": {tokPrimitive, uint32(primIlmic)}, "connectmsg": {tokPrimitive, uint32(primConnectmsg)},
	"metaconnect": {tokPrimitive, uint32(primMetaconnect)},
	"fisu":        {tokPrimitive, uint32(primFisu)}, "lssu": {tokPrimitive, uint32(primLssu)},
	"lsu": {tokPrimitive, uint32(primLssu)}, "msu": {tokPrimitive, uint32(primMsu)},
	"hfisu": {tokPrimitive, uint32(primHfisu)}, "hlssu": {tokPrimitive, uint32(primHlssu)},
	"hmsu": {tokPrimitive, uint32(primHmsu)},

	"vpi": {tokField, uint32(fieldVPI)}, "vci": {tokField, uint32(fieldVCI)},
	"sio": {tokField, uint32(fieldSIO)}, "opc": {tokField, uint32(fieldOPC)},
	"dpc": {tokField, uint32(fieldDPC)}, "sls": {tokField, uint32(fieldSLS)},
	"hsio": {tokField, uint32(fieldHSIO)}, "hopc": {tokField, uint32(fieldHOPC)},
	"hdpc": {tokField, uint32(fieldHDPC)}, "hsls": {tokField, uint32(fieldHSLS)},

	// Offsets and values of ICMP (RFC 792), ICMPv6 (IANA's registry) and TCP (RFC 9293 3.1).
	"icmptype": {tokNumber, 0}, "icmpcode": {tokNumber, 1},
	"icmp-echoreply": {tokNumber, 0}, "icmp-unreach": {tokNumber, 3},
	"icmp-sourcequench": {tokNumber, 4}, "icmp-redirect": {tokNumber, 5},
	"icmp-echo": {tokNumber, 8}, "icmp-routeradvert": {tokNumber, 9},
	"icmp-routersolicit": {tokNumber, 10}, "icmp-timxceed": {tokNumber, 11},
	"icmp-paramprob": {tokNumber, 12}, "icmp-tstamp": {tokNumber, 13},
	"icmp-tstampreply": {tokNumber, 14}, "icmp-ireq": {tokNumber, 15},
	"icmp-ireqreply": {tokNumber, 16}, "icmp-maskreq": {tokNumber, 17},
	"icmp-maskreply": {tokNumber, 18},
	"icmp6type":      {tokNumber, 0}, "icmp6code": {tokNumber, 1},
	"icmp6-destinationunreach": {tokNumber, 1}, "icmp6-packettoobig": {tokNumber, 2},
	"icmp6-timeexceeded": {tokNumber, 3}, "icmp6-parameterproblem": {tokNumber, 4},
	"icmp6-echo": {tokNumber, 128}, "icmp6-echoreply": {tokNumber, 129},
	"icmp6-multicastlistenerquery":    {tokNumber, 130},
	"icmp6-multicastlistenerreportv1": {tokNumber, 131},
	"icmp6-multicastlistenerdone":     {tokNumber, 132},
	"icmp6-routersolicit":             {tokNumber, 133}, "icmp6-routeradvert": {tokNumber, 134},
	"icmp6-neighborsolicit": {tokNumber, 135}, "icmp6-neighboradvert": {tokNumber, 136},
	"icmp6-redirect": {tokNumber, 137}, "icmp6-routerrenum": {tokNumber, 138},
	"icmp6-nodeinformationquery":      {tokNumber, 139},
	"icmp6-nodeinformationresponse":   {tokNumber, 140},
	"icmp6-ineighbordiscoverysolicit": {tokNumber, 141},
	"icmp6-ineighbordiscoveryadvert":  {tokNumber, 142},
	"icmp6-multicastlistenerreportv2": {tokNumber, 143},
	"icmp6-homeagentdiscoveryrequest": {tokNumber, 144},
	"icmp6-homeagentdiscoveryreply":   {tokNumber, 145},
	"icmp6-mobileprefixsolicit":       {tokNumber, 146},
	"icmp6-mobileprefixadvert":        {tokNumber, 147},
	"icmp6-certpathsolicit":           {tokNumber, 148}, "icmp6-certpathadvert": {tokNumber, 149},
	"icmp6-multicastrouteradvert":  {tokNumber, 151},
	"icmp6-multicastroutersolicit": {tokNumber, 152},
	"icmp6-multicastrouterterm":    {tokNumber, 153},
	"tcpflags":                     {tokNumber, 13}, "tcp-fin": {tokNumber, 0x01}, "tcp-syn": {tokNumber, 0x02},
	"tcp-rst": {tokNumber, 0x04}, "tcp-push": {tokNumber, 0x08}, "tcp-ack": {tokNumber, 0x10},
	"tcp-urg": {tokNumber, 0x20}, "tcp-ece": {tokNumber, 0x40}, "tcp-cwr": {tokNumber, 0x80},
}

// spelling returns a word that the scanner reads as w: for error texts.
func spelling(tok token, value uint32) string {
	best := ""
	for s, w := range keywords {
		if w == (word{tok, value}) && (best == "" || len(s) < len(best) || len(s) == len(best) && s < best) {
			best = s
		}
	}
	return best
}

func (p proto) String() string {
	if p == protoLink {
		return "ether"
	}
	return spelling(tokProto, uint32(p))
}

func (t addrType) String() string { return spelling(tokType, uint32(t)) }

func (d direction) String() string {
	switch d {
	case dirSrc:
		return "src"
	case dirDst:
		return "dst"
	case dirOr:
		return "src or dst"
	case dirAnd:
		return "src and dst"
	}
	return spelling(tokDirection, uint32(d))
}

func (p primitive) String() string { return spelling(tokPrimitive, uint32(p)) }

func (f field) String() string { return spelling(tokField, uint32(f)) }
