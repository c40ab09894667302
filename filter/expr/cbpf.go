package expr

import (
	"errors"
	"fmt"
	"strings"
)

// Instruction is one instruction of classic BPF, as struct sock_filter of Linux and bpf.RawInstruction
// of golang.org/x/net/bpf have it.
type Instruction struct {
	Op     uint16
	Jt, Jf uint8
	K      uint32
}

// ErrTooLong is returned for a program that Linux would refuse for its length.
var ErrTooLong = errors.New("expr: the program is longer than 4096 instructions")

// ErrTooDeep is returned for arithmetic that needs more scratch memory than classic BPF has.
var ErrTooDeep = errors.New("expr: the expression needs too many intermediate values for classic BPF")

// maxInstructions is BPF_MAXINSNS.
const maxInstructions = 4096

// Operation codes of classic BPF (linux/bpf_common.h), as sums of class, size, mode and source.
const (
	bpfLD, bpfLDX, bpfST, bpfSTX, bpfALU, bpfJMP, bpfRET, bpfMISC = 0, 1, 2, 3, 4, 5, 6, 7

	bpfW, bpfH, bpfB                               = 0x00, 0x08, 0x10
	bpfIMM, bpfABS, bpfIND, bpfMEM, bpfLEN, bpfMSH = 0x00, 0x20, 0x40, 0x60, 0x80, 0xa0
	bpfADD, bpfSUB, bpfMUL, bpfDIV, bpfOR, bpfAND  = 0x00, 0x10, 0x20, 0x30, 0x40, 0x50
	bpfLSH, bpfRSH, bpfNEG, bpfMOD, bpfXOR         = 0x60, 0x70, 0x80, 0x90, 0xa0
	bpfJA, bpfJEQ, bpfJGT, bpfJGE, bpfJSET         = 0x00, 0x10, 0x20, 0x30, 0x40
	bpfX                                           = 0x08
	bpfTAX, bpfTXA                                 = 0x00, 0x80
)

// CBPF returns f as a classic BPF program. It returns the snapshot length for a packet that matches and
// 0 for others, and has no backward jumps, so that Linux takes it for sockets.
func (f *Filter) CBPF() ([]Instruction, error) {
	prog, err := f.assemble()
	if err == nil && len(prog) > maxInstructions {
		return nil, ErrTooLong
	}
	return prog, err
}

// assemble returns the program, of any length.
func (f *Filter) assemble() ([]Instruction, error) {
	a := assembler{}
	g := newGraph(f.tree)
	a.reserve(g)
	a.graph(g)
	a.place(labelAccept)
	a.emit(bpfRET, f.snapLen)
	a.place(labelReject)
	a.emit(bpfRET, 0)
	if a.err != nil {
		return nil, a.err
	}
	return a.link(), nil
}

// label is the target of a jump. Labels from firstLabel on are given out by assembler.label.
type label int

const (
	labelAccept label = iota
	labelReject
	firstLabel
)

// line is an instruction whose targets are labels.
type line struct {
	op     uint16
	k      uint32
	jump   bool // conditional: to t or f; op bpfJMP|bpfJA goes to t
	t, f   label
	labels []label // that stand before it
}

// assembler writes code for steps of a graph.
type assembler struct {
	lines   []line
	pending []label // labels for the next line
	next    label
	busy    [slots]bool // scratch memory in use
	tunnel  int         // the cell of tunnelSlot
	err     error
}

func (a *assembler) label() label {
	a.next = max(a.next, firstLabel) + 1
	return a.next - 1
}

func (a *assembler) place(l label) { a.pending = append(a.pending, l) }

func (a *assembler) add(l line) {
	l.labels, a.pending = a.pending, nil
	a.lines = append(a.lines, l)
}

func (a *assembler) emit(op uint16, k uint32) { a.add(line{op: op, k: k}) }

// branch goes to t if the comparison of A with k or X is true, to f otherwise.
func (a *assembler) branch(op uint16, k uint32, t, f label) {
	a.add(line{op: bpfJMP | op, k: k, jump: true, t: t, f: f})
}

func (a *assembler) jump(t label) { a.add(line{op: bpfJMP | bpfJA, jump: true, t: t, f: t}) }

// here returns a label for the next line.
func (a *assembler) here() label {
	l := a.label()
	a.place(l)
	return l
}

// cell takes a cell of scratch memory.
func (a *assembler) cell() uint32 {
	for i := range a.busy {
		if !a.busy[i] {
			a.busy[i] = true
			return uint32(i)
		}
	}
	a.err = ErrTooDeep
	return 0
}

func (a *assembler) free(cell uint32) { a.busy[cell] = false }

// reserve keeps the cells of the slots that the graph uses.
func (a *assembler) reserve(g *graph) {
	tunnel := false
	for i := range g.steps {
		if s := &g.steps[i]; s.op == condSet {
			if s.slot == tunnelSlot {
				tunnel = true
			} else {
				a.busy[s.slot] = true
			}
		}
		for _, n := range slotsOf(g.steps[i].a, g.steps[i].b) {
			if n != tunnelSlot {
				a.busy[n] = true
			}
		}
	}
	if tunnel {
		a.tunnel = int(a.cell())
	}
}

