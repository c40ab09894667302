package expr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// EBPF is one instruction of eBPF (RFC 9669 3.1).
type EBPF struct {
	Op       uint8
	Dst, Src uint8 // registers
	Off      int16
	Imm      int32
}

// ErrNotXDP is returned for filters that XDP cannot run: it sees Ethernet frames without metadata.
var ErrNotXDP = errors.New("expr: XDP runs filters for EN10MB only, without metadata of the kernel")

// XDP returns f as the instructions of an XDP program. It returns the first code for frames that match
// and the second for others, as XDP_PASS is 2 and XDP_DROP 1. Each load is preceded by a check of its
// bounds that the kernel's verifier follows. The program sees the first buffer of a frame only.
//
// Marshal makes the bytes that a loader of programs takes; the program calls no helper and has no maps.
func (f *Filter) XDP(match, other int32) ([]EBPF, error) {
	if f.link != LinkEthernet {
		return nil, ErrNotXDP
	}
	prog, err := f.assemble()
	if err != nil {
		return nil, err
	}
	t := translator{prog: prog, match: match, other: other, start: make([]int, len(prog))}
	return t.translate()
}

// Marshal returns instructions in the byte order of the processor.
func Marshal(prog []EBPF) []byte {
	b := make([]byte, 0, 8*len(prog))
	for _, in := range prog {
		regs := in.Src<<4 | in.Dst
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // big-endian: the registers are swapped too
			regs = in.Dst<<4 | in.Src
		}
		b = append(b, in.Op, regs)
		b = binary.NativeEndian.AppendUint16(b, uint16(in.Off))
		b = binary.NativeEndian.AppendUint32(b, uint32(in.Imm))
	}
	return b
}

// Registers of the programs. The verifier knows r6 and r9 as the bounds of the packet.
const (
	regA     = 0
	regCtx   = 1
	regTemp  = 2
	regTemp2 = 3
	regTemp3 = 4
	regData  = 6
	regX     = 7
	regEnd   = 9
	regFrame = 10
)

// Operation codes of eBPF (RFC 9669 4, 5). The codes of arithmetic and of most jumps are those of
// classic BPF.
const (
	ebpfLDX   = 0x61 // with size bits: load
	ebpfSTX   = 0x63
	ebpfALU   = 0x04 // 32 bits, which clears the others
	ebpfALU64 = 0x07
	ebpfJMP   = 0x05
	ebpfJMP32 = 0x06
	ebpfMov   = 0xb0
	ebpfEnd   = 0xd0 // byte order
	ebpfJgt   = 0x20
	ebpfExit  = 0x95
	ebpfReg   = 0x08 // the second operand is a register
)

// maxXDPOffset bounds offsets in the packet: beyond it the verifier does not follow.
const maxXDPOffset = 0xffff

// translator turns classic BPF into eBPF, instruction by instruction.
type translator struct {
	prog         []Instruction
	match, other int32
	out          []EBPF
	start        []int // of each classic instruction in out
	jumps        []jump
	err          error
}

// jump is a jump in out whose distance is not known yet.
type jump struct {
	at     int
	target int // a classic instruction, or toOther
}

const toOther = -1

func (t *translator) translate() ([]EBPF, error) {
	t.emit(ebpfLDX, regData, regCtx, 0, 0) // xdp_md.data
	t.emit(ebpfLDX, regEnd, regCtx, 4, 0)  // xdp_md.data_end
	t.emit(ebpfALU|ebpfMov, regA, 0, 0, 0)
	t.emit(ebpfALU|ebpfMov, regX, 0, 0, 0)
	reached := t.reach()
	for i := range t.prog {
		if reached[i] {
			t.start[i] = len(t.out)
			t.instruction(i, nextReached(reached, i))
		}
	}
	other := len(t.out)
	if slices.ContainsFunc(t.jumps, func(j jump) bool { return j.target == toOther }) {
		t.emit(ebpfALU|ebpfMov, regA, 0, 0, t.other)
		t.emit(ebpfExit, 0, 0, 0, 0)
	}
	for _, j := range t.jumps {
		target := other
		if j.target != toOther {
			target = t.start[j.target]
		}
		distance := target - j.at - 1
		if distance > math.MaxInt16 {
			return nil, ErrTooLong
		}
		t.out[j.at].Off = int16(distance)
	}
	return t.out, t.err
}

