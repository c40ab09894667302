package montgomery

import (
	"errors"
	"math/big"
	"math/bits"
)

// BlockDigits is the number of digits of a block. Ten digits of one factor, and the twenty columns of their product,
// fit into the 32 vector registers.
const BlockDigits = 10

const (
	digitBits = 52
	digitMask = 1<<digitBits - 1
	blockBits = BlockDigits * digitBits
	// slackBits is log2 of the least R over a modulus: a factor may be up to eight moduli, if the other is below one.
	slackBits = 4
)

// ErrModulus refuses a modulus that is even, or below 3.
var ErrModulus = errors.New("montgomery: the modulus must be odd and above 1")

// Blocks returns the blocks of digits that numbers modulo a modulus of so many bits take.
func Blocks(modulusBits int) int { return (modulusBits + slackBits + blockBits - 1) / blockBits }

// Modulus is a modulus and what reduction by it needs, in digits. It is read only, and safe for concurrent use.
type Modulus struct {
	bits   int
	blocks int
	n      []uint64
	k0     uint64   // -1/n modulo 2^52
	one    []uint64 // R modulo n: 1 in Montgomery's form
	r2, r3 []uint64 // R^2 and R^3 modulo n
}

// NewModulus prepares a modulus. It keeps no reference to n.
func NewModulus(n *big.Int) (*Modulus, error) {
	if n.Sign() <= 0 || n.Bit(0) == 0 || n.BitLen() < 2 {
		return nil, ErrModulus
	}
	m := &Modulus{bits: n.BitLen(), blocks: Blocks(n.BitLen())}
	m.n = m.Digits(n)
	inverse := uint64(1) // Newton's iteration doubles the correct bits: 1, 2, ... 64
	for range 6 {
		inverse *= 2 - m.n[0]*inverse
	}
	m.k0 = -inverse & digitMask
	r := new(big.Int).Lsh(big.NewInt(1), uint(m.blocks*blockBits))
	power := new(big.Int).Mod(r, n)
	m.one = m.Digits(power)
	m.r2 = m.Digits(power.Mod(power.Mul(power, r), n))
	m.r3 = m.Digits(power.Mod(power.Mul(power, r), n))
	return m, nil
}

// BitLen returns the length of the modulus in bits.
func (m *Modulus) BitLen() int { return m.bits }

// Blocks returns the blocks of digits of a number modulo it.
func (m *Modulus) Blocks() int { return m.blocks }

// Digits returns the digits of x, which is below R.
func (m *Modulus) Digits(x *big.Int) []uint64 {
	d := make([]uint64, m.blocks*BlockDigits)
	SetBytes(d, x.Bytes())
	return d
}

// Residue returns x*R modulo the modulus: the factor that Multiply needs to give a product by x.
func (m *Modulus) Residue(x, n *big.Int) []uint64 {
	r := new(big.Int).Lsh(x, uint(m.blocks*blockBits))
	return m.Digits(r.Mod(r, n))
}

// Clear overwrites what the modulus of a private key discloses.
func (m *Modulus) Clear() {
	for _, d := range [][]uint64{m.n, m.one, m.r2, m.r3} {
		clear(d)
	}
	m.k0 = 0
}

// SetBytes sets digits to the big-endian number in p, which they can hold.
func SetBytes(digits []uint64, p []byte) {
	var have uint
	var rest uint64 // bits that are in no digit yet
	at := 0
	for i := len(p) - 1; i >= 0; i-- {
		b := uint64(p[i])
		rest |= b << have
		if have += 8; have >= digitBits {
			have -= digitBits
			digits[at] = rest & digitMask
			rest = b >> (8 - have)
			at++
		}
	}
	if at < len(digits) {
		digits[at] = rest
		clear(digits[at+1:])
	}
}

// FillBytes sets p to the number in digits, big-endian. p is long enough to hold it.
func FillBytes(p []byte, digits []uint64) {
	var have uint
	var rest uint64
	at := 0
	for i := len(p) - 1; i >= 0; i-- {
		if have < 8 && at < len(digits) {
			d := digits[at]
			at++
			p[i] = byte(rest | d<<have)
			rest = d >> (8 - have)
			have += digitBits - 8
			continue
		}
		p[i] = byte(rest)
		rest >>= 8
		have -= min(have, 8)
	}
}

// lower subtracts the modulus from digits, which are below twice of it, unless they are below it.
func (m *Modulus) lower(digits []uint64) {
	var borrow uint64
	for i, d := range digits {
		_, borrow = bits.Sub64(d, m.n[i], borrow)
	}
	keep := -borrow // all ones: it is below the modulus
	borrow = 0
	for i, d := range digits {
		less := d - m.n[i]&^keep - borrow
		digits[i] = less & digitMask
		borrow = less >> 63
	}
}

// Subtract sets a, which is below the modulus, to a - b + 4n, for b below 4n: a factor for Power.Multiply.
func (m *Modulus) Subtract(a, b []uint64) {
	var carry int64
	for i := range a {
		v := int64(a[i]) - int64(b[i]) + 4*int64(m.n[i]) + carry
		a[i] = uint64(v) & digitMask
		carry = v >> digitBits // arithmetic: it is negative for a borrow
	}
}

// MultiplyAdd sets to, which has the digits of a and b together, to a*b + c. c has no more digits than b.
func MultiplyAdd(to, a, b, c []uint64) {
	clear(to)
	copy(to, c)
	for i, x := range a {
		var carry uint64
		for j, y := range b {
			high, low := bits.Mul64(x, y)
			low, over := bits.Add64(low, to[i+j], 0)
			high += over
			low, over = bits.Add64(low, carry, 0)
			high += over
			to[i+j] = low & digitMask
			carry = high<<(64-digitBits) | low>>digitBits
		}
		to[i+len(b)] = carry // no row before has reached it, and c has no more digits than b
	}
}
