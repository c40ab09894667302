package kernelflows

import (
	"fmt"
	"strconv"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The registers of the classic machine, and the context, in which the loads from a packet look for it.
const (
	context = asm.R6
	regA    = asm.R7
	regX    = asm.R8
)

// translate returns a classic BPF program as eBPF, because only an eBPF program can follow another. It knows the
// instructions that pmd/afpacket uses. Loads beyond the packet end with 0 in both machines.
func translate(prog []unix.SockFilter) (asm.Instructions, error) {
	out := asm.Instructions{
		asm.Mov.Reg(context, asm.R1).WithSymbol("rules"), asm.Mov.Imm(regA, 0), asm.Mov.Imm(regX, 0),
	}
	for i := range unix.BPF_MEMWORDS {
		out = append(out, asm.StoreImm(asm.RFP, word(uint32(i)), 0, asm.Word))
	}
	for i, in := range prog {
		code, err := translateOne(in, i)
		if err != nil {
			return nil, fmt.Errorf("instruction %d: %w", i, err)
		}
		code[0] = code[0].WithSymbol(label(i))
		out = append(out, code...)
	}
	return out, nil
}

// word returns the place of M[i] on the stack.
func word(i uint32) int16 { return -4 * int16(i+1) }

func label(i int) string { return "i" + strconv.Itoa(i) }

// translateOne translates the instruction at place i.
func translateOne(in unix.SockFilter, i int) (asm.Instructions, error) {
	k := int32(in.K)
	switch in.Code & 7 {
	case unix.BPF_LD, unix.BPF_LDX:
		return load(in)
	case unix.BPF_ST:
		return asm.Instructions{asm.StoreMem(asm.RFP, word(in.K), regA, asm.Word)}, nil
	case unix.BPF_ALU:
		return arithmetic(in)
	case unix.BPF_JMP:
		return jump(in, i)
	case unix.BPF_RET:
		return asm.Instructions{asm.Mov.Imm32(asm.R0, k), asm.Return()}, nil
	case unix.BPF_MISC:
		if in.Code&0xf8 == unix.BPF_TXA {
			return asm.Instructions{asm.Mov.Reg32(regA, regX)}, nil
		}
		return asm.Instructions{asm.Mov.Reg32(regX, regA)}, nil
	}
	return nil, unknown(in)
}

func unknown(in unix.SockFilter) error { return fmt.Errorf("code %#x is not translated", in.Code) }

// sizes are the sizes of loads.
var sizes = map[uint16]asm.Size{unix.BPF_W: asm.Word, unix.BPF_H: asm.Half, unix.BPF_B: asm.Byte}

func load(in unix.SockFilter) (asm.Instructions, error) {
	k, to := int32(in.K), regA
	if in.Code&7 == unix.BPF_LDX {
		to = regX
	}
	size := sizes[in.Code&0x18]
	switch in.Code & 0xe0 {
	case unix.BPF_IMM:
		return asm.Instructions{asm.Mov.Imm32(to, k)}, nil
	case unix.BPF_MEM:
		return asm.Instructions{asm.LoadMem(to, asm.RFP, word(in.K), asm.Word)}, nil
	case unix.BPF_ABS:
		return asm.Instructions{asm.LoadAbs(k, size), asm.Mov.Reg32(to, asm.R0)}, nil
	case unix.BPF_IND:
		return asm.Instructions{asm.LoadInd(asm.R0, regX, k, size), asm.Mov.Reg32(to, asm.R0)}, nil
	case unix.BPF_MSH: // the length of an IPv4 header
		return asm.Instructions{
			asm.LoadAbs(k, asm.Byte), asm.And.Imm32(asm.R0, 0xf), asm.LSh.Imm32(asm.R0, 2), asm.Mov.Reg32(regX, asm.R0),
		}, nil
	}
	return nil, unknown(in)
}

func arithmetic(in unix.SockFilter) (asm.Instructions, error) {
	ops := map[uint16]asm.ALUOp{unix.BPF_ADD: asm.Add, unix.BPF_AND: asm.And, unix.BPF_LSH: asm.LSh}
	op, ok := ops[in.Code&0xf0]
	switch {
	case !ok:
		return nil, unknown(in)
	case in.Code&unix.BPF_X != 0:
		return asm.Instructions{op.Reg32(regA, regX)}, nil
	}
	return asm.Instructions{op.Imm32(regA, int32(in.K))}, nil
}

// jump translates the jump at place i. Distances of classic BPF count from the next instruction.
func jump(in unix.SockFilter, i int) (asm.Instructions, error) {
	if in.Code&0xf0 == unix.BPF_JA {
		return asm.Instructions{asm.Ja.Label(label(i + 1 + int(in.K)))}, nil
	}
	ops := map[uint16]asm.JumpOp{unix.BPF_JEQ: asm.JEq, unix.BPF_JGE: asm.JGE, unix.BPF_JGT: asm.JGT}
	op, ok := ops[in.Code&0xf0]
	if !ok || in.Code&unix.BPF_X != 0 {
		return nil, unknown(in)
	}
	return asm.Instructions{
		op.Imm32(regA, int32(in.K), label(i+1+int(in.Jt))), asm.Ja.Label(label(i + 1 + int(in.Jf))),
	}, nil
}
