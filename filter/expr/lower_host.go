package expr

import (
	"net/netip"
	"strconv"
	"strings"
)

// eitherWay applies a test of an address or port to the source, the destination or both.
func eitherWay(dir direction, src, dst func() *cond) *cond {
	switch dir {
	case dirSrc:
		return src()
	case dirDst:
		return dst()
	case dirAnd:
		c := src()
		return and(c, dst())
	}
	c := src()
	return or(c, dst())
}

// ipv4Host tests IPv4 addresses in IPv4, ARP and RARP packets; none asks that no address matches.
func (g *lowering) ipv4Host(n *identified, addrs []uint32, mask uint32, none bool) *cond {
	in := func(p proto) *cond { return g.ipv4HostIn(n, p, addrs, mask, none) }
	switch n.q.p {
	case protoNone:
		c := in(protoIP)
		if g.labels > 0 {
			return c
		}
		arp := in(protoARP)
		c = or(c, arp)
		return or(c, in(protoRARP))
	case protoIP, protoARP, protoRARP:
		return in(n.q.p)
	}
	return g.misapplied(n)
}

func (g *lowering) ipv4HostIn(n *identified, p proto, addrs []uint32, mask uint32, none bool) *cond {
	srcAt, dstAt := uint32(12), uint32(16) // RFC 791 3.1
	if p != protoIP {
		srcAt, dstAt = 14, 24 // RFC 826, for Ethernet and IPv4
	}
	link := g.linkProto(n.id, protoNumbers[p])
	if link.op == condFalse {
		return link
	}
	c := constant(false)
	for _, a := range addrs {
		at := func(k uint32) *cond { return g.addrWord(k, a, mask) }
		one := eitherWay(n.q.dir, func() *cond { return at(srcAt) }, func() *cond { return at(dstAt) })
		c = or(c, one)
	}
	if none {
		c = not(c)
	}
	return and(link, c)
}

// addrWord compares the bits of mask in a word of the network header. Without bits nothing is loaded, not
// even the place of the header.
func (g *lowering) addrWord(k, word, mask uint32) *cond {
	if mask == 0 {
		return constant(word == 0)
	}
	return masked(g.load(inNetwork, k, 4), word, mask)
}

// ipv6Host tests the first bits of IPv6 addresses (RFC 8200 3).
func (g *lowering) ipv6Host(at lexeme, addrs []netip.Addr, bits int, dir direction) *cond {
	link := g.linkProto(at, typeIPv6)
	c := constant(false)
	for _, a := range addrs {
		w := words(a)
		addrAt := func(k uint32) *cond {
			all := constant(true)
			for i := range w {
				m := prefixMask(min(max(bits-32*i, 0), 32))
				all = and(all, g.addrWord(k+uint32(4*i), w[i], m))
			}
			return all
		}
		c = or(c, eitherWay(dir, func() *cond { return addrAt(8) }, func() *cond { return addrAt(24) }))
	}
	return and(link, c)
}

// macHost tests 48-bit link-layer addresses.
func (g *lowering) macHost(at lexeme, mac [6]byte, dir direction) *cond {
	src, dst := uint32(6), uint32(0)
	switch g.current {
	case LinkFDDI:
		src, dst = 7, 1
	case LinkTokenRing:
		src, dst = 8, 2
	case LinkIPOverFC:
		src, dst = 10, 2
	}
	if !links[g.current].mac48 {
		return g.unsupported(at)
	}
	if g.family() == familyWLAN {
		return g.wlanHost(mac, dir)
	}
	if dir >= dirAddr1 {
		return g.fail(at, "%q applies to 802.11 addresses only", dir)
	}
	var check *cond
	if g.family() == familyEthernet {
		check = g.enclosed()
	}
	c := eitherWay(dir,
		func() *cond { return g.bytesAt(inHeader, src, mac[:]) },
		func() *cond { return g.bytesAt(inHeader, dst, mac[:]) })
	if check != nil {
		return and(check, c)
	}
	return c
}

// macName tests the Ethernet address that a name has.
func (g *lowering) macName(at lexeme, dir direction) *cond {
	if !links[g.current].mac48 {
		return g.unsupported(at)
	}
	if g.opts.Names.Ethernet != nil {
		if mac, ok := g.opts.Names.Ethernet(at.text); ok {
			return g.macHost(at, mac, dir)
		}
	}
	return g.fail(at, "the Ethernet address of %q is not known", at.text)
}

// shortHost tests link-layer addresses of one byte.
func (g *lowering) shortHost(at lexeme, addr uint32, dir direction) *cond {
	src, dst := uint32(0), uint32(1)
	switch g.current {
	case LinkARCNET, LinkARCNETLinux:
	case LinkBACnetMSTP:
		src, dst = 4, 3
	default:
		return g.unsupported(at)
	}
	return eitherWay(dir,
		func() *cond { return eq(g.load(inHeader, src, 1), addr) },
		func() *cond { return eq(g.load(inHeader, dst, 1), addr) })
}

// decnetHost tests DECnet node addresses, which are written area.node.
func (g *lowering) decnetHost(n *identified) *cond {
	if n.q.t != typeNone && n.q.t != typeHost {
		return g.misapplied(n)
	}
	a, b, _ := strings.Cut(n.id.text, ".")
	area, err1 := strconv.ParseUint(a, 10, 8)
	node, err2 := strconv.ParseUint(b, 10, 16)
	if err1 != nil || err2 != nil || area > 63 || node > 1023 {
		return g.fail(n.id, "%q is not a DECnet address", n.id.text)
	}
	addr := swap16(uint32(area)<<10 | uint32(node)) // little-endian in the packet
	link := g.linkProto(n.id, typeDECnet)
	return and(link, eitherWay(n.q.dir,
		func() *cond { return g.decnetAddr(addr, 3, 15, false) },
		func() *cond { return g.decnetAddr(addr, 1, 7, true) }))
}

// decnetAddr tests an address of the routing header, whose form has four variants: short or long,
// each with or without a byte of padding before it. Two bytes of length precede.
func (g *lowering) decnetAddr(addr, short, long uint32, dst bool) *cond {
	longPadded := and(masked(g.load(inNetwork, 2, 2), 0x8106, 0xff07), eq(g.load(inNetwork, 3+long, 2), addr))
	longPlain := and(masked(g.load(inNetwork, 2, 1), 0x06, 0x07), eq(g.load(inNetwork, 2+long, 2), addr))
	var shortPadded, shortPlain *cond
	if dst {
		// Flags and address are within one word.
		shortPadded = masked(g.load(inNetwork, 2, 4), 0x81020000|addr, 0xff07ffff)
		shortPlain = masked(g.load(inNetwork, 2, 4), 0x02000000|addr<<8, 0x07ffff00)
	} else {
		shortPadded = and(masked(g.load(inNetwork, 2, 2), 0x8102, 0xff07), eq(g.load(inNetwork, 3+short, 2), addr))
		shortPlain = and(masked(g.load(inNetwork, 2, 1), 0x02, 0x07), eq(g.load(inNetwork, 2+short, 2), addr))
	}
	return or(shortPlain, or(shortPadded, or(longPlain, longPadded)))
}
