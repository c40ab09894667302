package ed25519

import (
	"encoding/binary"
	"math/big"
	"math/bits"
)

// scalar is a number below 2^256, mostly below the order of the generator.
type scalar [4]uint64

// order is that of the generator (RFC 8032 5.1).
var order = scalar{0x5812631a5cf5d3ed, 0x14def9dea2f79cd6, 0, 1 << 60}

// Constants of Montgomery's products: -1/order modulo 2^64, and R^2 and R^3 modulo the order, with R = 2^256.
var (
	k0 = func() uint64 {
		inverse := uint64(1) // Newton's iteration doubles the correct bits
		for range 6 {
			inverse *= 2 - order[0]*inverse
		}
		return -inverse
	}()
	r2 = powerOfR(2)
	r3 = powerOfR(3)
)

func powerOfR(n uint) (s scalar) {
	l := new(big.Int)
	for i := range order {
		l.Add(l.Lsh(l, 64), new(big.Int).SetUint64(order[3-i]))
	}
	r := new(big.Int).Lsh(big.NewInt(1), 256*n)
	var b [32]byte
	r.Mod(r, l).FillBytes(b[:])
	for i := range s {
		s[i] = binary.BigEndian.Uint64(b[8*(3-i):])
	}
	return s
}

// scalarOf reads 32 bytes, little-endian.
func scalarOf(b []byte) (s scalar) {
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return s
}

func (s *scalar) put(b []byte) {
	for i, v := range s {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

// lower subtracts the order from a number below twice of it, unless it is below the order.
func (s *scalar) lower() {
	var less scalar
	var borrow uint64
	for i := range s {
		less[i], borrow = bits.Sub64(s[i], order[i], borrow)
	}
	keep := -borrow
	for i := range s {
		s[i] = s[i]&keep | less[i]&^keep
	}
}

// reduced reports whether a public number is below the order.
func (s *scalar) reduced() bool {
	var borrow uint64
	for i := range s {
		_, borrow = bits.Sub64(s[i], order[i], borrow)
	}
	return borrow != 0
}

// product returns a*b/R modulo the order, for b below it.
func product(a, b *scalar) (s scalar) {
	var t [6]uint64
	add := func(x *scalar, y uint64) {
		var carry uint64
		for i, v := range x {
			high, low := bits.Mul64(v, y)
			var c uint64
			low, c = bits.Add64(low, t[i], 0)
			high += c
			t[i], c = bits.Add64(low, carry, 0)
			carry = high + c
		}
		var c uint64
		t[4], c = bits.Add64(t[4], carry, 0)
		t[5] += c
	}
	for _, v := range a {
		add(b, v)
		add(&order, t[0]*k0)
		copy(t[:], t[1:])
		t[5] = 0
	}
	copy(s[:], t[:])
	s.lower()
	return s
}

// sum returns a + b modulo the order, for both below it.
func sum(a, b *scalar) (s scalar) {
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(a[i], b[i], carry)
	}
	s.lower()
	return s
}

// reduce returns 64 bytes, little-endian, modulo the order.
func reduce(b *[64]byte) scalar {
	low, high := scalarOf(b[:32]), scalarOf(b[32:])
	low, high = product(&low, &r2), product(&high, &r3) // times R
	low = sum(&low, &high)
	high = scalar{}
	return product(&low, &scalar{1})
}

// window returns four bits.
func (s *scalar) window(w int) uint64 { return s[w/16] >> (w % 16 * 4) & 15 }
