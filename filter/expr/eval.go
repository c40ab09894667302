package expr

import "encoding/binary"

// state holds the working state of the evaluation of values. It lives on the stack.
type state struct {
	pkt []byte
	len uint32
	m   [slots + 1]uint32
}

// value computes v. ok is false where that rejects the packet.
func (s *state) value(v *value) (result uint32, ok bool) {
	switch v.op {
	case valueConst:
		return v.k, true
	case valueLen:
		return s.len, true
	case valueSlot:
		return s.m[v.slot], true
	case valueLoad:
		at := uint64(v.k)
		if v.x != nil {
			x, ok := s.value(v.x)
			if !ok {
				return 0, false
			}
			at += uint64(x)
		}
		return loadAt(s.pkt, at, v.size)
	case valueAux:
		return 0, false
	case valueIf:
		c, ok := s.cond(v.c)
		if !ok {
			return 0, false
		}
		if c {
			return s.value(v.x)
		}
		return s.value(v.y)
	case valueNeg:
		x, ok := s.value(v.x)
		return -x, ok
	}
	x, ok := s.value(v.x)
	if !ok {
		return 0, false
	}
	y, ok := s.value(v.y)
	if !ok {
		return 0, false
	}
	return calculate(v.op, x, y)
}

// loadAt reads a big-endian number.
func loadAt(b []byte, at uint64, size uint8) (uint32, bool) {
	if at+uint64(size) > uint64(len(b)) {
		return 0, false
	}
	switch size {
	case 1:
		return uint32(b[at]), true
	case 2:
		return uint32(binary.BigEndian.Uint16(b[at:])), true
	}
	return binary.BigEndian.Uint32(b[at:]), true
}

func calculate(op valueOp, x, y uint32) (uint32, bool) {
	switch op {
	case valueAdd:
		return x + y, true
	case valueSub:
		return x - y, true
	case valueMul:
		return x * y, true
	case valueDiv:
		if y == 0 {
			return 0, false
		}
		return x / y, true
	case valueMod:
		if y == 0 {
			return 0, false
		}
		return x % y, true
	case valueAnd:
		return x & y, true
	case valueOr:
		return x | y, true
	case valueXor:
		return x ^ y, true
	case valueShl:
		return x << y, true // 0 for 32 and more
	}
	return x >> y, true
}

// cond evaluates the condition of a valueIf: tests without stores.
func (s *state) cond(c *cond) (result, ok bool) {
	switch c.op {
	case condTrue, condFalse:
		return c.op == condTrue, true
	case condNot:
		r, ok := s.cond(c.l)
		return !r, ok
	case condAnd, condOr:
		r, ok := s.cond(c.l)
		if !ok || r == (c.op == condOr) {
			return r, ok
		}
		return s.cond(c.r)
	case condSet:
		v, ok := s.value(c.a)
		s.m[c.slot] = v
		return true, ok
	case condChain:
		return s.chain(c.walk)
	}
	a, ok := s.value(c.a)
	if !ok {
		return false, false
	}
	b, ok := s.value(c.b)
	return compare(c.cmp, a, b), ok
}

// chain follows IP headers (RFC 8200 4, RFC 4302 2).
func (s *state) chain(w *chain) (found, ok bool) {
	next, x, ok := s.chainStart(w)
	if !ok {
		return false, false
	}
	for range w.limit() {
		if next == w.proto {
			return true, true
		}
		extension := w.v6 && (next == ipHopByHop || next == ipDestOpts || next == ipRouting || next == ipFragment)
		if next == ipNoNext || next != ipAH && !extension {
			return false, true
		}
		after, ok1 := loadAt(s.pkt, uint64(x)+uint64(w.base), 1)
		var words uint32
		var ok2 bool
		if extension {
			words, ok2 = loadAt(s.pkt, uint64(x)+uint64(w.base)+1, 1)
			x += (words + 1) * 8
		} else {
			// The length is taken from the start of the IP header, as libpcap does: right for one
			// authentication header behind nothing only if it is the first 4*(n+2) bytes.
			words, ok2 = loadAt(s.pkt, uint64(x+1)+uint64(w.base), 1)
			x = (words + 2) * 4
		}
		if !ok1 || !ok2 {
			return false, false
		}
		next = after
	}
	return next == w.proto, true
}

// chainStart returns the protocol in the IP header and the length of that header.
func (s *state) chainStart(w *chain) (next, length uint32, ok bool) {
	if w.v6 {
		next, ok = loadAt(s.pkt, uint64(w.base)+ipv6Next, 1)
		return next, ipv6HeaderLen, ok
	}
	next, ok = loadAt(s.pkt, uint64(w.base)+ipv4Proto, 1)
	if !ok {
		return 0, 0, false
	}
	first, ok := loadAt(s.pkt, uint64(w.base), 1)
	return next, first & 0xf * 4, ok
}
