package avx512

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"unsafe"
)

// machine is the state of the CPU.
type machine struct {
	r         [16]uint64
	z         [32]vector
	k         [8]uint8
	zero      bool
	arguments []uint64
}

type vector [8]uint64

const mask52 = 1<<52 - 1

var registers = map[string]int{
	"AX": 0, "BX": 1, "CX": 2, "DX": 3, "SI": 4, "DI": 5, "R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R15": 15,
}

var errUnknown = errors.New("the instruction is not known here")

// kind is that of an operand.
type kind uint8

const (
	general kind = iota
	zmm
	mask
	memory
	constant
	argument
)

// operand is one of an instruction. A memory operand has n for its base, and index -1 for none.
type operand struct {
	kind     kind
	n, index int
	scale    uint64
	value    uint64 // of a constant; the displacement
}

var memoryForm = regexp.MustCompile(`^(-?\d+)?\((\w+)\)(?:\((\w+)\*(\d)\))?$`)

func operandOf(text string) (operand, error) {
	if n, found := registers[text]; found {
		return operand{kind: general, n: n}, nil
	}
	if number, found := strings.CutPrefix(text, "$"); found {
		v, err := strconv.ParseInt(number, 0, 64)
		return operand{kind: constant, value: uint64(v)}, err
	}
	if name, found := strings.CutSuffix(text, "(FP)"); found {
		at := 0
		if _, offset, found := strings.Cut(name, "+"); found {
			at, _ = strconv.Atoi(offset)
		}
		return operand{kind: argument, n: at / 8}, nil
	}
	if m := memoryForm.FindStringSubmatch(text); m != nil {
		o := operand{kind: memory, index: -1}
		displacement, _ := strconv.ParseInt("0"+m[1], 10, 64)
		if strings.HasPrefix(m[1], "-") {
			displacement, _ = strconv.ParseInt(m[1], 10, 64)
		}
		o.value = uint64(displacement)
		base, found := registers[m[2]]
		o.n = base
		if m[3] != "" {
			o.scale, _ = strconv.ParseUint(m[4], 10, 64)
			o.index, _ = strconv.Atoi(strings.TrimPrefix(m[3], "Z"))
			if n, general := registers[m[3]]; general {
				o.index = n
			}
		}
		if found {
			return o, nil
		}
	}
	for prefix, k := range map[string]kind{"Z": zmm, "K": mask} {
		if number, found := strings.CutPrefix(text, prefix); found {
			if n, err := strconv.Atoi(number); err == nil && n < 32 {
				return operand{kind: k, n: n}, nil
			}
		}
	}
	return operand{}, fmt.Errorf("the operand %q is not known", text)
}

// word is memory of the test.
//
//go:nocheckptr
func word(address uint64) *uint64 { return (*uint64)(unsafe.Add(nil, uintptr(address))) }

// address returns that of a memory operand without its index.
func (m *machine) address(o operand) uint64 { return m.r[o.n] + o.value }

// scalar reads an operand of 64 bits.
func (m *machine) scalar(o operand) uint64 {
	switch o.kind {
	case general:
		return m.r[o.n]
	case constant:
		return o.value
	case argument:
		return m.arguments[o.n]
	}
	return *word(m.address(o))
}

// vector reads an operand of 512 bits, or one word for all lanes.
func (m *machine) vector(o operand, broadcast bool) (v vector) {
	switch {
	case o.kind == zmm:
		return m.z[o.n]
	case o.kind == constant, o.kind == general, broadcast:
		s := m.scalar(o)
		for i := range v {
			v[i] = s
		}
		return v
	}
	for i := range v {
		v[i] = *word(m.address(o) + 8*uint64(i))
	}
	return v
}

// lanes are the instructions that work on each lane: Go's first operand a, its second b, and what dst had.
var lanes = map[string]func(a, b, dst uint64) uint64{
	"VPADDQ": func(a, b, _ uint64) uint64 { return b + a },
	"VPSUBQ": func(a, b, _ uint64) uint64 { return b - a },
	"VPANDQ": func(a, b, _ uint64) uint64 { return b & a },
	"VPXORQ": func(a, b, _ uint64) uint64 { return b ^ a },
	"VPSRLQ": func(a, b, _ uint64) uint64 { return b >> a },
	"VPSLLQ": func(a, b, _ uint64) uint64 { return b << a },
	"VPSRAQ": func(a, b, _ uint64) uint64 { return uint64(int64(b) >> a) },
	"VPMADD52LUQ": func(a, b, dst uint64) uint64 {
		_, low := bits.Mul64(a&mask52, b&mask52)
		return dst + low&mask52
	},
	"VPMADD52HUQ": func(a, b, dst uint64) uint64 {
		high, low := bits.Mul64(a&mask52, b&mask52)
		return dst + high<<12 + low>>52
	},
}

// compile returns what an instruction does.
func compile(name string, texts []string) (func(*machine), error) {
	op, suffix, _ := strings.Cut(name, ".")
	var o []operand
	for _, text := range texts {
		one, err := operandOf(text)
		if err != nil {
			return nil, err
		}
		o = append(o, one)
	}
	if op == "RET" || op == "VZEROUPPER" {
		return func(*machine) {}, nil
	}
	if f := compileScalar(op, o); f != nil {
		return f, nil
	}
	if f := compileMask(op, o); f != nil {
		return f, nil
	}
	k, n := -1, len(o)-1
	if n > 1 && o[n-1].kind == mask {
		k = o[n-1].n
		o = append(o[:n-1:n-1], o[n])
	}
	value := compileVector(op, o, suffix == "BCST", k)
	if value == nil {
		return nil, errUnknown
	}
	return store(o[len(o)-1], value, k, suffix == "Z", op == "VPBLENDMQ" || op == "VPGATHERQQ"), nil
}

