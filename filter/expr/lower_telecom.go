package expr

// Offsets in the header of SunATM devices, and the kinds of traffic in its first byte.
const (
	atmVPI     = 1
	atmVCI     = 2
	atmPayload = 4
	atmLane    = 1
	atmLLC     = 2
)

// atmTraffic tests for a kind of traffic.
func (g *lowering) atmTraffic(kind uint32) *cond {
	return masked(g.load(inHeader, 0, 1), kind, 0x0f)
}

// isATM reports a primitive of ATM that is used elsewhere.
func (g *lowering) isATM(at lexeme) bool {
	if g.current == LinkSunATM && g.atm {
		return true
	}
	g.unsupported(at)
	return false
}

func (g *lowering) circuit(vci uint32) *cond {
	c := eq(g.load(inHeader, atmVPI, 1), 0)
	return and(c, eq(g.load(inHeader, atmVCI, 2), vci))
}

// atmPrimitive tests for well-known circuits and signalling messages.
func (g *lowering) atmPrimitive(k *keyword) *cond {
	if !g.isATM(k.at) {
		return constant(false)
	}
	circuits := map[primitive]uint32{primMetac: 1, primBcc: 2, primOamf4sc: 3, primOamf4ec: 4, primSc: 5, primIlmic: 16}
	if vci, ok := circuits[k.p]; ok {
		return g.circuit(vci)
	}
	switch k.p {
	case primLane:
		return g.lane()
	case primOam, primOamf4:
		vpi := eq(g.load(inHeader, atmVPI, 1), 0)
		sc := eq(g.load(inHeader, atmVCI, 2), 3)
		return and(vpi, or(sc, eq(g.load(inHeader, atmVCI, 2), 4)))
	}
	// Message types of Q.2931, in the order in which they are tested.
	vci, types := uint32(5), []uint32{0x5a, 0x4d, 0x0f, 0x07, 0x05, 0x02}
	if k.p == primMetaconnect {
		vci, types = 1, []uint32{0x5a, 0x4d, 0x07, 0x05, 0x02}
	}
	c := constant(false)
	for _, t := range types {
		c = or(c, eq(g.load(inHeader, atmPayload+5, 1), t))
	}
	return and(g.circuit(vci), c)
}

// lane tests for LAN emulation and moves to the Ethernet header inside.
func (g *lowering) lane() *cond {
	c := g.atmTraffic(atmLane)
	g.enter(LinkEthernet, offset{atmPayload + 2, false, noSlot})
	g.protocol.k = g.header.k + 12
	g.payload.k = g.header.k + 14
	g.network, g.noSNAP = 0, 3
	return c
}

// Offsets in SS7 frames (ITU-T Q.703, Q.704), from the start of MTP2.
const (
	mtpLength   = 2
	mtpLengthHi = 4 // in high-speed links
	mtpSIO      = 3
	mtpOPC      = 4
	mtpDPC      = 4
	mtpSLS      = 7
	mtpHiShift  = 3 // fields behind the length are that much further in high-speed links
)

// mtpStart returns where MTP2 begins, and reports primitives of SS7 that are used elsewhere.
func (g *lowering) mtpStart(at lexeme) (uint32, bool) {
	switch g.current {
	case LinkMTP2:
		return 0, true
	case LinkMTP2Phdr:
		return 4, true
	case LinkERF:
		return 20, true
	}
	g.unsupported(at)
	return 0, false
}

// signalUnit tests for fill-in, link status or message signal units, which differ in length.
func (g *lowering) signalUnit(k *keyword) *cond {
	start, ok := g.mtpStart(k.at)
	if !ok {
		return constant(false)
	}
	length, two := maskValue(load(nil, start+mtpLength, 1), 0x3f), uint32(2)
	if k.p >= primHfisu {
		length, two = maskValue(load(nil, start+mtpLengthHi, 2), 0xff80), 2<<7
	}
	switch k.p {
	case primFisu, primHfisu:
		return eq(length, 0)
	case primLssu, primHlssu:
		return and(gt(length, 0), le(length, two))
	}
	return gt(length, two)
}

// comparison tests a named field of ATM or SS7.
func (g *lowering) comparison(n *comparison) *cond {
	if n.f == fieldVPI || n.f == fieldVCI {
		if !g.isATM(n.at) {
			return constant(false)
		}
		if n.f == fieldVPI {
			g.atMost(n.at, "VPI", n.value, 0xff)
			return compareOp(n.op, g.load(inHeader, atmVPI, 1), num(n.value))
		}
		g.atMost(n.at, "VCI", n.value, 0xffff)
		return compareOp(n.op, g.load(inHeader, atmVCI, 2), num(n.value))
	}
	start, ok := g.mtpStart(n.at)
	if !ok {
		return constant(false)
	}
	f := n.f
	if f >= fieldHSIO {
		start, f = start+mtpHiShift, f-fieldHSIO+fieldSIO
	}
	v, k := g.mtpField(n, f, start)
	return compareOp(n.op, v, num(k))
}

// mtpField returns a field of MTP3 and the number to compare with it. Point codes are little-endian;
// the number is brought into the form in which they are loaded.
func (g *lowering) mtpField(n *comparison, f field, start uint32) (*value, uint32) {
	const pointCode, selection = 0x3fff, 0xf
	switch f {
	case fieldSIO:
		g.atMost(n.at, "SIO", n.value, 0xff)
		return load(nil, start+mtpSIO, 1), n.value
	case fieldOPC:
		g.atMost(n.at, "point code", n.value, pointCode)
		return maskValue(load(nil, start+mtpOPC, 4), swap32(pointCode<<14)), swap32(n.value << 14)
	case fieldDPC:
		g.atMost(n.at, "point code", n.value, pointCode)
		return maskValue(load(nil, start+mtpDPC, 2), swap16(pointCode)), swap16(n.value)
	}
	g.atMost(n.at, "SLS", n.value, selection)
	return maskValue(load(nil, start+mtpSLS, 1), selection<<4), n.value << 4
}
