package montgomery

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Lanes is the number of powers that are made at once.
const Lanes = 8

// row is one digit of the numbers of all lanes.
type row [Lanes]uint64

// The window of the exponentiation in bits. 16 entries stay in the first cache for moduli of 1024 bits, and are
// read whole for each window: 5 bits save a twentieth of the products and cost as much in reading.
const (
	windowBits    = 4
	windowEntries = 1 << windowBits
)

// Power raises up to eight numbers to powers at once. It is memory for one pass after the other, not safe for
// concurrent use. Lanes that are not set are computed like the others, and mean nothing.
type Power struct {
	blocks    int
	modulus   []row
	k0        *row
	m         *row // a block that reduce uses
	index     *row
	t         []row // columns of a product
	x, y      []row
	table     []row
	moduli    [Lanes]*Modulus
	exponents [Lanes][]byte
	rows      []row // all of the above
}

// Supported reports whether the CPU computes the lanes with one instruction each (AVX-512 IFMA). Without, a Power is
// slower than math/big.
func Supported() bool { return supported }

// NewPower returns the memory for moduli of so many blocks (Modulus.Blocks): about 22 KiB for each block.
func NewPower(blocks int) *Power {
	n := blocks * BlockDigits
	p := &Power{blocks: blocks, rows: alignedRows((windowEntries+5)*n + 2 + BlockDigits)}
	rest := p.rows
	cut := func(n int) []row {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	p.modulus, p.t, p.x, p.y, p.table = cut(n), cut(2*n), cut(n), cut(n), cut(windowEntries*n)
	p.k0, p.index, p.m = &cut(1)[0], &cut(1)[0], &cut(BlockDigits)[0]
	return p
}

// alignedRows returns rows that begin on a cache line: others would take two accesses each.
func alignedRows(n int) []row {
	words := make([]uint64, (n+1)*Lanes)
	skip := 0
	for uintptr(unsafe.Pointer(&words[skip]))%unsafe.Sizeof(row{}) != 0 {
		skip++
	}
	return unsafe.Slice((*row)(unsafe.Pointer(&words[skip])), n)
}

// SetModulus sets the modulus of a lane. It stays for later passes.
func (p *Power) SetModulus(lane int, m *Modulus) {
	if m.blocks != p.blocks {
		panic(fmt.Sprintf("montgomery: a modulus of %d blocks in a pass of %d", m.blocks, p.blocks))
	}
	if p.moduli[lane] == m {
		return
	}
	p.moduli[lane] = m
	setLane(p.modulus, lane, m.n)
	p.k0[lane] = m.k0
}

// setLane sets a lane of x to digits.
func setLane(x []row, lane int, digits []uint64) {
	for i, d := range digits {
		x[i][lane] = d
	}
}

// laneOf copies a lane of x to digits.
func laneOf(digits []uint64, x []row, lane int) {
	for i := range digits {
		digits[i] = x[i][lane]
	}
}

// SetBase sets the base of a lane to the number in digits, which has up to twice the digits of its modulus and is below
// R times the modulus.
func (p *Power) SetBase(lane int, digits []uint64) {
	setLane(p.t, lane, digits)
	for i := len(digits); i < len(p.t); i++ {
		p.t[i][lane] = 0
	}
}

// SetExponent sets the exponent of a lane, big-endian and as long as the modulus or shorter. It is borrowed until Raise
// returns.
func (p *Power) SetExponent(lane int, e []byte) { p.exponents[lane] = e }

// Raise raises the base of every lane to its exponent.
func (p *Power) Raise() {
	p.enter()
	p.fillTable()
	top := 0
	for _, m := range p.moduli {
		if m != nil {
			top = max(top, m.bits)
		}
	}
	windows := (top + windowBits - 1) / windowBits
	p.lookUp(p.x, windows-1)
	for w := windows - 2; w >= 0; w-- {
		for range windowBits {
			p.square(p.x)
		}
		p.lookUp(p.y, w)
		p.multiply(p.x, p.x, p.y)
	}
	p.leave(p.x)
}

// RaisePublic raises the base of every lane to one exponent that is no secret: the steps depend on its bits.
func (p *Power) RaisePublic(e uint) {
	p.enter()
	copy(p.y, p.x)
	for bit := bits.Len(e) - 2; bit >= 0; bit-- {
		p.square(p.x)
		if e>>bit&1 != 0 {
			p.multiply(p.x, p.x, p.y)
		}
	}
	p.leave(p.x)
}

// enter brings the bases into Montgomery's form, in x: base/R, times R^3, over R.
func (p *Power) enter() {
	p.reduce(p.x)
	p.setEach(p.y, func(m *Modulus) []uint64 { return m.r3 })
	p.multiply(p.x, p.x, p.y)
}

// setEach sets each lane of x to a constant of its modulus.
func (p *Power) setEach(x []row, constant func(*Modulus) []uint64) {
	for lane, m := range p.moduli {
		if m != nil {
			setLane(x, lane, constant(m))
		}
	}
}

// leave takes x out of Montgomery's form.
func (p *Power) leave(x []row) {
	n := len(x)
	copy(p.t, x)
	clear(p.t[n:])
	p.reduce(x)
}

// fillTable sets the table to the powers of x from 0 on.
func (p *Power) fillTable() {
	n := len(p.x)
	p.setEach(p.table[:n], func(m *Modulus) []uint64 { return m.one })
	copy(p.table[n:], p.x)
	for i := 2; i < windowEntries; i++ {
		to := p.table[i*n:][:n]
		if i%2 == 0 {
			copy(to, p.table[i/2*n:][:n])
			p.square(to)
		} else {
			p.multiply(to, p.table[(i-1)*n:][:n], p.x)
		}
	}
}

// lookUp sets dst to the entries of window w of the exponents.
func (p *Power) lookUp(dst []row, w int) {
	for lane, e := range p.exponents {
		p.index[lane] = 0
		if at := len(e) - 1 - w/2; at >= 0 {
			p.index[lane] = uint64(e[at] >> (w % 2 * windowBits) & (windowEntries - 1))
		}
	}
	if supported {
		chooseIFMA(&dst[0], &p.table[0], p.index, windowEntries, p.blocks)
	} else {
		choosePlain(dst, p.table, p.index, windowEntries)
	}
}

// multiply sets dst to a*b/R.
func (p *Power) multiply(dst, a, b []row) {
	if supported {
		multiplyIFMA(&p.t[0], &a[0], &b[0], p.blocks)
	} else {
		multiplyPlain(p.t, a, b)
	}
	p.reduce(dst)
}

// square sets x to x*x/R.
func (p *Power) square(x []row) {
	if supported {
		squareIFMA(&p.t[0], &x[0], p.blocks)
	} else {
		multiplyPlain(p.t, x, x)
	}
	p.reduce(x)
}

// reduce sets dst to t/R, and consumes t.
func (p *Power) reduce(dst []row) {
	if supported {
		reduceIFMA(&dst[0], &p.t[0], &p.modulus[0], p.k0, p.m, p.blocks)
	} else {
		reducePlain(dst, p.t, p.modulus, p.k0)
	}
}

// Result sets digits to the power of a lane, below its modulus.
func (p *Power) Result(lane int, digits []uint64) {
	laneOf(digits, p.x, lane)
	p.moduli[lane].lower(digits)
}

// Multiply sets x of every lane, as Result returns it, to the product of a and b over R, modulo its modulus. Lanes
// that are nil keep what they have. b is below its modulus, a below eight times of it.
func (p *Power) Multiply(a, b *[Lanes][]uint64) {
	for lane := range Lanes {
		if a[lane] != nil {
			setLane(p.x, lane, a[lane])
			setLane(p.y, lane, b[lane])
		}
	}
	p.multiply(p.x, p.x, p.y)
}

// Clear overwrites the memory of secrets: after the last pass, or between keys.
func (p *Power) Clear() {
	clear(p.rows)
	p.moduli, p.exponents = [Lanes]*Modulus{}, [Lanes][]byte{}
}