func (t *translator) emit(op, dst, src uint8, off int16, imm int32) {
	t.out = append(t.out, EBPF{op, dst, src, off, imm})
}

// jumpTo emits a jump to a classic instruction or to toOther.
func (t *translator) jumpTo(target int, op, dst, src uint8, imm int32) {
	t.jumps = append(t.jumps, jump{len(t.out), target})
	t.emit(op, dst, src, 0, imm)
}

// beyond reports a load that no frame reaches, which rejects.
func beyond(in Instruction) bool {
	return in.Op&7 == bpfLD && in.Op&0xe0 == bpfABS && uint64(in.K)+uint64(loadSize(in)) > maxXDPOffset
}

func loadSize(in Instruction) int32 {
	switch in.Op & 0x18 {
	case bpfB:
		return 1
	case bpfH:
		return 2
	}
	return 4
}

// reach marks the instructions that can be reached: the verifier refuses programs with others.
func (t *translator) reach() []bool {
	reached := make([]bool, len(t.prog))
	reached[0] = true
	for i, in := range t.prog {
		switch {
		case !reached[i] || in.Op&7 == bpfRET || beyond(in):
		case in.Op&7 != bpfJMP:
			reached[i+1] = true
		case in.Op&0xf0 == bpfJA:
			reached[i+1+int(in.K)] = true
		default:
			reached[i+1+int(in.Jt)], reached[i+1+int(in.Jf)] = true, true
		}
	}
	return reached
}

// nextReached returns the instruction that is emitted after i.
func nextReached(reached []bool, i int) int {
	for i++; i < len(reached) && !reached[i]; i++ {
	}
	return i
}

// instruction translates one instruction; next is the one emitted after it.
func (t *translator) instruction(i, next int) {
	in := t.prog[i]
	switch in.Op & 7 {
	case bpfLD:
		t.load(in)
	case bpfLDX:
		t.loadX(in)
	case bpfST:
		t.emit(ebpfSTX, regFrame, regA, cellAt(in.K), 0)
	case bpfSTX:
		t.emit(ebpfSTX, regFrame, regX, cellAt(in.K), 0)
	case bpfALU:
		t.alu(in)
	case bpfJMP:
		t.jump(i, next)
	case bpfRET:
		code := t.match
		if in.K == 0 {
			code = t.other
		}
		t.emit(ebpfALU|ebpfMov, regA, 0, 0, code)
		t.emit(ebpfExit, 0, 0, 0, 0)
	case bpfMISC:
		dst, src := uint8(regX), uint8(regA)
		if in.Op&0xf8 == bpfTXA {
			dst, src = src, dst
		}
		t.emit(ebpfALU|ebpfMov|ebpfReg, dst, src, 0, 0)
	}
}

// cellAt returns the place of a cell of scratch memory below the frame pointer.
func cellAt(cell uint32) int16 { return -4 * int16(cell+1) }

func (t *translator) load(in Instruction) {
	switch in.Op & 0xe0 {
	case bpfIMM:
		t.emit(ebpfALU|ebpfMov, regA, 0, 0, int32(in.K))
	case bpfMEM:
		t.emit(ebpfLDX, regA, regFrame, cellAt(in.K), 0)
	case bpfLEN:
		t.emit(ebpfALU64|ebpfMov|ebpfReg, regA, regEnd, 0, 0)
		t.emit(ebpfALU64|bpfSUB|ebpfReg, regA, regData, 0, 0)
	case bpfABS:
		switch {
		case in.K >= auxBase:
			t.err = ErrNotXDP
		case beyond(in):
			t.jumpTo(toOther, ebpfJMP, 0, 0, 0)
		default:
			t.fixed(regA, in)
		}
	case bpfIND:
		t.indirect(in)
	}
}

