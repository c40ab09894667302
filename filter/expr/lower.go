package expr

import "net/netip"

// offset is a place in the packet: k, and the content of a slot where that varies by packet.
type offset struct {
	k      uint32
	varies bool
	slot   int // noSlot until something needs it
}

const noSlot = -1

// slots is the number of values that a program can store: the scratch memory of classic BPF.
const slots = 16

// lowering builds the match tree of a parsed expression for one link type.
//
// Primitives such as vlan and mpls move the places of the headers for everything to their right in
// the text. So the tree is built in the order of the text, and lowering holds the state in between.
type lowering struct {
	opts *Options
	err  error // the first mistake; the tree is worthless then

	current, previous, outermost    LinkType // of the header that the next test looks at
	header, prevHeader, outerHeader offset   // where the link-layer headers begin
	payload, protocol               offset   // of the current one
	network, noSNAP                 uint32   // from payload

	labels, tags int  // primitives mpls and vlan so far
	tunnelled    bool // the current header is inside Geneve or VXLAN
	atm          bool

	used [slots]bool
	last int
	// Whether a slot has held an intermediate value, and whether one with a place has before: libpcap's
	// program then finds the one where the other should be, and tests do not compare with it.
	temporary [slots]bool
	mixed     bool
}

// lower returns the tree of n.
func lower(n node, t LinkType, opts *Options) (*cond, error) {
	c, _, err := lowerState(n, t, opts)
	return c, err
}

func lowerState(n node, t LinkType, opts *Options) (*cond, *lowering, error) {
	g := &lowering{opts: opts, current: t, previous: t, outermost: t}
	if err := g.start(t); err != nil {
		return nil, g, err
	}
	if n == nil {
		return constant(true), g, nil
	}
	c := g.node(n)
	if g.err == nil {
		c = g.finish(c)
	}
	return c, g, g.err
}

func (g *lowering) start(t LinkType) error {
	l, ok := links[t]
	if !ok {
		if t < firstMatching || t > lastMatching {
			return errorAt(0, 0, "unknown %v", t)
		}
		l = link{protocol: unset, payload: unset, network: unset, noSNAP: unset}
	}
	g.header = offset{l.header, l.headerVaries, noSlot}
	g.prevHeader, g.outerHeader = g.header, g.header
	g.payload = offset{l.payload, l.payloadVaries, noSlot}
	g.protocol = offset{l.protocol, false, noSlot}
	g.network, g.noSNAP = l.network, l.noSNAP
	g.atm = t == LinkSunATM
	return nil
}

// fail records a mistake at a token and returns a placeholder.
func (g *lowering) fail(at lexeme, format string, args ...any) *cond {
	if g.err == nil {
		g.err = errorAt(at.pos, max(len(at.text), 1), format, args...)
	}
	return constant(false)
}

// atMost reports a value that is too great.
func (g *lowering) atMost(at lexeme, what string, v, limit uint32) {
	if v > limit {
		g.fail(at, "%s %d is greater than %d", what, v, limit)
	}
}

// unsupported reports a word that has no meaning for the link type.
func (g *lowering) unsupported(at lexeme) *cond {
	return g.fail(at, "%q does not apply to %v", at.text, g.current)
}

func (g *lowering) family() family { return links[g.current].family }

// allocate returns a free slot. The order in which slots are taken decides which expressions need
// too many, so it follows libpcap's.
func (g *lowering) allocate(at lexeme) int {
	for range slots {
		if !g.used[g.last] {
			g.used[g.last] = true
			return g.last
		}
		g.last = (g.last + 1) % slots
	}
	g.fail(at, "the expression needs more than %d intermediate values", slots)
	return 0
}

func (g *lowering) release(slot int) { g.used[slot], g.temporary[slot] = false, true }

// allocatePlace returns a free slot that keeps the place of a header to the end.
func (g *lowering) allocatePlace() int {
	slot := g.allocate(lexeme{})
	g.mixed = g.mixed || g.temporary[slot]
	return slot
}

func (g *lowering) node(n node) *cond {
	switch n := n.(type) {
	case *junction:
		l := g.node(n.left)
		r := g.node(n.right)
		if n.or {
			return or(l, r)
		}
		return and(l, r)
	case *negation:
		return not(g.node(n.x))
	case *identified:
		return g.identified(n)
	case *abbreviation:
		return g.abbreviation(n.at, n.p)
	case *relation:
		return g.relation(n)
	case *keyword:
		return g.keyword(n)
	case *comparison:
		return g.comparison(n)
	}
	panic("expr: unknown node")
}

