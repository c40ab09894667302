package expr

// enter makes a header inside the payload the current one.
func (g *lowering) enter(t LinkType, o offset) {
	g.previous, g.prevHeader = g.current, g.header
	g.current, g.header = t, o
	g.tunnelled = false
}

// vlan tests for a VLAN tag (IEEE 802.1Q 9.6) and moves behind it.
func (g *lowering) vlan(k *keyword) *cond {
	if g.labels > 0 {
		return g.fail(k.at, "no VLAN tag can follow MPLS labels")
	}
	if g.family() != familyEthernet && g.family() != familyWLAN || g.current == LinkPPI {
		return g.unsupported(k.at)
	}
	tag := ors(g.linkProto(k.at, typeVLAN), g.linkProto(k.at, typeQinQ), g.linkProto(k.at, typeQinQOld))
	first := g.current == LinkEthernet && g.tags == 0 && !g.header.varies && g.header.k == g.outerHeader.k
	g.tags++
	if g.opts.Kernel && first {
		return g.vlanInKernel(k, tag)
	}
	if len(k.args) > 0 {
		tag = and(tag, g.vlanID(k, g.load(inNetwork, 0, 2)))
	}
	g.payload.k += 4
	g.protocol.k += 4
	return tag
}

func (g *lowering) vlanID(k *keyword, field *value) *cond {
	g.atMost(k.args[0], "VLAN tag", k.args[0].value, 0xfff)
	return masked(field, k.args[0].value, 0xfff)
}

// vlanInKernel tests for a tag that the kernel has taken out of the packet, or else for one in it.
// What follows is 4 bytes further only in the second case, so its place varies from here on.
func (g *lowering) vlanInKernel(k *keyword, tag *cond) *cond {
	present := eq(auxiliary(auxVLANPresent, 1), 1)
	var id *cond
	if len(k.args) > 0 {
		field := &value{op: valueIf, c: present, x: auxiliary(auxVLANTag, 2), y: g.load(inNetwork, 0, 2)}
		id = g.vlanID(k, field)
	}
	tag = before(before(g.moveBy(&g.payload, 4), g.moveBy(&g.protocol, 4)), tag)
	c := or(present, tag)
	if id != nil {
		c = and(c, id)
	}
	return c
}

// moveBy makes a place vary and adds n to it when evaluated.
func (g *lowering) moveBy(o *offset, n uint32) *cond {
	o.varies = true
	at := g.base(o)
	return set(o.slot, compute(valueAdd, at, num(n)))
}

// Offsets by which classic BPF programs in Linux read metadata (SKF_AD_OFF and SKF_AD_ constants).
const (
	auxBase        = 0xfffff000
	auxPacketType  = auxBase + 4
	auxIfindex     = auxBase + 8
	auxVLANTag     = auxBase + 44
	auxVLANPresent = auxBase + 48
	packetOutgoing = 4 // PACKET_OUTGOING
)

func auxiliary(k uint32, size uint8) *value { return &value{op: valueAux, k: k, size: size} }

// mpls tests for an MPLS label (RFC 3032) and moves behind it.
func (g *lowering) mpls(k *keyword) *cond {
	var c *cond
	switch {
	case g.labels > 0:
		c = not(g.bottomOfStack())
	case g.current == LinkPPP:
		c = g.linkProto(k.at, 0x0281) // RFC 3032 4.3
	case g.family() == familyEthernet, g.family() == familyHDLC:
		c = g.linkProto(k.at, typeMPLS)
	default:
		return g.unsupported(k.at)
	}
	if len(k.args) > 0 {
		label := k.args[0]
		g.atMost(label, "MPLS label", label.value, 0xfffff)
		c = and(c, masked(g.load(inNetwork, 0, 4), label.value<<12, 0xfffff000))
	}
	g.network += mplsLabelLen
	g.noSNAP += mplsLabelLen
	g.labels++
	return c
}

// bottomOfStack tests the S bit of the last label.
func (g *lowering) bottomOfStack() *cond { return bitsSet(g.load(inLastLabel, 2, 1), 1) }

// mplsPayload tests what follows the last label. Nothing names it: the IP version decides.
func (g *lowering) mplsPayload(at lexeme, p uint32) *cond {
	if p != typeIPv4 && p != typeIPv6 {
		return g.fail(at, "only IPv4 and IPv6 can be told apart behind MPLS labels")
	}
	c := g.bottomOfStack()
	return and(c, g.onlyIP(p, func(version uint32) *cond { return g.ipVersion(inNetwork, version) }))
}