// fixed loads from a constant offset.
//
//	r2 = data + k + size
//	if r2 > data_end goto other
//	dst = *(r2 - size)
func (t *translator) fixed(dst uint8, in Instruction) {
	size := loadSize(in)
	t.emit(ebpfALU64|ebpfMov|ebpfReg, regTemp, regData, 0, 0)
	t.emit(ebpfALU64|bpfADD, regTemp, 0, 0, int32(in.K)+size)
	t.jumpTo(toOther, ebpfJMP|ebpfJgt|ebpfReg, regTemp, regEnd, 0)
	t.loadBig(dst, regTemp, int16(-size), size)
}

// indirect loads from X and a constant.
//
//	r2 = X + k
//	if r2 > 0xffff - size goto other    the verifier has to know a bound
//	r3 = data + r2
//	r4 = r3 + size
//	if r4 > data_end goto other
//	A = *r3
func (t *translator) indirect(in Instruction) {
	size := loadSize(in)
	if in.K > maxXDPOffset {
		// No frame is as long. X stays unknown to the verifier: the jump is a conditional one that is always
		// taken, since what follows must be reachable.
		t.emit(ebpfALU|ebpfMov, regTemp, 0, 0, 0)
		t.jumpTo(toOther, ebpfJMP|bpfJGE, regTemp, 0, 0)
		return
	}
	t.emit(ebpfALU64|ebpfMov|ebpfReg, regTemp, regX, 0, 0)
	t.emit(ebpfALU64|bpfADD, regTemp, 0, 0, int32(in.K))
	t.jumpTo(toOther, ebpfJMP|ebpfJgt, regTemp, 0, maxXDPOffset-size)
	t.emit(ebpfALU64|ebpfMov|ebpfReg, regTemp2, regData, 0, 0)
	t.emit(ebpfALU64|bpfADD|ebpfReg, regTemp2, regTemp, 0, 0)
	t.emit(ebpfALU64|ebpfMov|ebpfReg, regTemp3, regTemp2, 0, 0)
	t.emit(ebpfALU64|bpfADD, regTemp3, 0, 0, size)
	t.jumpTo(toOther, ebpfJMP|ebpfJgt|ebpfReg, regTemp3, regEnd, 0)
	t.loadBig(regA, regTemp2, 0, size)
}

// loadBig loads a big-endian number.
func (t *translator) loadBig(dst, src uint8, off int16, size int32) {
	codes := map[int32]uint8{1: bpfB, 2: bpfH, 4: bpfW}
	t.emit(ebpfLDX|codes[size], dst, src, off, 0)
	if size > 1 {
		t.emit(ebpfALU|ebpfEnd|ebpfReg, dst, 0, 0, 8*size)
	}
}

func (t *translator) loadX(in Instruction) {
	switch in.Op & 0xe0 {
	case bpfIMM:
		t.emit(ebpfALU|ebpfMov, regX, 0, 0, int32(in.K))
	case bpfMEM:
		t.emit(ebpfLDX, regX, regFrame, cellAt(in.K), 0)
	case bpfMSH:
		if in.K >= maxXDPOffset {
			t.emit(ebpfALU|ebpfMov, regTemp, 0, 0, 0)
			t.jumpTo(toOther, ebpfJMP|bpfJGE, regTemp, 0, 0)
			return
		}
		t.fixed(regX, Instruction{Op: bpfLD | bpfABS | bpfB, K: in.K})
		t.emit(ebpfALU|bpfAND, regX, 0, 0, 0xf)
		t.emit(ebpfALU|bpfLSH, regX, 0, 0, 2)
	}
}

