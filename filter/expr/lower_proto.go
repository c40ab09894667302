package expr

// abbreviation tests for a protocol that stands alone.
func (g *lowering) abbreviation(at lexeme, p proto) *cond {
	switch p {
	case protoSCTP, protoTCP, protoUDP, protoAH, protoESP, protoPIM:
		return g.protoNumber(at, protoNumbers[p], protoNone)
	case protoICMP, protoIGMP, protoIGRP, protoVRRP, protoCARP:
		return g.protoNumber(at, protoNumbers[p], protoIP)
	case protoICMPv6:
		return g.protoNumber(at, ipICMPv6, protoIPv6)
	case protoIP, protoARP, protoRARP, protoAppleTalk, protoAARP, protoDECnet, protoSCA, protoLAT, protoMOPDL,
		protoMOPRC, protoIPv6, protoISO, protoSTP, protoIPX, protoNetBEUI:
		return g.linkProto(at, protoNumbers[p])
	case protoESIS, protoISIS, protoCLNP:
		return g.protoNumber(at, protoNumbers[p], protoISO)
	}
	if types, ok := isisTypes[p]; ok {
		c := constant(false)
		for _, t := range types {
			c = or(c, g.protoNumber(at, t, protoISIS))
		}
		return c
	}
	return g.fail(at, "%q needs an index or a type after it", at.text)
}

// isisTypes are PDU types of IS-IS (ISO/IEC 10589 9).
var isisTypes = map[proto][]uint32{
	protoISISL1:   {26, 24, 18, 15, 17},
	protoISISL2:   {27, 25, 20, 16, 17},
	protoISISIIH:  {17, 15, 16},
	protoISISLSP:  {18, 20},
	protoISISSNP:  {27, 26, 24, 25},
	protoISISCSNP: {24, 25},
	protoISISPSNP: {26, 27},
}

// protoNumber tests for a protocol by number, in the layer that the qualifier names.
func (g *lowering) protoNumber(at lexeme, v uint32, of proto) *cond {
	switch of {
	case protoNone:
		c := g.protoNumber(at, v, protoIP)
		return or(c, g.protoNumber(at, v, protoIPv6))
	case protoLink:
		return g.linkProto(at, v)
	case protoIP:
		g.atMost(at, "protocol number", v, 0xff)
		c := g.linkProto(at, typeIPv4)
		return and(c, eq(g.load(inNetwork, ipv4Proto, 1), v))
	case protoIPv6:
		g.atMost(at, "protocol number", v, 0xff)
		c := g.linkProto(at, typeIPv6)
		// Behind the fixed header, or behind a fragment header that follows it.
		next := func(n uint32) *cond { return eq(g.load(inNetwork, ipv6Next, 1), n) }
		fragment := and(next(ipFragment), eq(g.load(inNetwork, ipv6HeaderLen, 1), v))
		return and(c, or(next(v), fragment))
	case protoISO:
		g.atMost(at, "ISO protocol", v, 0xff)
		switch g.family() {
		case familyFrameRelay:
			return g.frameRelayNLPID(v)
		case familyHDLC:
			c := g.linkProto(at, sapISO<<8|sapISO)
			return and(c, eq(g.load(inNetworkNoSNAP, 1, 1), v))
		}
		c := g.linkProto(at, sapISO)
		return and(c, eq(g.load(inNetworkNoSNAP, 0, 1), v))
	case protoISIS:
		g.atMost(at, "IS-IS PDU type", v, 0x1f)
		c := g.protoNumber(at, nlpidISIS, protoISO)
		k := uint32(4)
		if g.family() == familyHDLC {
			k = 5 // a byte of padding precedes
		}
		return and(c, masked(g.load(inNetworkNoSNAP, k, 1), v, 0x1f))
	}
	return g.fail(at, "%q has no protocols in it", of)
}

// protoChain follows extension headers to a protocol.
func (g *lowering) protoChain(at lexeme, v uint32, of proto) *cond {
	if of == protoNone {
		c := g.protoChain(at, v, protoIP)
		return or(c, g.protoChain(at, v, protoIPv6))
	}
	if of != protoIP && of != protoIPv6 {
		return g.fail(at, "\"%v protochain\" is not possible, only \"ip\" or \"ip6\"", of)
	}
	g.atMost(at, "protocol number", v, 0xff)
	if g.payload.varies {
		return g.fail(at, "\"protochain\" does not work behind headers of variable length")
	}
	// One slot is in use while the headers are walked.
	g.release(g.allocate(at))
	link := g.linkProto(at, protoNumbers[of])
	walk := &cond{op: condChain, walk: &chain{v6: of == protoIPv6, proto: v, base: g.payload.k + g.network}}
	return and(link, walk)
}
