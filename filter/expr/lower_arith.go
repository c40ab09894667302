package expr

// computed is a number under construction.
type computed struct {
	v     *value
	valid *cond // that the headers are there which it is taken from, or nil
	slot  int   // where libpcap would keep it: expressions that need too many fail alike
}

// relation compares two numbers. The headers that the right one needs are tested first.
func (g *lowering) relation(n *relation) *cond {
	l, r := g.arith(n.left), g.arith(n.right)
	g.release(l.slot)
	g.release(r.slot)
	c := compareOp(n.op, l.v, r.v)
	if l.valid != nil {
		c = and(l.valid, c)
	}
	if r.valid != nil {
		c = and(r.valid, c)
	}
	return c
}

func compareOp(op token, a, b *value) *cond {
	switch op {
	case '>':
		return test(a, cmpGT, b)
	case tokGE:
		return test(a, cmpGE, b)
	case tokLE:
		return not(test(a, cmpGT, b))
	case '<':
		return not(test(a, cmpGE, b))
	case tokNE:
		return not(test(a, cmpEQ, b))
	}
	return test(a, cmpEQ, b)
}

func (g *lowering) arith(n arith) computed {
	switch n := n.(type) {
	case *number:
		return computed{v: num(n.value), slot: g.allocate(n.at)}
	case *length:
		return computed{v: &value{op: valueLen}, slot: g.allocate(lexeme{})}
	case *minus:
		x := g.arith(n.x)
		x.v = compute(valueNeg, x.v, nil)
		return x
	case *index:
		return g.index(n)
	case *operation:
		return g.operation(n)
	}
	panic("expr: unknown arithmetic")
}

var valueOps = map[token]valueOp{
	'+': valueAdd, '-': valueSub, '*': valueMul, '/': valueDiv, '%': valueMod, '&': valueAnd, '|': valueOr,
	'^': valueXor, tokShl: valueShl, tokShr: valueShr,
}

// operation joins two numbers. The headers that the right one needs are not tested: libpcap forgets
// them, and "1 + ip[0] = 70" is true of packets that are not IP.
func (g *lowering) operation(n *operation) computed {
	l, r := g.arith(n.left), g.arith(n.right)
	if r, ok := n.right.(*number); ok {
		switch {
		case n.op == '/' && r.value == 0, n.op == '%' && r.value == 0:
			g.fail(n.at, "division by zero")
		case (n.op == tokShl || n.op == tokShr) && r.value > 31:
			g.fail(n.at, "a shift by %d bits, of 32", r.value)
		}
	}
	g.release(l.slot)
	g.release(r.slot)
	return computed{v: compute(valueOps[n.op], l.v, r.v), valid: l.valid, slot: g.allocate(n.at)}
}

// index loads bytes of a header at a computed offset.
func (g *lowering) index(n *index) computed {
	o := g.arith(n.offset)
	slot := g.allocate(n.at)
	g.release(o.slot)
	base, k, valid := g.headerOf(n)
	if valid != nil {
		if o.valid != nil {
			valid = and(o.valid, valid)
		}
		o.valid = valid
	}
	x := o.v
	if base != nil && x.op == valueConst && x.k < 1<<20 {
		if _, ok := ipv4Len4(base); ok { // at most 60, so that the sum cannot wrap
			return computed{load(base, k+x.k, uint8(n.size)), o.valid, slot}
		}
	}
	if base != nil {
		x = compute(valueAdd, base, x)
	}
	if x.op == valueConst {
		// The sum of offsets is not taken modulo 2^32: a load beyond that is out of bounds.
		if sum := uint64(x.k) + uint64(k); sum <= 0xffffffff {
			return computed{load(nil, uint32(sum), uint8(n.size)), o.valid, slot}
		}
	}
	return computed{load(x, k, uint8(n.size)), o.valid, slot}
}

// headerOf returns the start of a protocol's header, as base and constant, and the test that there is
// one.
func (g *lowering) headerOf(n *index) (base *value, k uint32, valid *cond) {
	network := g.payload.k + g.network
	switch n.p {
	case protoRadio:
		switch g.current {
		case LinkAVS, LinkRadiotap, LinkPrism:
		default:
			g.unsupported(n.at)
		}
		return nil, 0, nil
	case protoLink:
		return g.base(&g.header), g.header.k, nil
	case protoIP, protoARP, protoRARP, protoAppleTalk, protoDECnet, protoSCA, protoLAT, protoMOPRC, protoMOPDL,
		protoIPv6:
		base = g.base(&g.payload)
		return base, network, g.abbreviation(n.at, n.p)
	case protoSCTP, protoTCP, protoUDP, protoICMP, protoIGMP, protoIGRP, protoPIM, protoVRRP, protoCARP:
		base = g.ipv4HeaderLen()
		valid = g.linkProto(n.at, typeIPv4)
		return base, network, ands(valid, eq(g.load(inNetwork, ipv4Proto, 1), protoNumbers[n.p]), g.firstFragment())
	case protoICMPv6:
		valid = g.linkProto(n.at, typeIPv6)
		valid = and(valid, eq(g.load(inNetwork, ipv6Next, 1), ipICMPv6))
		return g.base(&g.payload), network + ipv6HeaderLen, valid
	}
	g.fail(n.at, "bytes of %q cannot be addressed", n.at.text)
	return nil, 0, nil
}
