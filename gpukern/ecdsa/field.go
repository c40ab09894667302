package ecdsa

import (
	"math/big"
	"unsafe"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// Lanes is the number of signatures of a pass.
const Lanes = 8

const (
	digitBits = 52
	digitMask = 1<<digitBits - 1
	maxDigits = 8
)

// row is one digit of the numbers of all lanes.
type row [Lanes]uint64

// element is a number per lane, of as many rows as the field has digits.
type element = []row

// modulus is what the assembly reads of a field.
type modulus struct {
	n    [maxDigits]uint64
	bias [maxDigits]uint64 // 4n or 16n: a difference is positive with it
	k0   uint64            // -1/n modulo 2^52
}

// field is arithmetic modulo an odd prime n in digits, with R = 2^(52*digits).
//
// Bounds are in multiples of n. A product of numbers below a and b is below a*b*n/R + 1, and R/n is 16 at least: it is below
// 2 if a*b is up to 16. All numbers stay below 16, where they still fit into the digits. With eight digits R/n is 2^32, and
// no bound matters but that of what is subtracted.
type field struct {
	digits int
	weak   weakReduction
	m      modulus
	prime  *big.Int
	// The same number in each lane: 1, R, R^2 and R^3 modulo n.
	unit, one, r2, r3 element
	inverseBy         []byte // n-2
}

// weakReduction names the prime that products and combinations of an element are reduced by.
type weakReduction uint8

const (
	general weakReduction = iota // has no combine
	p256
	p384
)

func newField(n *big.Int, digits int, weak weakReduction) *field {
	f := &field{digits: digits, weak: weak, prime: n}
	montgomery.SetBytes(f.m.n[:digits], n.Bytes())
	bias := uint(2)
	if digits == 8 {
		bias = 4
	}
	montgomery.SetBytes(f.m.bias[:digits], new(big.Int).Lsh(n, bias).Bytes())
	inverse := uint64(1) // Newton's iteration doubles the correct bits: 1, 2, ... 64
	for range 6 {
		inverse *= 2 - f.m.n[0]*inverse
	}
	f.m.k0 = -inverse & digitMask
	f.inverseBy = new(big.Int).Sub(n, big.NewInt(2)).Bytes()
	rows := alignedRows(4 * digits)
	for i, e := range []*element{&f.unit, &f.one, &f.r2, &f.r3} {
		*e = rows[i*digits:][:digits:digits]
		power := new(big.Int).Lsh(big.NewInt(1), uint(i*digits*digitBits))
		d := f.digitsOf(power.Mod(power, n))
		for lane := range Lanes {
			setLane(*e, lane, d)
		}
	}
	return f
}

// digitsOf returns the digits of x, which is below R.
func (f *field) digitsOf(x *big.Int) []uint64 {
	d := make([]uint64, f.digits)
	montgomery.SetBytes(d, x.Bytes())
	return d
}

// residue returns the digits of x*R modulo n.
func (f *field) residue(x *big.Int) []uint64 {
	r := new(big.Int).Lsh(x, uint(f.digits*digitBits))
	return f.digitsOf(r.Mod(r, f.prime))
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

// setLane sets a lane of x to digits.
func setLane(x element, lane int, digits []uint64) {
	for i, d := range digits {
		x[i][lane] = d
	}
}

// laneOf copies a lane of x to digits.
func laneOf(digits []uint64, x element, lane int) {
	for i := range x {
		digits[i] = x[i][lane]
	}
}

// multiply sets dst to a*b/R.
func (f *field) multiply(dst, a, b element) {
	switch {
	case !supported:
		f.multiplyAddPlain(dst, a, b, nil, nil)
	case f.weak == p256:
		multiplyP256(&dst[0], &a[0], &b[0])
	case f.digits == 5:
		multiply5(&dst[0], &a[0], &b[0], &f.m)
	default:
		multiply8(&dst[0], &a[0], &b[0], &f.m)
	}
}

// multiplyAdd sets dst to (a*b + c*d)/R. Only fields with a weak reduction have it.
func (f *field) multiplyAdd(dst, a, b, c, d element) {
	switch {
	case !supported:
		f.multiplyAddPlain(dst, a, b, c, d)
	case f.weak == p256:
		multiplyAddP256(&dst[0], &a[0], &b[0], &c[0], &d[0])
	default:
		multiplyAdd8(&dst[0], &a[0], &b[0], &c[0], &d[0], &f.m)
	}
}

// subtract sets dst to a - b + 4n, or + 16n with eight digits. b is below 4.
func (f *field) subtract(dst, a, b element) {
	switch {
	case !supported:
		f.subtractPlain(dst, a, b)
	case f.digits == 5:
		subtract5(&dst[0], &a[0], &b[0], &f.m)
	default:
		subtract8(&dst[0], &a[0], &b[0], &f.m)
	}
}

// combine sets dst to a + b - 2c modulo n, below 1 + 2^-27, or below 2 + 2^-27 with eight digits. a + b is below 12, c
// below 2, or 3 with eight digits.
func (f *field) combine(dst, a, b, c element) {
	switch {
	case !supported:
		f.combinePlain(dst, a, b, c)
	case f.weak == p256:
		combineP256(&dst[0], &a[0], &b[0], &c[0], &f.m)
	default:
		combineP384(&dst[0], &a[0], &b[0], &c[0], &f.m)
	}
}

// addDigits sets dst to a + b, without a reduction. It is for few numbers, and has no vector form.
func addDigits(dst, a, b element) {
	var carry row
	for i := range dst {
		for lane := range carry {
			v := a[i][lane] + b[i][lane] + carry[lane]
			dst[i][lane], carry[lane] = v&digitMask, v>>digitBits
		}
	}
}

// The exponents of inverses are read in windows of 4 bits.
const inverseEntries = 16

// invert sets dst to the inverse of x in Montgomery's form, and to 0 for 0: the power n-2 (Fermat). memory has
// inverseEntries elements. The exponent is public: windows that are zero have no product.
func (f *field) invert(dst, x element, memory []row) {
	power := func(i byte) element { return memory[int(i)*f.digits:][:f.digits] }
	copy(power(1), x)
	for i := byte(2); i < inverseEntries; i++ {
		f.multiply(power(i), power(i-1), x)
	}
	copy(dst, f.one)
	for i, b := range f.inverseBy {
		for half, w := range [2]byte{b >> 4, b & 15} {
			for range 4 {
				if i|half != 0 {
					f.multiply(dst, dst, dst)
				}
			}
			if w != 0 {
				f.multiply(dst, dst, power(w))
			}
		}
	}
}

// isZero reports whether digits, which are at most n, are 0 modulo n.
func (f *field) isZero(digits []uint64) bool {
	var zero, same uint64
	for i, d := range digits {
		zero |= d
		same |= d ^ f.m.n[i]
	}
	return zero == 0 || same == 0
}

// lower subtracts n from digits until they are below it. They are public.
func (f *field) lower(digits []uint64) {
	for !f.isBelow(digits) {
		var borrow uint64
		for i, d := range digits {
			less := d - f.m.n[i] - borrow
			digits[i], borrow = less&digitMask, less>>63
		}
	}
}

// isBelow reports whether digits are below n. They are public.
func (f *field) isBelow(digits []uint64) bool {
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] != f.m.n[i] {
			return digits[i] < f.m.n[i]
		}
	}
	return false
}
