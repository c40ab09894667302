package expr

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// identified builds the test of an identifier with its qualifiers.
func (g *lowering) identified(n *identified) *cond {
	if n.q.t == typeUndefined {
		return g.fail(n.id, "%s has no qualifier: write one such as \"host\" or \"port\" before it", n.id.describe())
	}
	if n.id.tok != tokMAC && n.q.dir >= dirAddr1 && (n.q.p != protoLink || n.id.tok != tokName) {
		return g.fail(n.id, "%q applies to 802.11 addresses only", n.q.dir)
	}
	switch n.id.tok {
	case tokMAC:
		if n.q.p != protoLink || n.q.t != typeHost && n.q.t != typeNone {
			return g.fail(n.id, "an Ethernet address needs \"ether host\" before it")
		}
		return g.macHost(n.id, n.id.mac, n.q.dir)
	case tokARCnet:
		if n.q.p != protoLink || n.q.t != typeHost && n.q.t != typeNone {
			return g.fail(n.id, "an ARCnet address needs \"link host\" before it")
		}
		return g.shortHost(n.id, n.id.value, n.q.dir)
	case tokIPv6:
		return g.ipv6ID(n)
	case tokIPv4:
		return g.ipv4ID(n)
	case tokNumber:
		return g.numberID(n)
	}
	return g.nameID(n)
}

// misapplied reports qualifiers that do not go with the identifier.
func (g *lowering) misapplied(n *identified) *cond {
	words := []string{}
	if n.q.p != protoNone {
		words = append(words, n.q.p.String())
	}
	if n.q.t != typeNone {
		words = append(words, n.q.t.String())
	}
	return g.fail(n.id, "%q does not take %s", strings.Join(words, " "), n.id.describe())
}

// hostOrNet reports whether the qualifiers ask for the address of a host or of a network.
func hostOrNet(t addrType) bool { return t == typeNone || t == typeHost || t == typeNet }

func (g *lowering) ipv4ID(n *identified) *cond {
	single := n.bits < 0 && n.mask.tok == tokEnd
	if n.q.p == protoDECnet {
		if !single {
			return g.misapplied(n)
		}
		return g.decnetHost(n)
	}
	addr, bits, ok := parseIPv4(n.id.text)
	if !ok {
		return g.fail(n.id, "%q is not an IPv4 address", n.id.text)
	}
	mask := prefixMask(bits)
	switch {
	case n.mask.tok == tokIPv4:
		m, b, ok := parseIPv4(n.mask.text)
		if !ok {
			return g.fail(n.mask, "%q is not an IPv4 mask", n.mask.text)
		}
		mask = m << (32 - b)
	case n.bits >= 0:
		if n.bits > 32 {
			return g.fail(n.id, "a prefix of %d bits is longer than 32", n.bits)
		}
		mask = prefixMask(int(n.bits))
	}
	addr <<= 32 - bits
	if addr&^mask != 0 {
		return g.fail(n.id, "%q has bits set outside its mask", n.id.text)
	}
	if !hostOrNet(n.q.t) || !single && n.q.t != typeNet || n.q.p == protoLink {
		return g.misapplied(n)
	}
	return g.ipv4Host(n, []uint32{addr}, mask, false)
}

// prefixMask returns a mask of the first n bits, 0 to 32.
func prefixMask(n int) uint32 { return uint32(0xffffffff << (32 - n)) }

// parseIPv4 reads one to four decimal bytes with dots between them, and returns how many bits they are.
func parseIPv4(s string) (addr uint32, bits int, ok bool) {
	for _, part := range strings.Split(s, ".") {
		b := 0
		for i := range len(part) {
			if b = b*10 + int(part[i]-'0'); !isDigit(part[i]) || b > 255 {
				return 0, 0, false
			}
		}
		addr, bits = addr<<8|uint32(b), bits+8
	}
	return addr, bits, true
}

func (g *lowering) ipv6ID(n *identified) *cond {
	bits := 128
	if n.bits >= 0 {
		if n.bits > 128 {
			return g.fail(n.id, "a prefix of %d bits is longer than 128", n.bits)
		}
		bits = int(n.bits)
	}
	p := netip.PrefixFrom(n.id.addr, bits)
	if p.Masked().Addr() != n.id.addr {
		return g.fail(n.id, "%q has bits set outside its prefix of %d bits", n.id.text, bits)
	}
	if !hostOrNet(n.q.t) || n.q.t != typeNet && bits != 128 || n.q.p != protoNone && n.q.p != protoIPv6 {
		return g.misapplied(n)
	}
	return g.ipv6Host(n.id, []netip.Addr{n.id.addr}, bits, n.q.dir)
}

