package x25519

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// Lanes is the number of products of a pass, Size the length of scalars and points in bytes.
const (
	Lanes = 8
	Size  = 32
)

const (
	digits    = 5
	digitBits = 52
	digitMask = 1<<digitBits - 1
	above260  = 19 << 5 // 2^260 modulo 2^255 - 19
)

// row is one digit of the numbers of all lanes.
type row [Lanes]uint64

// a24 is (486662 - 2) / 4 (RFC 7748 4.1), for each lane.
var a24 = row{121665, 121665, 121665, 121665, 121665, 121665, 121665, 121665}

// element is a number per lane. Products are below 2^255 + 2^216, sums and differences of two below 2^257, and factors may
// have 260 bits.
type element = []row

// bias is 2*(2^255 - 19): a difference is positive with it.
var bias = func() element {
	e := alignedRows(digits)
	for lane := range Lanes {
		e[0][lane] = digitMask - 37
		for i := 1; i < digits-1; i++ {
			e[i][lane] = digitMask
		}
		e[digits-1][lane] = 1<<48 - 1
	}
	return e
}()

// alignedRows returns rows that begin on a cache line: others would take two accesses each.
func alignedRows(n int) []row {
	words := make([]uint64, (n+1)*Lanes)
	skip := 0
	for uintptr(unsafe.Pointer(&words[skip]))%unsafe.Sizeof(row{}) != 0 {
		skip++
	}
	return unsafe.Slice((*row)(unsafe.Pointer(&words[skip])), n)
}

// Supported reports whether the CPU computes the lanes with one instruction each (AVX-512 IFMA). Without, crypto/ecdh is faster.
func Supported() bool { return supported }

// Base is the point of public keys: a private key times Base is its public key (RFC 7748 6.1).
var Base = [Size]byte{9}

// Pass is memory for up to eight products. It is not safe for concurrent use.
type Pass struct {
	rows           []row
	first          element // u of the points
	left, right    []row   // x and z of either side of the ladder
	t              [6]element
	swap, previous *row
	scalars        [Lanes][Size]byte
}

