package expr

// cond is a node of the match tree: something that is true or false of a packet.
//
// Evaluation is left to right and stops early. A load outside the packet ends it: the packet is
// rejected as a whole, also below a condNot.
type cond struct {
	op   condOp
	l, r *cond  // condAnd, condOr; condNot has l
	cmp  cmpOp  // condTest: a cmp b
	a, b *value // condTest; condSet stores a
	slot int    // condSet
	walk *chain // condChain
}

type condOp uint8

const (
	condFalse condOp = iota
	condTrue
	condAnd
	condOr
	condNot
	condTest
	condSet   // stores a value in a slot; true
	condChain // walks the extension headers of a packet
)

// cmpOp compares unsigned numbers of 32 bits.
type cmpOp uint8

const (
	cmpEQ  cmpOp = iota
	cmpGT        // a > b
	cmpGE        // a >= b
	cmpSet       // a & b != 0
)

// value is a number of 32 bits that is computed of a packet.
type value struct {
	op   valueOp
	k    uint32 // valueConst; valueLoad: the offset that is added to x; valueAux: which
	size uint8  // valueLoad, valueAux: 1, 2 or 4 bytes, big endian
	slot int    // valueSlot
	x, y *value // operands; valueLoad: x is the variable part of the offset, or nil
	c    *cond  // valueIf: c ? x : y
}

type valueOp uint8

const (
	valueConst valueOp = iota
	valueLen           // the length of the packet on the wire
	valueLoad
	valueAux  // metadata that only the kernel has
	valueSlot // 0 until a condSet
	valueIf
	valueNeg
	valueAdd
	valueSub
	valueMul
	valueDiv // rejects the packet where y is 0
	valueMod // likewise
	valueAnd
	valueOr
	valueXor
	valueShl // 0 where y > 31
	valueShr // likewise
)

// chain walks headers from the IP header at base until it meets proto or a header without a
// successor that it knows, and is true in the first case.
type chain struct {
	v6    bool
	proto uint32
	base  uint32
}

// limit bounds the headers that a chain follows; a packet with more does not match. Classic BPF has no
// loops, and libpcap's own go on for ever on an authentication header that leads to itself.
func (w *chain) limit() int {
	if w.v6 {
		return 112
	}
	return 24
}

// Constructors of conditions fold constants as they build: a condition that is known to be true or
// false removes its neighbour with all its loads, so that the loads cannot reject a packet.

func constant(b bool) *cond {
	if b {
		return &cond{op: condTrue}
	}
	return &cond{op: condFalse}
}

func and(l, r *cond) *cond {
	switch {
	case l.op == condFalse || r.op == condTrue:
		return l
	case r.op == condFalse || l.op == condTrue:
		return r
	}
	return &cond{op: condAnd, l: l, r: r}
}

func or(l, r *cond) *cond {
	switch {
	case l.op == condFalse:
		return r
	case r.op == condFalse || l.op == condTrue:
		return l
	case r.op == condTrue:
		return r
	}
	return &cond{op: condOr, l: l, r: r}
}

// ors joins conditions from left to right.
func ors(first *cond, more ...*cond) *cond {
	for _, c := range more {
		first = or(first, c)
	}
	return first
}

// ands joins conditions from left to right.
func ands(first *cond, more ...*cond) *cond {
	for _, c := range more {
		first = and(first, c)
	}
	return first
}

func not(c *cond) *cond {
	switch c.op {
	case condFalse, condTrue:
		return constant(c.op == condFalse)
	case condNot:
		return c.l
	}
	return &cond{op: condNot, l: c}
}

// before evaluates first, which is true, ahead of c. It folds nothing.
func before(first, c *cond) *cond { return &cond{op: condAnd, l: first, r: c} }

func test(a *value, op cmpOp, b *value) *cond { return &cond{op: condTest, cmp: op, a: a, b: b} }

func set(slot int, v *value) *cond { return &cond{op: condSet, slot: slot, a: v} }

func num(k uint32) *value { return &value{op: valueConst, k: k} }

func slotValue(slot int) *value { return &value{op: valueSlot, slot: slot} }

// load reads size bytes at offset k, from x if that is not nil.
func load(x *value, k uint32, size uint8) *value {
	return &value{op: valueLoad, x: x, k: k, size: size}
}

func compute(op valueOp, x, y *value) *value { return &value{op: op, x: x, y: y} }

// rangeTest is whether a value lies in a range: (v & mask) - low <= span, unsigned and modulo 2^32. All
// comparisons with a constant have this form, so that a processor needs one kind of them.
type rangeTest struct {
	mask, low, span uint32
}

func (r rangeTest) holds(v uint32) bool { return v&r.mask-r.low <= r.span }

// outside returns the range of the values that r, which goes up to the greatest, leaves out.
func (r rangeTest) outside() (rangeTest, bool) {
	if r.low == 0 || r.low+r.span != 1<<32-1 {
		return r, false
	}
	return rangeTest{mask: r.mask, span: r.low - 1}, true
}

// and returns the values in both ranges, which have one mask, unless there are none.
func (r rangeTest) and(o rangeTest) (rangeTest, bool) {
	low, high := max(r.low, o.low), min(r.low+r.span, o.low+o.span)
	wraps := r.low+r.span < r.low || o.low+o.span < o.low
	return rangeTest{r.mask, low, high - low}, low <= high && !wraps
}

// rangeOf returns a step as a range test of a value. The step holds where the test does, or where it does
// not if inverted. ok is false for steps that are no comparison with a constant, or compare with
// constants that no value is above.
func rangeOf(s *step) (v *value, r rangeTest, inverted, ok bool) {
	const most = 1<<32 - 1
	if s.op != condTest || s.b.op != valueConst {
		return nil, r, false, false
	}
	v, k := s.a, s.b.k
	r = rangeTest{mask: most, low: k}
	if v.op == valueAnd && v.y.op == valueConst {
		v, r.mask = v.x, v.y.k
	}
	if s.fused != nil {
		return v, *s.fused, false, true
	}
	switch s.cmp {
	case cmpGT:
		r.low, r.span = k+1, most-(k+1)
		ok = k != most
	case cmpGE:
		r.span = most - k
		ok = true
	case cmpSet: // not (v & mask & k == 0)
		r.mask, r.low = r.mask&k, 0
		inverted, ok = true, true
	default:
		ok = true
	}
	return v, r, inverted, ok
}
