package expr

import (
	"strconv"
	"strings"
)

// transport returns the IP protocol of a qualifier of ports; without one there are three.
func transport(p proto) (number int, ok bool) {
	switch p {
	case protoNone:
		return anyIPProto, true
	case protoTCP, protoUDP, protoSCTP:
		return int(protoNumbers[p]), true
	}
	return 0, false
}

// ports tests for ports from low to high: over IPv6 first, then over IPv4.
func (g *lowering) ports(at lexeme, low, high uint32, p int, dir direction) *cond {
	v4 := g.ports4(at, low, high, p, dir)
	return or(g.ports6(at, low, high, p, dir), v4)
}

// portsAt tests source and destination port in a transport header.
func (g *lowering) portsAt(header place, low, high uint32, dir direction) *cond {
	at := func(k uint32) *cond {
		if low == high {
			return eq(g.load(header, k, 2), low)
		}
		c := ge(g.load(header, k, 2), low)
		return and(c, le(g.load(header, k, 2), high))
	}
	return eitherWay(dir, func() *cond { return at(0) }, func() *cond { return at(2) })
}

// isTransport tests the protocol field of an IP header at k.
func (g *lowering) isTransport(k uint32, p int) *cond {
	is := func(n uint32) *cond { return eq(g.load(inNetwork, k, 1), n) }
	if p == anyIPProto {
		return ors(is(ipTCP), is(ipUDP), is(ipSCTP))
	}
	return is(uint32(p))
}

// ports4 skips fragments but the first, which have no transport header (RFC 791 3.2).
func (g *lowering) ports4(at lexeme, low, high uint32, p int, dir direction) *cond {
	ports := g.portsAt(inTransport4, low, high, dir)
	c := ands(g.isTransport(ipv4Proto, p), g.firstFragment(), ports)
	return and(g.linkProto(at, typeIPv4), c)
}

// ports6 looks behind the fixed header only: packets with extension headers have no ports here.
func (g *lowering) ports6(at lexeme, low, high uint32, p int, dir direction) *cond {
	ports := g.portsAt(inTransport6, low, high, dir)
	c := and(g.isTransport(ipv6Next, p), ports)
	return and(g.linkProto(at, typeIPv6), c)
}

// Offsets in IP headers (RFC 791 3.1, RFC 8200 3).
const (
	ipv4Fragment = 6
	ipv4Proto    = 9
	ipv6Next     = 6
)

// firstFragment tests that the fragment offset is 0.
func (g *lowering) firstFragment() *cond {
	return not(bitsSet(g.load(inNetwork, ipv4Fragment, 2), 0x1fff))
}

func (g *lowering) portName(n *identified) *cond {
	want, ok := transport(n.q.p)
	if !ok {
		return g.misapplied(n)
	}
	port, p, ok := g.service(n.id.text)
	if !ok {
		return g.fail(n.id, "unknown port %q", n.id.text)
	}
	if p, ok = narrow(want, p); !ok {
		return g.fail(n.id, "%q is not a port of %v", n.id.text, n.q.p)
	}
	return g.ports(n.id, port, port, p, n.q.dir)
}

// service resolves the name of a port. One with the same number for TCP and UDP is of any protocol.
func (g *lowering) service(name string) (port uint32, p int, ok bool) {
	if v, err := strconv.ParseUint(name, 10, 16); err == nil {
		return uint32(v), anyIPProto, true
	}
	if g.opts.Names.Port == nil {
		return 0, 0, false
	}
	tcp, isTCP := g.opts.Names.Port(name, "tcp")
	udp, isUDP := g.opts.Names.Port(name, "udp")
	switch {
	case isTCP && isUDP && tcp == udp:
		return uint32(tcp), anyIPProto, true
	case isTCP:
		return uint32(tcp), ipTCP, true
	}
	return uint32(udp), ipUDP, isUDP
}

// narrow returns the protocol of a service that satisfies the qualifier too.
func narrow(want, have int) (int, bool) {
	if want == anyIPProto {
		return have, true
	}
	return want, have == anyIPProto || have == want
}

// portRange tests for "portrange 80-90". Either end may be a name.
func (g *lowering) portRange(n *identified) *cond {
	want, ok := transport(n.q.p)
	if !ok {
		return g.misapplied(n)
	}
	first, second, found := strings.Cut(n.id.text, "-")
	if !found || first == "" || second == "" || strings.Contains(second, "-") {
		return g.fail(n.id, "%q is not a range of ports such as 80-90", n.id.text)
	}
	low, p, ok1 := g.rangeEnd(n.id, first)
	high, p2, ok2 := g.rangeEnd(n.id, second)
	if !ok1 || !ok2 {
		return g.fail(n.id, "%q is not a range of ports such as 80-90", n.id.text)
	}
	if p != p2 {
		p = anyIPProto
	}
	if p, ok = narrow(want, p); !ok {
		return g.fail(n.id, "%q are not ports of %v", n.id.text, n.q.p)
	}
	g.atMost(n.id, "port number", low, 0xffff)
	g.atMost(n.id, "port number", high, 0xffff)
	return g.ports(n.id, min(low, high), max(low, high), p, n.q.dir)
}

func (g *lowering) rangeEnd(at lexeme, s string) (port uint32, p int, ok bool) {
	if numberLen(s) == len(s) {
		if v, err := parseNumber(s, at.pos); err == nil {
			return v, anyIPProto, true
		}
	}
	return g.service(s)
}
