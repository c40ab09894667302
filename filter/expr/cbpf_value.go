package expr

var cmpCodes = [...]uint16{cmpEQ: bpfJEQ, cmpGT: bpfJGT, cmpGE: bpfJGE, cmpSet: bpfJSET}

func (a *assembler) test(op cmpOp, x, y *value, t, f label) {
	if y.op == valueConst {
		a.value(x)
		a.branch(cmpCodes[op], y.k, t, f)
		return
	}
	a.operands(x, y)
	a.branch(cmpCodes[op]|bpfX, 0, t, f)
}

// operands computes y into X and x into A.
func (a *assembler) operands(x, y *value) {
	a.value(y)
	c := a.cell()
	a.emit(bpfST, c)
	a.value(x)
	a.emit(bpfLDX|bpfMEM, c)
	a.free(c)
}

// cond writes the condition of a valueIf.
func (a *assembler) cond(c *cond, t, f label) {
	switch c.op {
	case condTrue:
		a.jump(t)
	case condFalse:
		a.jump(f)
	case condNot:
		a.cond(c.l, f, t)
	case condAnd:
		second := a.label()
		a.cond(c.l, second, f)
		a.place(second)
		a.cond(c.r, t, f)
	case condOr:
		second := a.label()
		a.cond(c.l, t, second)
		a.place(second)
		a.cond(c.r, t, f)
	default:
		a.test(c.cmp, c.a, c.b, t, f)
	}
}

var sizeCodes = map[uint8]uint16{1: bpfB, 2: bpfH, 4: bpfW}

// value computes v into A. X is lost.
func (a *assembler) value(v *value) {
	switch v.op {
	case valueConst:
		a.emit(bpfLD|bpfIMM, v.k)
	case valueLen:
		a.emit(bpfLD|bpfLEN, 0)
	case valueSlot:
		a.emit(bpfLD|bpfMEM, a.cellOf(v.slot))
	case valueLoad:
		a.load(v)
	case valueAux:
		a.emit(bpfLD|bpfABS|sizeCodes[v.size], v.k)
	case valueIf:
		x, y, end := a.label(), a.label(), a.label()
		a.cond(v.c, x, y)
		a.place(x)
		a.value(v.x)
		a.jump(end)
		a.place(y)
		a.value(v.y)
		a.place(end)
	case valueNeg:
		a.value(v.x)
		a.emit(bpfALU|bpfNEG, 0)
	default:
		a.arithmetic(v)
	}
}

// maxOffset is the greatest offset that Linux takes for one in the packet; beyond it are metadata.
const maxOffset = 1<<31 - 1

func (a *assembler) load(v *value) {
	size := sizeCodes[v.size]
	if v.k > maxOffset {
		a.jump(labelReject)
		return
	}
	if v.x == nil {
		a.emit(bpfLD|bpfABS|size, v.k)
		return
	}
	if base, ok := ipv4Len4(v.x); ok {
		a.emit(bpfLDX|bpfB|bpfMSH, base)
	} else {
		a.value(v.x)
		inRange := a.label()
		a.branch(bpfJGT, maxOffset-v.k, labelReject, inRange)
		a.place(inRange)
		a.emit(bpfMISC|bpfTAX, 0)
	}
	a.emit(bpfLD|bpfIND|size, v.k)
}

var aluCodes = map[valueOp]uint16{
	valueAdd: bpfADD, valueSub: bpfSUB, valueMul: bpfMUL, valueDiv: bpfDIV, valueMod: bpfMOD, valueAnd: bpfAND,
	valueOr: bpfOR, valueXor: bpfXOR, valueShl: bpfLSH, valueShr: bpfRSH,
}

func (a *assembler) arithmetic(v *value) {
	code := bpfALU | aluCodes[v.op]
	if v.y.op == valueConst {
		a.value(v.x)
		a.emit(code, v.y.k)
		return
	}
	if v.op != valueShl && v.op != valueShr {
		a.operands(v.x, v.y)
		a.emit(code|bpfX, 0)
		return
	}
	// Processors take a shift modulo 32, interpreters differ: shifts of 32 and more give 0 here.
	a.value(v.x)
	c := a.cell()
	a.emit(bpfST, c)
	a.value(v.y)
	far, near, end := a.label(), a.label(), a.label()
	a.branch(bpfJGT, 31, far, near)
	a.place(far)
	a.emit(bpfLD|bpfIMM, 0)
	a.jump(end)
	a.place(near)
	a.emit(bpfMISC|bpfTAX, 0)
	a.emit(bpfLD|bpfMEM, c)
	a.emit(code|bpfX, 0)
	a.place(end)
	a.free(c)
}

// chain writes the walk along headers, with the protocol in A and the length so far in X.
func (a *assembler) chain(w *chain, t, f label) {
	keep := a.cell()
	if w.v6 {
		a.emit(bpfLD|bpfABS|bpfB, w.base+ipv6Next)
		a.emit(bpfLDX|bpfIMM, ipv6HeaderLen)
	} else {
		a.emit(bpfLD|bpfABS|bpfB, w.base+ipv4Proto)
		a.emit(bpfLDX|bpfB|bpfMSH, w.base)
	}
	for range w.limit() {
		a.oneHeader(w, keep, t, f)
	}
	a.branch(bpfJEQ, w.proto, t, f)
	a.free(keep)
}

// oneHeader writes one step of the walk. Its conditional jumps out of the walk go by way of two jumps
// at the end of the step, which are always near.
func (a *assembler) oneHeader(w *chain, keep uint32, t, f label) {
	found, missed, next := a.label(), a.label(), a.label()
	extension, auth := a.label(), a.label()
	is := func(proto uint32, t label) {
		no := a.label()
		a.branch(bpfJEQ, proto, t, no)
		a.place(no)
	}
	is(w.proto, found)
	is(ipNoNext, missed)
	if w.v6 {
		for _, p := range []uint32{ipHopByHop, ipDestOpts, ipRouting, ipFragment} {
			is(p, extension)
		}
	}
	a.branch(bpfJEQ, ipAH, auth, missed)
	if w.v6 {
		a.place(extension)
		a.headerLen(w, keep, 1, 8, true)
		a.jump(next)
	}
	a.place(auth)
	a.headerLen(w, keep, 2, 4, false)
	a.jump(next)
	a.place(found)
	a.jump(t)
	a.place(missed)
	a.jump(f)
	a.place(next)
}

// headerLen loads the next protocol into A and moves X by (length field + add) * unit, or to that where
// the move is not relative.
func (a *assembler) headerLen(w *chain, keep, add, unit uint32, relative bool) {
	a.emit(bpfLD|bpfIND|bpfB, w.base)
	a.emit(bpfST, keep)
	a.emit(bpfLD|bpfIND|bpfB, w.base+1)
	a.emit(bpfALU|bpfADD, add)
	a.emit(bpfALU|bpfMUL, unit)
	if relative {
		a.emit(bpfALU|bpfADD|bpfX, 0)
	}
	a.emit(bpfMISC|bpfTAX, 0)
	a.emit(bpfLD|bpfMEM, keep)
}
