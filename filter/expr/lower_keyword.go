package expr

import "strings"

// keyword builds the test of a primitive with its own syntax.
func (g *lowering) keyword(k *keyword) *cond {
	switch k.p {
	case primBroadcast:
		return g.broadcast(k)
	case primMulticast:
		return g.multicast(k)
	case primLess:
		return le(&value{op: valueLen}, k.args[0].value)
	case primGreater:
		return ge(&value{op: valueLen}, k.args[0].value)
	case primByte:
		return g.byteTest(k)
	case primInbound:
		return g.direction(k, false)
	case primOutbound:
		return g.direction(k, true)
	case primIfindex:
		return g.ifindex(k)
	case primVLAN:
		return g.vlan(k)
	case primMPLS:
		return g.mpls(k)
	case primPPPoED:
		return g.linkProto(k.at, typePPPoED)
	case primPPPoES:
		return g.pppoe(k)
	case primGeneve:
		return g.geneve(k)
	case primVXLAN:
		return g.vxlan(k)
	case primLLC:
		return g.llc(k)
	case primIfname, primRuleset, primRuleNumber, primSubruleNumber, primReason, primAction:
		return g.pflog(k)
	case primType, primSubtype, primDir:
		return g.wlanFrame(k)
	case primFisu, primLssu, primMsu, primHfisu, primHlssu, primHmsu:
		return g.signalUnit(k)
	}
	return g.atmPrimitive(k)
}