// pppoe tests for a PPPoE session (RFC 2516 4) and moves to the PPP protocol field.
func (g *lowering) pppoe(k *keyword) *cond {
	c := g.linkProto(k.at, typePPPoES)
	if len(k.args) > 0 {
		session := k.args[0]
		g.atMost(session, "PPPoE session", session.value, 0xffff)
		c = and(c, eq(g.load(inNetwork, 2, 2), session.value))
	}
	g.enter(LinkPPP, offset{g.payload.k + g.network + 6, g.payload.varies, g.payload.slot})
	g.protocol = g.header
	g.payload.k = g.header.k + 2
	g.network, g.noSNAP = 0, 0
	return c
}

// tunnel tests for a tunnel over UDP and moves to the Ethernet header inside.
type tunnel struct {
	port    uint32
	name    string
	flags   func(first *value) *cond // of the first byte of the tunnel header
	offsets func(start int) *cond    // sets the slots, from the offset of the UDP header
}

func (g *lowering) tunnel(k *keyword, t tunnel) *cond {
	inside := func(header place, ports func(lexeme, uint32, uint32, int, direction) *cond, start *value) *cond {
		c := ports(k.at, t.port, t.port, ipUDP, dirDst)
		c = and(c, t.flags(g.load(header, 8, 1)))
		if len(k.args) > 0 {
			g.atMost(k.args[0], t.name, k.args[0].value, 0xffffff)
			c = and(c, masked(g.load(header, 12, 4), k.args[0].value<<8, 0xffffff00))
		}
		return and(c, set(tunnelSlot, start))
	}
	v4 := inside(inTransport4, g.ports4, g.ipv4HeaderLen())
	var after6 *value = num(ipv6HeaderLen)
	if x := g.base(&g.payload); x != nil {
		after6 = compute(valueAdd, x, after6)
	}
	v6 := inside(inTransport6, g.ports6, after6)
	steps := t.offsets(tunnelSlot)
	g.tunnelled = true
	return and(or(v4, v6), steps)
}

// tunnelSlot holds the offset of the UDP header while a tunnel is tested: the accumulator, in
// libpcap's code. Programs do not use it elsewhere.
const tunnelSlot = slots

func (g *lowering) geneve(k *keyword) *cond {
	return g.tunnel(k, tunnel{
		port: 6081, name: "Geneve VNI",
		flags:   func(first *value) *cond { return masked(first, 0, 0xc0) }, // version 0 (RFC 8926 3.4)
		offsets: g.geneveOffsets,
	})
}

func (g *lowering) vxlan(k *keyword) *cond {
	return g.tunnel(k, tunnel{
		port: 4789, name: "VXLAN VNI",
		flags:   func(first *value) *cond { return eq(first, 0x08) }, // RFC 7348 5
		offsets: g.vxlanOffsets,
	})
}

const udpHeaderLen = 8

// vxlanOffsets moves behind the VXLAN header, which always has 8 bytes.
func (g *lowering) vxlanOffsets(start int) *cond {
	inner := compute(valueAdd, slotValue(start), num(g.payload.k+g.network+udpHeaderLen+8))
	header, protocol, payload := g.innerSlots()
	return before(before(
		set(header, inner),
		set(protocol, compute(valueAdd, slotValue(header), num(12)))),
		set(payload, compute(valueAdd, slotValue(header), num(14))))
}

// innerSlots makes an Ethernet header at a place that varies the current one.
func (g *lowering) innerSlots() (header, protocol, payload int) {
	header = g.allocatePlace()
	g.enter(LinkEthernet, offset{0, true, header})
	g.protocol = offset{0, true, g.allocatePlace()}
	g.payload = offset{0, true, g.allocatePlace()}
	g.network = 0
	return header, g.protocol.slot, g.payload.slot
}

// geneveOffsets moves behind the Geneve header and its options. A payload that is not Ethernet has its
// protocol in the Geneve header, and no link-layer header: header and payload are the same place then.
func (g *lowering) geneveOffsets(start int) *cond {
	geneve := compute(valueAdd, slotValue(start), num(g.payload.k+g.network+udpHeaderLen))
	header, protocol, payload := g.innerSlots()
	words := compute(valueAnd, load(slotValue(start), 0, 1), num(0x3f))
	length := compute(valueAdd, compute(valueMul, words, num(4)), num(8))
	ethernet := func() *cond { return eq(load(slotValue(start), 2, 2), typeTEB) }
	either := func(x, y *value) *value { return &value{op: valueIf, c: ethernet(), x: x, y: y} }
	return before(before(before(
		set(start, geneve),
		set(header, compute(valueAdd, length, slotValue(start)))),
		set(protocol, either(compute(valueAdd, slotValue(header), num(12)), compute(valueAdd, slotValue(start), num(2))))),
		set(payload, either(compute(valueAdd, slotValue(header), num(14)), slotValue(header))))
}
