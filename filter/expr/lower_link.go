package expr

// linkProto tests the protocol that the link-layer header names: an EtherType, or an LLC SAP up to
// 0xff.
func (g *lowering) linkProto(at lexeme, p uint32) *cond {
	if g.labels > 0 {
		return g.mplsPayload(at, p)
	}
	switch g.family() {
	case familyEthernet:
		c := g.etherProto(at, p)
		if !g.tunnelled {
			if check := g.enclosed(); check != nil {
				return and(check, c)
			}
		}
		return c
	case familyHDLC:
		g.atMost(at, "HDLC protocol", p, 0xffff)
		if p == sapISO {
			p = sapISO<<8 | sapISO
		}
		return eq(g.load(inProtocol, 0, 2), p)
	case familyWLAN:
		return and(g.wlanData(), g.llcProto(at, p))
	case familyLLC:
		return g.llcProto(at, p)
	case familySunATM:
		return and(g.atmTraffic(atmLLC), g.llcProto(at, p))
	case familyCooked:
		return g.cookedProto(at, p)
	case familyVersion:
		return g.onlyIP(p, func(version uint32) *cond { return g.ipVersion(inHeader, version) })
	case familyIPv4:
		return constant(p == typeIPv4)
	case familyIPv6:
		return constant(p == typeIPv6)
	case familyPPP:
		return g.pppProto(at, p)
	case familyPPPBSDOS:
		if p == typeIPv4 {
			// Also compressed and uncompressed TCP (RFC 1144).
			return ors(g.pppProto(at, p), eq(g.load(inProtocol, 0, 2), 0x2d), eq(g.load(inProtocol, 0, 2), 0x2f))
		}
		return g.pppProto(at, p)
	}
	return g.otherLinkProto(at, p)
}

// otherLinkProto is linkProto for the rarer families.
func (g *lowering) otherLinkProto(at lexeme, p uint32) *cond {
	switch g.family() {
	case familyLoopback, familyPFLog:
		return g.addressFamily(p)
	case familyArcnet:
		if code, ok := arcnetCodes[p]; ok {
			return eq(g.load(inProtocol, 0, 1), code)
		}
		return constant(false)
	case familyLocalTalk:
		return constant(p == typeAppleTalk)
	case familyFrameRelay:
		return g.frameRelayProto(p)
	case familyJuniper:
		return masked(g.load(inHeader, 0, 4), 0x4d474300, 0xffffff00) // "MGC"
	case familyIPNET:
		// The address families are Solaris's.
		return g.onlyIP(p, func(version uint32) *cond {
			return eq(g.load(inProtocol, 0, 1), map[uint32]uint32{4: 2, 6: 26}[version])
		})
	case familyEthertype:
		g.atMost(at, "EtherType", p, 0xffff)
		return eq(g.load(inProtocol, 0, 2), p)
	}
	return g.fail(at, "%v does not tell protocols apart", g.current)
}

// arcnetCodes are ARCnet's system codes (RFC 1201 and others) by EtherType.
var arcnetCodes = map[uint32]uint32{
	typeIPv6: 0xc4, typeIPv4: 212, typeARP: 213, typeRARP: 214, typeAppleTalk: 221,
}

// onlyIP calls f with the IP version for IPv4 and IPv6, and is false for other protocols.
func (g *lowering) onlyIP(p uint32, f func(version uint32) *cond) *cond {
	switch p {
	case typeIPv4:
		return f(4)
	case typeIPv6:
		return f(6)
	}
	return constant(false)
}

func (g *lowering) ipVersion(p place, version uint32) *cond {
	return masked(g.load(p, 0, 1), version<<4, 0xf0)
}

// etherMTU is the greatest value of the type field that is a length (IEEE 802.3 3.2.6).
const etherMTU = 1500

// isLength tests for an 802.3 frame, with LLC after the length.
func (g *lowering) isLength() *cond { return le(g.load(inProtocol, 0, 2), etherMTU) }