// NewPass returns the memory of a pass: 4 KB.
func NewPass() *Pass {
	p := &Pass{rows: alignedRows(11*digits + 2)}
	rest := p.rows
	cut := func(n int) []row {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	p.first, p.left, p.right = cut(digits), cut(2*digits), cut(2*digits)
	for i := range p.t {
		p.t[i] = cut(digits)
	}
	p.swap, p.previous = &cut(1)[0], &cut(1)[0]
	return p
}

// Clear overwrites the memory of secrets.
func (p *Pass) Clear() {
	clear(p.rows)
	clear(p.scalars[:])
}

// Multiply sets products to scalars times points, of which there are up to eight (RFC 7748 5). Scalars are clamped, and the
// topmost bit of a point is ignored. It clears its memory.
func (p *Pass) Multiply(products, scalars, points [][Size]byte) {
	defer p.Clear()
	for lane := range scalars {
		p.set(lane, lane, &scalars[lane], &points[lane])
	}
	p.ladder()
	p.divide()
	for lane := range scalars {
		p.result(&products[lane], lane)
	}
}

// set clamps scalar number n, and puts a point into a lane.
func (p *Pass) set(n, lane int, scalar, point *[Size]byte) {
	k := &p.scalars[n]
	*k = *scalar
	k[0] &= 248
	k[31] = k[31]&127 | 64
	var big [Size]byte
	for i, b := range point {
		big[Size-1-i] = b
	}
	big[0] &= 127
	var d [digits]uint64
	montgomery.SetBytes(d[:], big[:])
	for i, v := range d {
		p.first[i][lane] = v
	}
}

// ladder is the loop of RFC 7748 5, over the bits of the clamped scalars.
func (p *Pass) ladder() {
	for lane := range Lanes {
		p.left[0][lane] = 1 // (1:0), infinity
		p.right[digits][lane] = 1
	}
	copy(p.right, p.first)
	for t := 254; t >= 0; t-- {
		for lane := range Lanes {
			bit := uint64(p.scalars[lane][t/8]>>(t%8)) & 1
			p.swap[lane] = p.previous[lane] ^ bit
			p.previous[lane] = bit
		}
		p.exchange(p.swap)
		p.step()
	}
	// Bit 0 of a clamped scalar is clear: the exchange that RFC 7748 has here does nothing.
}

// exchange swaps the sides of the ladder in the lanes where swap is 1.
func (p *Pass) exchange(swap *row) {
	if supported {
		swapIFMA(&p.left[0], &p.right[0], swap)
	} else {
		swapPlain(p.left, p.right, swap)
	}
}

// step doubles the left side and adds it to the right one, with the names of RFC 7748 5.
func (p *Pass) step() {
	x2, z2, x3, z3 := p.left[:digits], p.left[digits:], p.right[:digits], p.right[digits:]
	a, b, c, d, e, unused := p.t[0], p.t[1], p.t[2], p.t[3], p.t[4], p.t[5]
	addSubtract(a, b, x2, z2)
	addSubtract(c, d, x3, z3)
	multiply(d, d, a) // DA
	multiply(c, c, b) // CB
	square(a, a)      // AA
	square(b, b)      // BB
	addSubtract(x3, z3, d, c)
	square(x3, x3)
	square(z3, z3)
	multiply(z3, z3, p.first)
	multiply(x2, a, b)
	addSubtract(unused, e, a, b)
	scale(a, e, a, &a24)
	multiply(z2, e, a)
}

func multiply(dst, a, b element) {
	if supported {
		multiplyIFMA(&dst[0], &a[0], &b[0])
	} else {
		multiplyPlain(dst, a, b)
	}
}

func square(dst, a element) {
	if supported {
		squareIFMA(&dst[0], &a[0])
	} else {
		multiplyPlain(dst, a, a)
	}
}

// squares sets dst to a after n squares.
func squares(dst, a element, n int) {
	square(dst, a)
	for range n - 1 {
		square(dst, dst)
	}
}

// scale sets dst to factors*a + b.
func scale(dst, a, b element, factors *row) {
	if supported {
		scaleIFMA(&dst[0], &a[0], &b[0], factors)
	} else {
		scalePlain(dst, a, b, factors)
	}
}

// addSubtract sets sum to a + b, and difference to a - b.
func addSubtract(sum, difference, a, b element) {
	if supported {
		addSubtractIFMA(&sum[0], &difference[0], &a[0], &b[0], &bias[0])
	} else {
		addSubtractPlain(sum, difference, a, b)
	}
}

// divide sets x of the left side to x/z, and to 0 if z is: x * z^(p-2) (RFC 7748 5). p - 2 is 2^255 - 21.
func (p *Pass) divide() {
	x, z := p.left[:digits], p.left[digits:]
	z11, ones, t, u := p.t[0], p.t[1], p.t[2], p.t[3]
	square(z11, z)     // z^2
	squares(t, z11, 2) // z^8
	multiply(t, t, z)  // z^9
	multiply(z11, z11, t)
	square(u, z11)
	multiply(ones, u, t)                      // z^(2^5 - 1)
	double := func(to, from element, n int) { // to is z^(2^2n - 1), from z^(2^n - 1)
		squares(u, from, n)
		multiply(to, u, from)
	}
	double(t, ones, 5)    // 2^10 - 1
	double(p.t[4], t, 10) // 2^20 - 1
	double(p.t[5], p.t[4], 20)
	squares(u, p.t[5], 10)
	multiply(p.t[4], u, t) // 2^50 - 1
	double(t, p.t[4], 50)  // 2^100 - 1
	double(p.t[5], t, 100) // 2^200 - 1
	squares(u, p.t[5], 50)
	multiply(t, u, p.t[4]) // 2^250 - 1
	squares(t, t, 5)
	multiply(t, t, z11) // 2^255 - 21
	multiply(x, x, t)
}

// result sets to to x of the left side of a lane, below 2^255 - 19, little-endian.
func (p *Pass) result(to *[Size]byte, lane int) {
	var d, less [digits]uint64
	carry := uint64(19)
	for i := range d {
		d[i] = p.left[i][lane]
		less[i] = d[i] + carry
		if i < digits-1 {
			carry, less[i] = less[i]>>digitBits, less[i]&digitMask
		}
	}
	// x + 19 has bit 255 if x is 2^255 - 19 or more: less is then x minus that, once the bit is gone.
	reach := -(less[digits-1] >> 47 & 1)
	less[digits-1] &= 1<<47 - 1
	for i := range d {
		d[i] ^= (d[i] ^ less[i]) & reach
	}
	montgomery.FillBytes(to[:], d[:])
	for i := range Size / 2 {
		to[i], to[Size-1-i] = to[Size-1-i], to[i]
	}
}
