package expr

import "encoding/binary"

// program is the form of a filter that Match runs: the tests of the decision graph, with the common
// loads as operations of their own.
type program struct {
	code []inst
}

// inst is one test. Targets are indices of insts.
type inst struct {
	op     opcode
	cmp    cmpOp
	size   uint8
	at     uint32 // offset of the load
	base   uint32 // opIPv4: offset of the IPv4 header, whose length is added to at
	mask   uint32
	k      uint32
	jt, jf int32
	slow   *step // opSlow
}

type opcode uint8

const (
	opReject opcode = iota // inst 0
	opAccept               // inst 1
	opByte                 // one byte & mask == k
	opHalf                 // two bytes & mask == k
	opWord                 // four bytes & mask == k
	opTest                 // a load & mask, compared as cmp says
	opIPv4                 // a load behind the IPv4 header & mask, compared as cmp says
	opLen                  // the length, compared as cmp says
	opSlow                 // whatever step says
)

// build turns a tree into a program.
func build(tree *cond) program {
	g := newGraph(tree)
	p := program{code: []inst{{op: opReject}, {op: opAccept}}}
	index := make([]int32, len(g.steps))
	target := func(i int) int32 {
		switch i {
		case accept:
			return 1
		case reject:
			return 0
		}
		return index[i]
	}
	used := g.used()
	for i := range g.steps {
		if !used[i] {
			continue
		}
		s := &g.steps[i]
		in := encode(s)
		in.jt, in.jf = target(s.jt), target(s.jf)
		index[i] = int32(len(p.code))
		p.code = append(p.code, in)
	}
	// The entry is last so far; Match starts at the end.
	if g.entry < 0 {
		p.code = append(p.code, p.code[target(g.entry)])
	}
	return p
}

// used marks the steps that can be reached.
func (g *graph) used() []bool {
	used := make([]bool, len(g.steps))
	if g.entry >= 0 {
		used[g.entry] = true
	}
	for i := len(g.steps) - 1; i >= 0; i-- {
		if !used[i] {
			continue
		}
		for _, j := range []int{g.steps[i].jt, g.steps[i].jf} {
			if j >= 0 {
				used[j] = true
			}
		}
	}
	return used
}

// encode picks the operation for a step.
func encode(s *step) inst {
	slow := inst{op: opSlow, slow: s}
	if s.op != condTest || s.b.op != valueConst {
		return slow
	}
	v, mask := s.a, uint32(0xffffffff)
	if v.op == valueAnd && v.y.op == valueConst {
		v, mask = v.x, v.y.k
	}
	in := inst{op: opTest, cmp: s.cmp, mask: mask, k: s.b.k, size: v.size, at: v.k}
	switch {
	case v.op == valueLen:
		in.op = opLen
	case v.op != valueLoad:
		return slow
	case v.x == nil:
		if s.cmp == cmpEQ {
			in.op = map[uint8]opcode{1: opByte, 2: opHalf, 4: opWord}[v.size]
		}
	default:
		base, ok := ipv4Len4(v.x)
		if !ok {
			return slow
		}
		in.op, in.base = opIPv4, base
	}
	return in
}

// ipv4Len4 recognizes the length of the IPv4 header at a fixed offset.
func ipv4Len4(v *value) (base uint32, ok bool) {
	if v.op != valueShl || v.y.op != valueConst || v.y.k != 2 {
		return 0, false
	}
	a := v.x
	if a.op != valueAnd || a.y.op != valueConst || a.y.k != 0xf {
		return 0, false
	}
	l := a.x
	return l.k, l.op == valueLoad && l.x == nil && l.size == 1
}

// Match reports whether f matches a packet. pkt are the bytes that were captured, and length is the
// length of the packet on the wire. It does not allocate.
func (f *Filter) Match(pkt []byte, length int) bool { return f.prog.run(pkt, uint32(length)) }

// run evaluates the program.
func (p *program) run(pkt []byte, length uint32) bool {
	code := p.code
	s := state{pkt: pkt, len: length}
	for i := int32(len(code) - 1); ; {
		if uint(i) >= uint(len(code)) {
			return false
		}
		in := &code[i]
		i = in.jf
		switch in.op {
		case opByte:
			if uint64(in.at) >= uint64(len(pkt)) {
				return false
			}
			if uint32(pkt[in.at])&in.mask == in.k {
				i = in.jt
			}
		case opHalf:
			if uint64(in.at)+2 > uint64(len(pkt)) {
				return false
			}
			if uint32(binary.BigEndian.Uint16(pkt[in.at:]))&in.mask == in.k {
				i = in.jt
			}
		case opWord:
			if uint64(in.at)+4 > uint64(len(pkt)) {
				return false
			}
			if binary.BigEndian.Uint32(pkt[in.at:])&in.mask == in.k {
				i = in.jt
			}
		case opAccept:
			return true
		case opReject:
			return false
		default:
			result, ok := s.test(in)
			if !ok {
				return false
			}
			if result {
				i = in.jt
			}
		}
	}
}

// test evaluates the operations that run does not do itself.
func (s *state) test(in *inst) (result, ok bool) {
	var v uint32
	switch in.op {
	case opTest:
		v, ok = loadAt(s.pkt, uint64(in.at), in.size)
	case opIPv4:
		if uint64(in.base) >= uint64(len(s.pkt)) {
			return false, false
		}
		n := uint64(s.pkt[in.base]) & 0xf << 2
		v, ok = loadAt(s.pkt, uint64(in.at)+n, in.size)
	case opLen:
		v, ok = s.len, true
	default:
		return s.slow(in.slow)
	}
	return compare(in.cmp, v&in.mask, in.k), ok
}

// slow evaluates a step of any form.
func (s *state) slow(st *step) (result, ok bool) {
	switch st.op {
	case condSet:
		s.m[st.slot], ok = s.value(st.a)
		return true, ok
	case condChain:
		return s.chain(st.walk)
	}
	a, ok := s.value(st.a)
	if !ok {
		return false, false
	}
	b, ok := s.value(st.b)
	return compare(st.cmp, a, b), ok
}