// slotsOf returns the slots that values read.
func slotsOf(vs ...*value) []int {
	var all []int
	for _, v := range vs {
		if v == nil {
			continue
		}
		if v.op == valueSlot {
			all = append(all, v.slot)
		}
		all = append(all, slotsOf(v.x, v.y)...)
		all = append(all, slotsOfCond(v.c)...)
	}
	return all
}

func slotsOfCond(c *cond) []int {
	if c == nil {
		return nil
	}
	return append(append(slotsOf(c.a, c.b), slotsOfCond(c.l)...), slotsOfCond(c.r)...)
}

func (a *assembler) cellOf(slot int) uint32 {
	if slot == tunnelSlot {
		return uint32(a.tunnel)
	}
	return uint32(slot)
}

// graph writes all steps, the entry first.
func (a *assembler) graph(g *graph) {
	labels := make([]label, len(g.steps))
	for i := range labels {
		labels[i] = a.label()
	}
	target := func(i int) label {
		switch i {
		case accept:
			return labelAccept
		case reject:
			return labelReject
		}
		return labels[i]
	}
	if g.entry < 0 {
		a.jump(target(g.entry))
		return
	}
	a.clearSlots(g)
	used := g.used()
	for i := g.entry; i >= 0; i-- {
		if used[i] {
			a.place(labels[i])
			a.step(&g.steps[i], target(g.steps[i].jt), target(g.steps[i].jf))
		}
	}
}

// clearSlots stores 0 in the slots that are read: Linux refuses programs that read cells which a path
// has not written.
func (a *assembler) clearSlots(g *graph) {
	read := [slots + 1]bool{}
	used := g.used()
	for i := range g.steps {
		if used[i] {
			for _, n := range slotsOf(g.steps[i].a, g.steps[i].b) {
				read[n] = true
			}
		}
	}
	first := true
	for n, r := range read {
		if !r {
			continue
		}
		if first {
			a.emit(bpfLD|bpfIMM, 0)
			first = false
		}
		a.emit(bpfST, a.cellOf(n))
	}
}

func (a *assembler) step(s *step, t, f label) {
	switch s.op {
	case condSet:
		a.value(s.a)
		a.emit(bpfST, a.cellOf(s.slot))
		a.jump(t)
	case condChain:
		a.chain(s.walk, t, f)
	default:
		a.test(s.cmp, s.a, s.b, t, f)
	}
}

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

// link resolves labels. Conditional jumps reach 255 instructions; farther ones go by way of an
// unconditional jump.
func (a *assembler) link() []Instruction {
	a.dropJumps()
	long := make([]bool, len(a.lines))
	at := make(map[label]int, a.next)
	for changed := true; changed; {
		changed = false
		n := 0
		for i := range a.lines {
			for _, l := range a.lines[i].labels {
				at[l] = n
			}
			n += lengthOf(&a.lines[i], long[i])
		}
		n = 0
		for i := range a.lines {
			l := &a.lines[i]
			if l.jump && l.op != bpfJMP|bpfJA && !long[i] && (at[l.t]-n-1 > 255 || at[l.f]-n-1 > 255) {
				long[i], changed = true, true
			}
			n += lengthOf(l, long[i])
		}
	}
	return a.output(long, at)
}

// lengthOf returns how many instructions a line becomes.
func lengthOf(l *line, long bool) int {
	if long {
		return 3
	}
	return 1
}

// dropJumps removes jumps to the line behind them.
func (a *assembler) dropJumps() {
	kept := a.lines[:0]
	var carry []label
	for i := range a.lines {
		l := a.lines[i]
		l.labels = append(carry, l.labels...)
		carry = nil
		if l.op == bpfJMP|bpfJA && l.jump && i+1 < len(a.lines) && hasLabel(a.lines[i+1].labels, l.t) {
			carry = l.labels
			continue
		}
		kept = append(kept, l)
	}
	a.lines = kept
}

func hasLabel(ls []label, l label) bool {
	for _, x := range ls {
		if x == l {
			return true
		}
	}
	return false
}

func (a *assembler) output(long []bool, at map[label]int) []Instruction {
	out := make([]Instruction, 0, len(a.lines))
	for i := range a.lines {
		l := &a.lines[i]
		n := len(out)
		switch {
		case !l.jump:
			out = append(out, Instruction{Op: l.op, K: l.k})
		case l.op == bpfJMP|bpfJA:
			out = append(out, Instruction{Op: l.op, K: uint32(at[l.t] - n - 1)})
		case long[i]:
			out = append(out,
				Instruction{Op: l.op, Jt: 0, Jf: 1, K: l.k},
				Instruction{Op: bpfJMP | bpfJA, K: uint32(at[l.t] - n - 2)},
				Instruction{Op: bpfJMP | bpfJA, K: uint32(at[l.f] - n - 3)})
		default:
			out = append(out, Instruction{Op: l.op, Jt: uint8(at[l.t] - n - 1), Jf: uint8(at[l.f] - n - 1), K: l.k})
		}
	}
	return out
}

// Disassemble writes a program as tcpdump -d does.
func Disassemble(prog []Instruction) string {
	var b strings.Builder
	for i, in := range prog {
		fmt.Fprintf(&b, "(%03d) %s\n", i, in.text(i))
	}
	return b.String()
}
