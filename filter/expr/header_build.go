package expr

import (
	"math/bits"
	"slices"
)

// newHeaderTable returns the table for a graph, or nil where the graph has other tests or too many.
func newHeaderTable(g *graph) *headerTable {
	if h := buildHeaderTable(g, false); h != nil {
		return h
	}
	return buildHeaderTable(g, true)
}

// buildHeaderTable makes a table of 16 lanes, a bit of the index each, or with joined of 32 with lists and a field
// at a variable offset.
func buildHeaderTable(g *graph, joined bool) *headerTable {
	if g.entry < 0 {
		return nil
	}
	b := headerBuilder{g: g, joined: joined, steps: make([]headerStep, len(g.steps)), known: map[laneTest]int{}, entered: g.entered()}
	used, inList := g.used(), make([]bool, len(g.steps))
	for i := g.entry; i >= 0; i-- {
		if used[i] && !inList[i] && !b.step(i, inList) {
			return nil
		}
	}
	return b.finish()
}

// headerBuilder makes a headerTable.
type headerBuilder struct {
	h       headerTable
	g       *graph
	joined  bool
	entered []int // edges that lead to a step
	steps   []headerStep
	known   map[laneTest]int // lanes of single tests
	used    int              // lanes

	bits     []int // of the index, as lanes in ascending order, which PEXT keeps; steps hold positions in this list
	validBit int

	right         uint32 // of the variable offset
	variableLanes uint32
}

// step makes the bit of step i, and of the steps behind it that are alternatives to it.
func (b *headerBuilder) step(i int, inList []bool) bool {
	t, inverted, base, ok := b.test(i)
	if !ok {
		return false
	}
	s := &b.steps[i]
	*s = headerStep{inverted: inverted, noOption: none, jt: b.g.steps[i].jt, jf: b.g.steps[i].jf, variable: t.variable, need: t.need()}
	list := []laneTest{t}
	for next := s.jf; b.joined && !inverted && next >= 0 && b.entered[next] == 1 && b.g.steps[next].jt == s.jt; next = s.jf {
		more, inverted, base2, ok := b.test(next)
		if !ok {
			return false
		}
		if inverted || base2 != base || more.variable != t.variable {
			break
		}
		list = append(list, more)
		s.need = max(s.need, more.need())
		inList[next] = true
		s.jf = b.g.steps[next].jf
	}
	if t.variable {
		s.need = max(s.need, uint8(b.h.variable.at)+2)
	}
	if base != none {
		if s.noOption, ok = b.single(laneTest{at: uint32(base), size: 1, rangeTest: rangeTest{mask: 0xf, low: 5}}); !ok {
			return false
		}
	}
	s.bit, ok = b.list(list)
	return ok
}

// test returns step i as a test of a lane. base is the place of the IPv4 header that has to be without
// options, or none.
func (b *headerBuilder) test(i int) (t laneTest, inverted bool, base int, ok bool) {
	v, r, inverted, ok := rangeOf(&b.g.steps[i])
	t, base = laneTest{rangeTest: r}, none
	switch {
	case !ok:
		return t, false, none, false
	case v.op == valueLen:
		return t, inverted, none, true
	case v.op != valueLoad:
		return t, false, none, false
	}
	t.at, t.size = v.k, v.size
	if v.x == nil {
		return t, inverted, none, true
	}
	if at, ok := ipv4Len4(v.x); ok {
		if uint64(t.at)+ipv4HeaderLen > headerLen {
			return t, false, none, false
		}
		t.at += ipv4HeaderLen
		return t, inverted, int(at), true
	}
	base, ok = b.variable(v, &t)
	return t, inverted, base, ok
}

// variable makes t a test of the field at the variable offset, of which a table has one. It is for single values
// only, which can be compared in any order of the bytes.
func (b *headerBuilder) variable(v *value, t *laneTest) (base int, ok bool) {
	f, right, base, ok := variableOf(v)
	if have := &b.h.variable; !ok || !b.joined || t.span != 0 || have.bit != 0 && (*have != f || b.right != right) {
		return none, false
	}
	b.h.variable, b.right = f, right
	t.variable, t.at, t.size = true, 0, 0
	t.mask = bits.ReverseBytes32(t.mask & (1<<(8*uint32(v.size)) - 1))
	t.low = bits.ReverseBytes32(t.low)
	return base, true
}

