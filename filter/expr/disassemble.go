package expr

import (
	"fmt"
	"strings"
)

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