// etherProto tests EtherType, or the LLC header of an 802.3 frame.
func (g *lowering) etherProto(at lexeme, p uint32) *cond {
	switch p {
	case sapISO, sapIP, sapNetBEUI:
		return and(g.isLength(), eq(g.load(inLLC, 0, 2), p<<8|p))
	case sapIPX:
		// Four encapsulations: LLC, raw 802.3, SNAP and Ethernet II.
		llc := or(g.snap(0, typeIPX), or(eq(g.load(inLLC, 0, 1), sapIPX), eq(g.load(inLLC, 0, 2), 0xffff)))
		return or(eq(g.load(inProtocol, 0, 2), typeIPX), and(g.isLength(), llc))
	case typeAppleTalk:
		return or(eq(g.load(inProtocol, 0, 2), p), and(g.isLength(), g.snap(appleOUI, p)))
	case typeAARP:
		return or(eq(g.load(inProtocol, 0, 2), p), and(g.isLength(), g.snap(0, p)))
	}
	if p <= etherMTU {
		g.atMost(at, "LLC DSAP", p, 0xff)
		return and(g.isLength(), eq(g.load(inProtocol, 2, 1), p))
	}
	g.atMost(at, "EtherType", p, 0xffff)
	return eq(g.load(inProtocol, 0, 2), p)
}

const appleOUI = 0x080007

// snap tests for LLC with SNAP: organization and protocol (IEEE 802).
func (g *lowering) snap(oui, p uint32) *cond {
	return g.bytesAt(inLLC, 0, []byte{
		sapSNAP, sapSNAP, 3, byte(oui >> 16), byte(oui >> 8), byte(oui), byte(p >> 8), byte(p),
	})
}

// llcProto tests the LLC header of links that always have one.
func (g *lowering) llcProto(at lexeme, p uint32) *cond {
	switch p {
	case sapIP, sapISO, sapNetBEUI:
		return eq(g.load(inLLC, 0, 2), p<<8|p)
	case sapIPX:
		return eq(g.load(inLLC, 0, 1), p)
	case typeAppleTalk:
		return g.snap(appleOUI, p)
	}
	if p <= etherMTU {
		g.atMost(at, "LLC DSAP", p, 0xff)
		return eq(g.load(inLLC, 0, 1), p)
	}
	g.atMost(at, "EtherType", p, 0xffff)
	return eq(g.load(inLLC, 6, 2), p)
}

// Codes in the protocol field of Linux cooked captures that are no EtherTypes.
const (
	cooked8023 = 1 // raw 802.3 with IPX
	cooked8022 = 4 // LLC
)

func (g *lowering) cookedProto(at lexeme, p uint32) *cond {
	hasLLC := func() *cond { return eq(g.load(inProtocol, 0, 2), cooked8022) }
	switch p {
	case sapISO, sapIP, sapNetBEUI:
		return and(hasLLC(), eq(g.load(inLLC, 0, 2), p<<8|p))
	case sapIPX:
		llc := and(hasLLC(), or(eq(g.load(inLLC, 0, 1), sapIPX), g.snap(0, typeIPX)))
		return ors(eq(g.load(inProtocol, 0, 2), typeIPX), eq(g.load(inProtocol, 0, 2), cooked8023), llc)
	case typeAppleTalk:
		return or(eq(g.load(inProtocol, 0, 2), p), and(hasLLC(), g.snap(appleOUI, p)))
	case typeAARP:
		return or(eq(g.load(inProtocol, 0, 2), p), and(hasLLC(), g.snap(0, p)))
	}
	if p <= etherMTU {
		g.atMost(at, "LLC DSAP", p, 0xff)
		return and(hasLLC(), eq(g.load(inHeader, g.payload.k, 1), p))
	}
	g.atMost(at, "EtherType", p, 0xffff)
	return eq(g.load(inProtocol, 0, 2), p)
}