// variableOf recognizes a load whose offset is a byte of the header, masked and shifted, and maybe with the length of
// an IPv4 header.
func variableOf(v *value) (f variableLoad, right uint32, base int, ok bool) {
	base = none
	x, mask := v.x, uint32(0xff)
	right = 8
	f = variableLoad{start: v.k + uint32(v.size) - 4, bit: validResult}
	if x.op == valueAdd {
		if at, ok := ipv4Len4(x.x); ok {
			base, x = int(at), x.y
			f.start += ipv4HeaderLen
		}
	}
	if x.op == valueAdd && x.x.op == valueConst {
		f.start, x = f.start+x.x.k, x.y
	} else if x.op == valueAdd && x.y.op == valueConst {
		f.start, x = f.start+x.y.k, x.x
	}
	switch {
	case x.op == valueShr && x.y.op == valueConst && x.y.k < 8:
		right, x = 8+x.y.k, x.x
	case x.op == valueShl && x.y.op == valueConst && x.y.k <= 8:
		right, x = 8-x.y.k, x.x
	}
	if x.op == valueAnd && x.y.op == valueConst {
		mask, x = x.y.k&0xff, x.x
	}
	if x.op != valueLoad || x.size != 1 || v.k+uint32(v.size) < 4 {
		return f, 0, none, false
	}
	at := x.k
	if x.x != nil {
		ip, ok := ipv4Len4(x.x)
		if !ok || base != int(ip) {
			return f, 0, none, false
		}
		at += ipv4HeaderLen
	}
	f.at, f.mask = at-1, mask<<8
	f.reach = max(headerLen, f.start+f.mask>>right+4)
	return f, right, base, at > 0 && at < headerLen && v.k < mostReach && f.start < mostReach && f.reach <= mostReach
}

// mostReach bounds how far from a packet's begin a field can be: where a packet begins nearer to the memory's end,
// the program decides it.
const mostReach = 1536

// validResult is the bit of the results that says that the field at the variable offset is within the packet.
const validResult = 1 << 31

const ipv4HeaderLen = 20 // without options

// single returns the bit of one test.
func (b *headerBuilder) single(t laneTest) (bit int, ok bool) {
	n, ok := b.known[t]
	if !ok {
		if n, ok = b.lane(t); !ok {
			return 0, false
		}
		b.known[t] = n
		b.bits = append(b.bits, n)
	}
	return slices.Index(b.bits, n), true
}

// list returns the bit that says that any of some tests holds.
func (b *headerBuilder) list(tests []laneTest) (bit int, ok bool) {
	if len(tests) == 1 {
		return b.single(tests[0])
	}
	first := b.used
	for _, t := range tests {
		if _, ok := b.lane(t); !ok {
			return 0, false
		}
	}
	if b.used >= 2*lanes-1 {
		return 0, false
	}
	b.h.carry |= (1<<len(tests) - 1) << first
	b.bits = append(b.bits, b.used) // into which the sum carries
	b.used++
	return len(b.bits) - 1, true
}

// lane gives a test the next lane.
func (b *headerBuilder) lane(t laneTest) (int, bool) {
	most := lanes
	if b.joined {
		most = 2*lanes - 1 // the last result is validResult
	}
	if b.used == most || uint64(t.at)+uint64(t.size) > headerLen {
		return 0, false
	}
	n := b.used
	b.used++
	b.h.regs[n/lanes].set(n%lanes, t)
	if t.variable {
		b.variableLanes |= 1 << n
	}
	return n, true
}

func (s *laneSet) set(n int, t laneTest) {
	for i := range uint32(t.size) { // the last byte of the field is the lowest of the lane
		at := 4*uint32(n) + uint32(t.size) - 1 - i
		s.pick[at] = uint8(t.at + i)
		s.keep |= 1 << at
	}
	s.mask[n], s.low[n], s.span[n] = t.mask, t.low, t.span
	s.spans = s.spans || t.span != 0 || t.size == 0
	if t.size == 0 && !t.variable {
		s.sized |= 1 << n
		s.mask[n] &= 0xffff // two other bytes of the descriptor are loaded with it
	}
}

// finish fills the table.
func (b *headerBuilder) finish() *headerTable {
	h := &b.h
	h.joined = b.joined
	if b.used > lanes {
		h.flags |= headerWide
	}
	if h.regs[0].sized != 0 {
		h.flags |= headerSized
	}
	h.short = verdictUndecided
	h.variable.lanes, h.variable.reach = b.variableLanes, max(h.variable.reach, headerLen)
	if h.variable.bit != 0 {
		h.flags |= headerVariable | b.right
		b.validBit = len(b.bits)
		b.bits = append(b.bits, 31)
	}
	if len(b.bits) > lanes || b.variableLanes >= 1<<lanes {
		return nil
	}
	for _, n := range b.bits {
		h.index |= 1 << n
	}
	for r := range h.regs {
		s := &h.regs[r]
		for n := range lanes {
			if s.keep>>(4*n)&0xf == 0 && s.sized>>n&1 == 0 && b.variableLanes>>(r*lanes+n)&1 == 0 {
				s.low[n] = 1 // which no lane that is not loaded equals
			}
		}
	}
	h.table = make([]uint16, 1<<len(b.bits))
	for results := range h.table {
		h.table[results] = b.walk(uint32(results))
	}
	return h
}