// finish puts in front what finds the headers whose place varies.
func (g *lowering) finish(c *cond) *cond {
	if first := g.findHeaders(); first != nil {
		c = before(first, c)
	}
	if g.current == LinkPPI {
		// The header after PPI has a type of its own, in little-endian order. Only 802.11 is known.
		c = and(eq(load(nil, 4, 4), swap32(uint32(Link80211))), c)
	}
	return c
}

// The place that a load is relative to.
type place uint8

const (
	inPacket        place = iota
	inHeader              // the link-layer header
	inPrevHeader          // the one around it
	inLLC                 // what follows the link-layer header
	inLastLabel           // the MPLS label before the network header
	inNetwork             // the network header
	inNetworkNoSNAP       // the network header after LLC without SNAP
	inProtocol            // the field with the payload's protocol
	inTransport4          // after the IPv4 header
	inTransport6          // after the fixed IPv6 header
)

// base returns the variable part of o, nil where there is none.
func (g *lowering) base(o *offset) *value {
	if !o.varies {
		return nil
	}
	if o.slot == noSlot {
		o.slot = g.allocatePlace()
	}
	return slotValue(o.slot)
}

// load returns size bytes at k from a place.
func (g *lowering) load(p place, k uint32, size uint8) *value {
	switch p {
	case inHeader:
		return load(g.base(&g.header), g.header.k+k, size)
	case inPrevHeader:
		return load(g.base(&g.prevHeader), g.prevHeader.k+k, size)
	case inLLC:
		return load(g.base(&g.payload), g.payload.k+k, size)
	case inLastLabel:
		return load(g.base(&g.payload), g.payload.k+g.network-mplsLabelLen+k, size)
	case inNetwork:
		return load(g.base(&g.payload), g.payload.k+g.network+k, size)
	case inNetworkNoSNAP:
		return load(g.base(&g.payload), g.payload.k+g.noSNAP+k, size)
	case inProtocol:
		return load(g.base(&g.protocol), g.protocol.k+k, size)
	case inTransport4:
		return load(g.ipv4HeaderLen(), g.payload.k+g.network+k, size)
	case inTransport6:
		return load(g.base(&g.payload), g.payload.k+g.network+ipv6HeaderLen+k, size)
	}
	return load(nil, k, size)
}

const (
	ipv6HeaderLen = 40 // RFC 8200 3
	mplsLabelLen  = 4  // RFC 3032 2.1
)

// ipv4HeaderLen returns the length of the IPv4 header in bytes (RFC 791 3.1), plus what varies before it.
func (g *lowering) ipv4HeaderLen() *value {
	x := g.base(&g.payload)
	words := compute(valueAnd, load(x, g.payload.k+g.network, 1), num(0xf))
	n := compute(valueShl, words, num(2))
	if x != nil {
		n = compute(valueAdd, n, x)
	}
	return n
}

func eq(v *value, k uint32) *cond { return test(v, cmpEQ, num(k)) }
func ne(v *value, k uint32) *cond { return not(eq(v, k)) }
func gt(v *value, k uint32) *cond { return test(v, cmpGT, num(k)) }
func ge(v *value, k uint32) *cond { return test(v, cmpGE, num(k)) }
func le(v *value, k uint32) *cond { return not(gt(v, k)) }
func lt(v *value, k uint32) *cond { return not(ge(v, k)) }

func bitsSet(v *value, k uint32) *cond { return test(v, cmpSet, num(k)) }

// masked compares the bits of mask. Nothing is loaded where mask is 0.
func masked(v *value, k, mask uint32) *cond {
	if mask == 0 {
		return constant(k == 0)
	}
	return eq(maskValue(v, mask), k)
}

func maskValue(v *value, mask uint32) *value {
	if mask == 0xffffffff {
		return v
	}
	return compute(valueAnd, v, num(mask))
}

// bytesAt compares bytes, the last four first.
func (g *lowering) bytesAt(p place, k uint32, b []byte) *cond {
	c := constant(true)
	for len(b) > 0 {
		n := 1
		if len(b) >= 4 {
			n = 4
		} else if len(b) >= 2 {
			n = 2
		}
		at := len(b) - n
		v := uint32(0)
		for _, x := range b[at:] {
			v = v<<8 | uint32(x)
		}
		c = and(c, eq(g.load(p, k+uint32(at), uint8(n)), v))
		b = b[:at]
	}
	return c
}

func swap32(v uint32) uint32 { return v<<24 | v>>8&0xff<<16 | v>>16&0xff<<8 | v>>24 }

func swap16(v uint32) uint32 { return v&0xff<<8 | v>>8&0xff }

// words returns the 32-bit words of an IPv6 address.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = uint32(b[4*i])<<24 | uint32(b[4*i+1])<<16 | uint32(b[4*i+2])<<8 | uint32(b[4*i+3])
	}
	return w
}