// pppProtocols are PPP's numbers (IANA) for EtherTypes and SAPs; others stand for themselves.
var pppProtocols = map[uint32]uint32{
	typeIPv4: 0x21, typeIPv6: 0x57, typeDECnet: 0x27, typeAppleTalk: 0x29, typeXNS: 0x25, sapISO: 0x23,
	sapSTP: 0x31, sapIPX: 0x2b,
}

func (g *lowering) pppProto(at lexeme, p uint32) *cond {
	if n, ok := pppProtocols[p]; ok {
		p = n
	}
	g.atMost(at, "PPP protocol", p, 0xffff)
	return eq(g.load(inProtocol, 0, 2), p)
}

func (g *lowering) frameRelayNLPID(n uint32) *cond { return eq(g.load(inHeader, 2, 2), 3<<8|n) }

func (g *lowering) frameRelayProto(p uint32) *cond {
	switch p {
	case typeIPv4:
		return g.frameRelayNLPID(nlpidIPv4)
	case typeIPv6:
		return g.frameRelayNLPID(nlpidIPv6)
	case sapISO:
		return ors(g.frameRelayNLPID(nlpidCLNP), g.frameRelayNLPID(nlpidESIS), g.frameRelayNLPID(nlpidISIS))
	}
	return constant(false)
}

// Address families: AF_INET is 2 everywhere, AF_INET6 is not.
const (
	afInet         = 2
	afInet6Linux   = 10
	afInet6BSD     = 24
	afInet6FreeBSD = 28
	afInet6Darwin  = 30
)

// addressFamily tests the address family of a loopback or pflog header.
func (g *lowering) addressFamily(p uint32) *cond {
	if p != typeIPv4 && p != typeIPv6 {
		return constant(false)
	}
	k, size := uint32(0), uint8(4)
	if g.current == LinkPFLog {
		k, size = 1, 1
	}
	is := func(af uint32, swapped bool) *cond {
		if swapped {
			af = swap32(af)
		}
		return eq(g.load(inHeader, k, size), af)
	}
	// The header is in the byte order of the host that wrote it; only these two have a fixed one.
	hostOrder := g.current != LinkLoop && g.current != LinkPFLog
	if g.opts.Source == FromHost {
		if p == typeIPv4 {
			return is(afInet, hostOrder)
		}
		return is(afInet6Linux, hostOrder)
	}
	file := func(swapped bool) *cond {
		if p == typeIPv4 {
			return is(afInet, swapped)
		}
		return ors(is(afInet6Darwin, swapped), is(afInet6BSD, swapped), is(afInet6FreeBSD, swapped))
	}
	if !hostOrder {
		return file(false)
	}
	swapped := g.opts.Source == FromSwappedFile
	return or(file(swapped), file(!swapped))
}

// enclosed returns what makes sure that the current Ethernet header is one, or nil: not every
// payload of Geneve is Ethernet, and not every one of LAN emulation is data.
func (g *lowering) enclosed() *cond {
	if g.tunnelled {
		return not(test(slotValue(g.header.slot), cmpEQ, slotValue(g.payload.slot)))
	}
	if g.previous == LinkSunATM {
		return ne(g.load(inPrevHeader, atmPayload, 2), 0xff00)
	}
	return nil
}

// llcPresent tests for an LLC header.
func (g *lowering) llcPresent(at lexeme) *cond {
	switch g.current {
	case LinkEthernet, LinkDSATagBroadcom, LinkDSATagMarvell:
		// 0xffff begins raw IPX.
		return and(g.isLength(), ne(g.load(inLLC, 0, 2), 0xffff))
	case LinkSunATM:
		return g.atmTraffic(atmLLC)
	case LinkTokenRing, LinkFDDI, LinkATMRFC1483:
		return constant(true)
	}
	if g.family() == familyWLAN {
		return g.wlanData()
	}
	return g.unsupported(at)
}