func (g *lowering) numberID(n *identified) *cond {
	v := n.id.value
	if n.q.p == protoDECnet {
		return g.misapplied(n)
	}
	switch n.q.t {
	case typeNone, typeHost, typeNet:
		if n.q.p == protoLink {
			return g.misapplied(n)
		}
		mask := uint32(0xffffffff)
		if n.q.t == typeNet {
			v, mask = leftAlign(v)
		}
		return g.ipv4Host(n, []uint32{v}, mask, false)
	case typePort, typePortRange:
		p, ok := transport(n.q.p)
		if !ok {
			return g.misapplied(n)
		}
		g.atMost(n.id, "port number", v, 0xffff)
		return g.ports(n.id, v, v, p, n.q.dir)
	case typeProto:
		return g.protoNumber(n.id, v, n.q.p)
	case typeProtoChain:
		return g.protoChain(n.id, v, n.q.p)
	}
	return g.misapplied(n)
}

// leftAlign moves the number of a network to the left end, by bytes: 10 is 10.0.0.0/8.
func leftAlign(v uint32) (addr, mask uint32) {
	mask = 0xffffffff
	for v != 0 && v&0xff000000 == 0 {
		v, mask = v<<8, mask<<8
	}
	return v, mask
}

func (g *lowering) nameID(n *identified) *cond {
	name := n.id.text
	if n.q.p == protoDECnet {
		return g.misapplied(n)
	}
	switch n.q.t {
	case typeNone, typeHost:
		if n.q.p == protoLink {
			return g.macName(n.id, n.q.dir)
		}
		return g.hostName(n, n.q.p, n.q.p, n.q.dir, false)
	case typeNet:
		return g.netName(n)
	case typePort:
		return g.portName(n)
	case typePortRange:
		return g.portRange(n)
	case typeGateway:
		return g.gateway(n)
	case typeProto, typeProtoChain:
		v, ok := g.protoName(name, n.q.p)
		if !ok {
			return g.fail(n.id, "unknown protocol %q%s", name, didYouMean(name))
		}
		if n.q.t == typeProto {
			return g.protoNumber(n.id, v, n.q.p)
		}
		return g.protoChain(n.id, v, n.q.p)
	}
	return g.misapplied(n)
}

func didYouMean(name string) string {
	if s := nearestKeyword(name); s != "" {
		return "; did you mean " + strconv.Quote(s) + "?"
	}
	return ""
}

func (g *lowering) protoName(name string, of proto) (uint32, bool) {
	switch of {
	case protoNone, protoIP, protoIPv6:
		v, ok := g.opts.Names.ProtocolNumber(name)
		return uint32(v), ok
	case protoLink:
		v, ok := linkProtocols[name]
		return v, ok
	case protoISO:
		v, ok := map[string]uint32{"esis": nlpidESIS, "isis": nlpidISIS, "clnp": nlpidCLNP}[name]
		return v, ok
	}
	return 0, false
}

// maxAddresses is the number of addresses of one family that a name may have.
const maxAddresses = 100

// hostName tests the addresses that a name has, of the families that the qualifiers allow.
func (g *lowering) hostName(n *identified, p4, p6 proto, dir direction, none bool) *cond {
	var all []netip.Addr
	if g.opts.Names.Host != nil {
		all = g.opts.Names.Host(n.id.text)
	}
	if len(all) == 0 {
		return g.fail(n.id, "unknown host %q%s", n.id.text, didYouMean(n.id.text))
	}
	var v4 []uint32
	var v6 []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, words(a)[3])
		} else {
			v6 = append(v6, a)
		}
	}
	if len(v4) > maxAddresses || len(v6) > maxAddresses {
		return g.fail(n.id, "host %q has more than %d addresses", n.id.text, maxAddresses)
	}
	slices.Sort(v4)
	slices.SortFunc(v6, netip.Addr.Compare)
	c, found := constant(false), false
	if p4 != protoIPv6 && len(v4) > 0 {
		q := *n
		q.q.p, q.q.dir = p4, dir
		c, found = g.ipv4Host(&q, v4, 0xffffffff, none), true
	}
	if p6 != protoARP && p6 != protoIP && p6 != protoRARP && len(v6) > 0 {
		if p6 != protoNone && p6 != protoIPv6 {
			return g.misapplied(n)
		}
		c, found = or(c, g.ipv6Host(n.id, v6, 128, dir)), true
	}
	if !found {
		return g.fail(n.id, "host %q has no address of the family", n.id.text)
	}
	return c
}

func (g *lowering) netName(n *identified) *cond {
	if g.opts.Names.Network != nil {
		if a, ok := g.opts.Names.Network(n.id.text); ok && a.Unmap().Is4() {
			v, mask := leftAlign(words(a.Unmap())[3])
			if v != 0 {
				return g.ipv4Host(n, []uint32{v}, mask, false)
			}
		}
	}
	return g.fail(n.id, "unknown network %q", n.id.text)
}

// gateway tests for packets that a host forwards: its Ethernet address with other IP addresses.
func (g *lowering) gateway(n *identified) *cond {
	switch n.q.p {
	case protoNone, protoIP, protoARP, protoRARP:
	default:
		return g.misapplied(n)
	}
	if g.labels > 0 || g.tunnelled {
		return g.fail(n.id, "\"gateway\" cannot be used inside MPLS, VXLAN or Geneve")
	}
	mac := g.macName(n.id, dirOr)
	return and(mac, g.hostName(n, n.q.p, protoIP, dirOr, true))
}