// broadcast tests for the broadcast address of the link or of the IPv4 network.
func (g *lowering) broadcast(k *keyword) *cond {
	switch k.of {
	case protoNone, protoLink:
		switch g.current {
		case LinkARCNET, LinkARCNETLinux:
			return g.shortHost(k.at, 0, dirDst)
		case LinkBACnetMSTP:
			return g.shortHost(k.at, 0xff, dirDst)
		}
		return g.macHost(k.at, [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, dirDst)
	case protoIP:
		if !g.opts.Netmask.Is4() || words(g.opts.Netmask)[3] == 0xffffffff {
			return g.fail(k.at, "\"ip broadcast\" needs the network mask, which is not known")
		}
		host := ^words(g.opts.Netmask)[3]
		c := g.linkProto(k.at, typeIPv4)
		all := masked(g.load(inNetwork, 16, 4), 0, host)
		return and(c, or(all, masked(g.load(inNetwork, 16, 4), host, host)))
	}
	return g.fail(k.at, "\"broadcast\" goes with \"ether\" and \"ip\" only")
}

// multicast tests for group addresses of the link, IPv4 (RFC 5771) or IPv6 (RFC 4291 2.7).
func (g *lowering) multicast(k *keyword) *cond {
	switch k.of {
	case protoNone, protoLink:
		return g.linkMulticast(k)
	case protoIP:
		c := g.linkProto(k.at, typeIPv4)
		return and(c, masked(g.load(inNetwork, 16, 1), 0xe0, 0xf0))
	case protoIPv6:
		c := g.linkProto(k.at, typeIPv6)
		return and(c, eq(g.load(inNetwork, 24, 1), 0xff))
	}
	return g.fail(k.at, "\"multicast\" goes with \"ether\", \"ip\" and \"ip6\" only")
}

func (g *lowering) linkMulticast(k *keyword) *cond {
	group := func(at uint32) *cond { return bitsSet(g.load(inHeader, at, 1), 1) }
	switch g.current {
	case LinkARCNET, LinkARCNETLinux:
		return g.shortHost(k.at, 0, dirDst)
	case LinkFDDI:
		return group(1)
	case LinkTokenRing, LinkIPOverFC:
		return group(2)
	}
	switch g.family() {
	case familyEthernet:
		if check := g.enclosed(); check != nil {
			return and(check, group(0))
		}
		return group(0)
	case familyWLAN:
		return g.wlanMulticast()
	}
	return g.unsupported(k.at)
}

// byteTest compares one byte with a number.
func (g *lowering) byteTest(k *keyword) *cond {
	v := g.load(inHeader, k.args[0].value, 1)
	n := k.args[2].value
	g.atMost(k.args[2], "byte", n, 0xff)
	switch k.args[1].tok {
	case '=':
		return eq(v, n)
	case '<':
		return lt(v, n)
	case '>':
		return gt(v, n)
	case '|':
		return ne(compute(valueOr, v, num(n)), 0)
	}
	return ne(compute(valueAnd, v, num(n)), 0)
}

// direction tests whether this host sent the packet.
func (g *lowering) direction(k *keyword, out bool) *cond {
	pick := func(yes, no uint32) uint32 {
		if out {
			return yes
		}
		return no
	}
	var sent *cond
	switch g.current {
	case LinkSLIP:
		return eq(g.load(inHeader, 0, 1), pick(1, 0))
	case LinkIPNET:
		return eq(g.load(inHeader, 2, 2), pick(1, 2))
	case LinkPFLog:
		return eq(g.load(inHeader, pflogDir, 1), pick(2, 1))
	case LinkPPPD:
		return eq(g.load(inHeader, 0, 1), pick(1, 0))
	case LinkDSATagBroadcom: // the operation code of the tag
		return masked(g.load(inHeader, 12, 1), pick(0x20, 0), 0xe0)
	case LinkDSATagMarvell: // the mode of the tag
		return masked(g.load(inHeader, 12, 1), pick(0x40, 0), pick(0xc0, 0x40))
	case LinkLinuxCooked:
		sent = eq(g.load(inHeader, 0, 2), packetOutgoing)
	case LinkLinuxCooked2:
		sent = eq(g.load(inHeader, 10, 1), packetOutgoing)
	default:
		if g.family() == familyJuniper {
			return masked(g.load(inHeader, 3, 1), pick(0, 1), 1)
		}
		if !g.opts.Kernel {
			return g.unsupported(k.at)
		}
		sent = eq(auxiliary(auxPacketType, 2), packetOutgoing)
	}
	if out {
		return sent
	}
	return not(sent)
}

// ifindex tests the number of the interface.
func (g *lowering) ifindex(k *keyword) *cond {
	if g.current == LinkLinuxCooked2 {
		return eq(g.load(inHeader, 4, 4), k.args[0].value)
	}
	if !g.opts.Kernel {
		return g.unsupported(k.at)
	}
	return eq(auxiliary(auxIfindex, 4), k.args[0].value)
}

// llcCommands are control fields of supervisory and unnumbered LLC frames (IEEE 802.2 5.4).
var (
	llcSupervisory = map[string]uint32{"rr": 0x01, "rnr": 0x05, "rej": 0x09}
	llcUnnumbered  = map[string]uint32{
		"ui": 0x03, "ua": 0x63, "disc": 0x43, "dm": 0x0f, "sabme": 0x6f, "test": 0xe3, "xid": 0xaf, "frmr": 0x87,
	}
)

// llc tests for an LLC header, and the format or command in its control field.
func (g *lowering) llc(k *keyword) *cond {
	if len(k.args) == 0 {
		return g.llcPresent(k.at)
	}
	name := strings.ToLower(k.args[0].text)
	if k.args[0].tok == tokPrimitive {
		name = "rnr"
	}
	c := g.llcPresent(k.at)
	control := func() *value { return g.load(inLLC, 2, 1) }
	switch name {
	case "i":
		return and(c, not(bitsSet(control(), 1)))
	case "s":
		return and(c, masked(control(), 1, 3))
	case "u":
		return and(c, masked(control(), 3, 3))
	}
	if code, ok := llcSupervisory[name]; ok {
		return and(c, masked(control(), code, 0x0f))
	}
	if code, ok := llcUnnumbered[name]; ok {
		return and(c, masked(control(), code, 0xef))
	}
	return g.fail(k.args[0], "unknown LLC frame %q", k.args[0].text)
}

// Offsets in the header of the BSD packet filter's log.
const (
	pflogAction    = 2
	pflogReason    = 3
	pflogIfname    = 4
	pflogRuleset   = 20
	pflogRule      = 36
	pflogSubrule   = 40
	pflogDir       = 60
	pflogNameBytes = 16
)

var (
	pflogReasons = map[string]uint32{
		"match": 0, "bad-offset": 1, "fragment": 2, "short": 3, "normalize": 4, "memory": 5, "bad-timestamp": 6,
		"congestion": 7, "ip-option": 8, "proto-cksum": 9, "state-mismatch": 10, "state-insert": 11, "state-limit": 12,
		"src-limit": 13, "synproxy": 14,
	}
	pflogActions = map[string]uint32{
		"pass": 0, "accept": 0, "drop": 1, "block": 1, "scrub": 2, "noscrub": 3, "nat": 4, "nonat": 5, "binat": 6,
		"nobinat": 7, "rdr": 8, "nordr": 9, "synproxy-drop": 10,
	}
)

// pflog tests fields of the BSD packet filter's log.
func (g *lowering) pflog(k *keyword) *cond {
	if g.current != LinkPFLog {
		return g.unsupported(k.at)
	}
	arg := k.args[0]
	switch k.p {
	case primIfname, primRuleset:
		at := uint32(pflogIfname)
		if k.p == primRuleset {
			at = pflogRuleset
		}
		if len(arg.text) >= pflogNameBytes {
			return g.fail(arg, "the name is longer than %d bytes", pflogNameBytes-1)
		}
		return g.bytesAt(inHeader, at, []byte(arg.text))
	case primRuleNumber:
		return eq(g.load(inHeader, pflogRule, 4), arg.value)
	case primSubruleNumber:
		return eq(g.load(inHeader, pflogSubrule, 4), arg.value)
	case primReason:
		return g.pflogCode(arg, pflogReason, pflogReasons)
	}
	return g.pflogCode(arg, pflogAction, pflogActions)
}

func (g *lowering) pflogCode(arg lexeme, at uint32, codes map[string]uint32) *cond {
	v, ok := arg.value, arg.tok == tokNumber
	if !ok {
		if v, ok = codes[strings.ToLower(arg.text)]; !ok {
			return g.fail(arg, "unknown %q", arg.text)
		}
	}
	return eq(g.load(inHeader, at, 1), v)
}

// Types and subtypes of 802.11 frames (IEEE 802.11 table 9-1).
var (
	wlanTypes    = map[string]uint32{"mgt": 0, "management": 0, "ctl": 4, "control": 4, "data": 8}
	wlanSubtypes = map[uint32]map[string]uint32{
		0: {
			"assocreq": 0x00, "assoc-req": 0x00, "assocresp": 0x10, "assoc-resp": 0x10, "reassocreq": 0x20,
			"reassoc-req": 0x20, "reassocresp": 0x30, "reassoc-resp": 0x30, "probereq": 0x40, "probe-req": 0x40,
			"proberesp": 0x50, "probe-resp": 0x50, "beacon": 0x80, "atim": 0x90, "disassoc": 0xa0,
			"disassociation": 0xa0, "auth": 0xb0, "authentication": 0xb0, "deauth": 0xc0, "deauthentication": 0xc0,
		},
		4: {
			"bar": 0x80, "ba": 0x90, "ps-poll": 0xa0, "rts": 0xb0, "cts": 0xc0, "ack": 0xd0, "cf-end": 0xe0,
			"cf-end-ack": 0xf0,
		},
		8: {
			"data": 0x00, "data-cf-ack": 0x10, "data-cf-poll": 0x20, "data-cf-ack-poll": 0x30, "null": 0x40,
			"cf-ack": 0x50, "cf-poll": 0x60, "cf-ack-poll": 0x70, "qos-data": 0x80, "qos-data-cf-ack": 0x90,
			"qos-data-cf-poll": 0xa0, "qos-data-cf-ack-poll": 0xb0, "qos": 0xc0, "qos-cf-poll": 0xe0,
			"qos-cf-ack-poll": 0xf0,
		},
	}
	wlanDirs = map[string]uint32{"nods": 0, "tods": 1, "fromds": 2, "dstods": 3}
)

// wlanFrame tests type, subtype and direction of 802.11 frames.
func (g *lowering) wlanFrame(k *keyword) *cond {
	if g.family() != familyWLAN {
		return g.unsupported(k.at)
	}
	if k.p == primDir {
		v := g.code(k.args[0], wlanDirs, wlanDirMask, "direction")
		return masked(g.load(inHeader, 1, 1), v, wlanDirMask)
	}
	mask := uint32(wlanTypeMask | wlanSubtypeMask)
	var v uint32
	switch {
	case k.p == primSubtype:
		name, found := strings.ToLower(k.args[0].text), false
		for _, t := range []uint32{0, 4, 8} {
			if s, ok := wlanSubtypes[t][name]; ok && !found {
				v, found = s|t, true
			}
		}
		if !found {
			return g.fail(k.args[0], "unknown 802.11 subtype %q", k.args[0].text)
		}
	case len(k.args) == 1:
		mask = wlanTypeMask
		v = g.code(k.args[0], wlanTypes, wlanTypeMask, "type")
	default:
		t := g.code(k.args[0], wlanTypes, wlanTypeMask, "type")
		v = t | g.code(k.args[1], wlanSubtypes[t], wlanSubtypeMask, "subtype")
	}
	return masked(g.load(inHeader, 0, 1), v, mask)
}

// code returns the number for a name, or a number that has no bits outside mask.
func (g *lowering) code(arg lexeme, names map[string]uint32, mask uint32, what string) uint32 {
	v, ok := names[strings.ToLower(arg.text)]
	if arg.tok == tokNumber {
		v, ok = arg.value, arg.value&^mask == 0
	}
	if !ok {
		g.fail(arg, "unknown 802.11 %s %q", what, arg.text)
	}
	return v
}
