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

// Disassemble writes a program as tcpdump -d does.
func Disassemble(prog []Instruction) string {
	var b strings.Builder
	for i, in := range prog {
		fmt.Fprintf(&b, "(%03d) %s\n", i, in.text(i))
	}
	return b.String()
}

// text returns one instruction in the notation of tcpdump -d. i is its place in the program.
func (in Instruction) text(i int) string {
	name, operand := in.parts(i)
	if in.Op&7 == bpfJMP && in.Op&0xf0 != bpfJA {
		return fmt.Sprintf("%-8s %-16s jt %d\tjf %d", name, operand, i+1+int(in.Jt), i+1+int(in.Jf))
	}
	if operand == "" {
		return name
	}
	return fmt.Sprintf("%-8s %s", name, operand)
}

var (
	loadNames = map[uint16]string{bpfW: "ld", bpfH: "ldh", bpfB: "ldb"}
	aluNames  = map[uint16]string{
		bpfADD: "add", bpfSUB: "sub", bpfMUL: "mul", bpfDIV: "div", bpfOR: "or", bpfAND: "and", bpfLSH: "lsh",
		bpfRSH: "rsh", bpfNEG: "neg", bpfMOD: "mod", bpfXOR: "xor",
	}
	jumpNames = map[uint16]string{bpfJEQ: "jeq", bpfJGT: "jgt", bpfJGE: "jge", bpfJSET: "jset"}
)

// parts returns the name and the operand of an instruction.
func (in Instruction) parts(i int) (name, operand string) {
	switch in.Op & 7 {
	case bpfLD:
		return loadNames[in.Op&0x18], in.address()
	case bpfLDX:
		if in.Op&0xe0 == bpfMSH {
			return "ldxb", fmt.Sprintf("4*([%d]&0xf)", in.K)
		}
		return "ldx", in.address()
	case bpfST:
		return "st", fmt.Sprintf("M[%d]", in.K)
	case bpfSTX:
		return "stx", fmt.Sprintf("M[%d]", in.K)
	case bpfALU:
		if in.Op&0xf0 == bpfNEG {
			return "neg", ""
		}
		return aluNames[in.Op&0xf0], in.operand()
	case bpfJMP:
		if in.Op&0xf0 == bpfJA {
			return "ja", fmt.Sprint(i + 1 + int(int32(in.K)))
		}
		return jumpNames[in.Op&0xf0], in.operand()
	case bpfRET:
		return "ret", fmt.Sprintf("#%d", in.K)
	}
	if in.Op&0xf8 == bpfTXA {
		return "txa", ""
	}
	return "tax", ""
}

// operand returns x or a constant.
func (in Instruction) operand() string {
	if in.Op&bpfX != 0 {
		return "x"
	}
	return fmt.Sprintf("#%#x", in.K)
}

// address returns where a load takes its value from.
func (in Instruction) address() string {
	switch in.Op & 0xe0 {
	case bpfABS:
		return fmt.Sprintf("[%d]", in.K)
	case bpfIND:
		return fmt.Sprintf("[x + %d]", in.K)
	case bpfMEM:
		return fmt.Sprintf("M[%d]", in.K)
	case bpfLEN:
		return "#pktlen"
	}
	return fmt.Sprintf("#%#x", in.K)
}