// store writes a vector where the mask k has its lanes. whole is for instructions whose mask is an operand.
func store(to operand, value func(*machine) vector, k int, zeroing, whole bool) func(*machine) {
	return func(m *machine) {
		v := value(m)
		for i := range v {
			taken := whole || k < 0 || m.k[k]>>i&1 != 0
			switch {
			case to.kind == zmm && taken:
				m.z[to.n][i] = v[i]
			case to.kind == zmm && zeroing:
				m.z[to.n][i] = 0
			case to.kind == memory && taken:
				*word(m.address(to) + 8*uint64(i)) = v[i]
			}
		}
	}
}

// compileScalar is for instructions on general registers.
func compileScalar(op string, o []operand) func(*machine) {
	set := func(value func(m *machine) uint64) func(*machine) {
		to := o[len(o)-1]
		return func(m *machine) {
			v := value(m)
			m.zero = v == 0
			if to.kind == general {
				m.r[to.n] = v
			} else {
				*word(m.address(to)) = v
			}
		}
	}
	switch op {
	case "MOVQ", "MOVL": // flags stay
		to := o[1]
		return func(m *machine) { m.r[to.n] = m.scalar(o[0]) }
	case "LEAQ":
		to := o[1]
		return func(m *machine) {
			a := m.address(o[0])
			if o[0].index >= 0 {
				a += m.r[o[0].index] * o[0].scale
			}
			m.r[to.n] = a
		}
	case "ADDQ":
		return set(func(m *machine) uint64 { return m.scalar(o[1]) + m.scalar(o[0]) })
	case "SUBQ":
		return set(func(m *machine) uint64 { return m.scalar(o[1]) - m.scalar(o[0]) })
	case "DECQ":
		return set(func(m *machine) uint64 { return m.scalar(o[0]) - 1 })
	case "IMUL3Q":
		return set(func(m *machine) uint64 { return m.scalar(o[0]) * m.scalar(o[1]) })
	case "CMPQ", "TESTQ":
		return func(m *machine) {
			if op == "CMPQ" {
				m.zero = m.scalar(o[0]) == m.scalar(o[1])
			} else {
				m.zero = m.scalar(o[0])&m.scalar(o[1]) == 0
			}
		}
	}
	return nil
}

// compileMask is for instructions that set a mask.
func compileMask(op string, o []operand) func(*machine) {
	compare := func(is func(a, b uint64) bool) func(*machine) {
		return func(m *machine) {
			a, b := m.vector(o[0], false), m.vector(o[1], false)
			var k uint8
			for i := range a {
				if is(a[i], b[i]) {
					k |= 1 << i
				}
			}
			m.k[o[2].n] = k
		}
	}
	switch op {
	case "KMOVW":
		return func(m *machine) { m.k[o[1].n] = uint8(m.scalar(o[0])) }
	case "VPCMPEQQ":
		return compare(func(a, b uint64) bool { return a == b })
	case "VPTESTMQ":
		return compare(func(a, b uint64) bool { return a&b != 0 })
	}
	return nil
}

// compileVector returns the value of a vector instruction.
func compileVector(op string, o []operand, broadcast bool, k int) func(*machine) vector {
	to := o[len(o)-1]
	if lane, found := lanes[op]; found {
		return func(m *machine) (v vector) {
			a, b, dst := m.vector(o[0], broadcast), m.vector(o[1], false), m.vector(to, false)
			for i := range v {
				v[i] = lane(a[i], b[i], dst[i])
			}
			return v
		}
	}
	switch op {
	case "VMOVDQU64", "VMOVDQA64":
		return func(m *machine) vector { return m.vector(o[0], false) }
	case "VPBROADCASTQ":
		return func(m *machine) vector { return m.vector(o[0], true) }
	case "VPBLENDMQ":
		return func(m *machine) vector {
			v, a := m.vector(o[1], false), m.vector(o[0], false)
			for i := range v {
				if m.k[k]>>i&1 != 0 {
					v[i] = a[i]
				}
			}
			return v
		}
	}
	return compilePermutation(op, o, k)
}

// compilePermutation is for instructions that move words between lanes or memory.
func compilePermutation(op string, o []operand, k int) func(*machine) vector {
	to := o[len(o)-1]
	switch op {
	case "VPERMQ":
		return func(m *machine) (v vector) {
			table, index := m.vector(o[0], false), m.vector(o[1], false)
			for i := range v {
				v[i] = table[index[i]&7]
			}
			return v
		}
	case "VPERMT2Q":
		return func(m *machine) (v vector) {
			low, high, index := m.z[to.n], m.vector(o[0], false), m.vector(o[1], false)
			for i := range v {
				v[i] = low[index[i]&7]
				if index[i]&8 != 0 {
					v[i] = high[index[i]&7]
				}
			}
			return v
		}
	case "VPSHUFD":
		if o[0].value != 0x4e { // the halves of 128 bits exchanged
			return nil
		}
		return func(m *machine) (v vector) {
			for i, w := range m.vector(o[1], false) {
				v[i^1] = w
			}
			return v
		}
	case "VPGATHERQQ":
		return func(m *machine) vector {
			v := m.z[to.n]
			for i := range v {
				if m.k[k]>>i&1 != 0 {
					v[i] = *word(m.address(o[0]) + m.z[o[0].index][i]*o[0].scale)
				}
			}
			m.k[k] = 0
			return v
		}
	}
	return nil
}