func (t *translator) alu(in Instruction) {
	code := uint8(in.Op & 0xf0)
	switch {
	case code == bpfNEG:
		t.emit(ebpfALU|bpfNEG, regA, 0, 0, 0)
	case in.Op&bpfX == 0:
		t.emit(ebpfALU|code, regA, 0, 0, int32(in.K))
	default:
		if code == bpfDIV || code == bpfMOD { // eBPF has no error for a division by 0, classic BPF rejects
			t.jumpTo(toOther, ebpfJMP32|bpfJEQ, regX, 0, 0)
		}
		t.emit(ebpfALU|code|ebpfReg, regA, regX, 0, 0)
	}
}

// jump translates jumps: a conditional one to the first target, and another to the second unless that
// follows.
func (t *translator) jump(i, next int) {
	in := t.prog[i]
	if in.Op&0xf0 == bpfJA {
		if target := i + 1 + int(in.K); target != next {
			t.jumpTo(target, ebpfJMP, 0, 0, 0)
		}
		return
	}
	yes, no := i+1+int(in.Jt), i+1+int(in.Jf)
	if yes != no {
		t.jumpTo(yes, ebpfJMP32|uint8(in.Op&0xf8), regA, regX*uint8(in.Op&bpfX>>3), int32(in.K))
	}
	if no != next {
		t.jumpTo(no, ebpfJMP, 0, 0, 0)
	}
}

// DisassembleXDP writes instructions one a line, in the notation of bpftool.
func DisassembleXDP(prog []EBPF) string {
	var b strings.Builder
	for i, in := range prog {
		fmt.Fprintf(&b, "%4d: %s\n", i, in.text(i))
	}
	return b.String()
}

var ebpfOperators = map[uint8]string{
	bpfADD: "+=", bpfSUB: "-=", bpfMUL: "*=", bpfDIV: "/=", bpfOR: "|=", bpfAND: "&=", bpfLSH: "<<=", bpfRSH: ">>=",
	bpfMOD: "%=", bpfXOR: "^=", ebpfMov: "=",
}

var ebpfComparisons = map[uint8]string{bpfJEQ: "==", bpfJGT: ">", bpfJGE: ">=", bpfJSET: "&"}

// text returns one instruction; w registers are the low 32 bits.
func (in EBPF) text(i int) string {
	class, code := in.Op&7, in.Op&0xf0
	reg := "w"
	if class == ebpfALU64 || class == ebpfJMP {
		reg = "r"
	}
	operand := fmt.Sprintf("%d", in.Imm)
	if in.Op&ebpfReg != 0 {
		operand = fmt.Sprintf("%s%d", reg, in.Src)
	}
	sizes := map[uint8]string{bpfB: "u8", bpfH: "u16", bpfW: "u32"}
	switch {
	case in.Op == ebpfExit:
		return "exit"
	case class == ebpfLDX&7:
		return fmt.Sprintf("r%d = *(%s *)(r%d %+d)", in.Dst, sizes[in.Op&0x18], in.Src, in.Off)
	case class == ebpfSTX&7:
		return fmt.Sprintf("*(u32 *)(r%d %+d) = r%d", in.Dst, in.Off, in.Src)
	case class == ebpfJMP && code == bpfJA:
		return fmt.Sprintf("goto %d", i+1+int(in.Off))
	case class == ebpfJMP || class == ebpfJMP32:
		return fmt.Sprintf("if %s%d %s %s goto %d", reg, in.Dst, ebpfComparisons[code], operand, i+1+int(in.Off))
	case code == ebpfEnd:
		return fmt.Sprintf("r%d = be%d r%d", in.Dst, in.Imm, in.Dst)
	case code == bpfNEG:
		return fmt.Sprintf("w%d = -w%d", in.Dst, in.Dst)
	}
	return fmt.Sprintf("%s%d %s %s", reg, in.Dst, ebpfOperators[code], operand)
}
