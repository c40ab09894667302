package pubkey

import "math/big"

// putWords writes a number below 2^(8*len(to)) as kernels have it: words of 32 bits, the lowest first.
func putWords(to []byte, v *big.Int) {
	v.FillBytes(to)
	for i, j := 0, len(to)-1; i < j; i, j = i+1, j-1 {
		to[i], to[j] = to[j], to[i]
	}
}

// montgomery is what the kernels' products take of a modulus of n words: R = 2^(32n).
type montgomery struct {
	m     *big.Int
	words int
}

// power returns R^k modulo m.
func (m montgomery) power(k int) *big.Int {
	r := new(big.Int).Lsh(big.NewInt(1), uint(32*m.words*k))
	return r.Mod(r, m.m)
}

// form returns v*R modulo m.
func (m montgomery) form(v *big.Int) *big.Int {
	r := new(big.Int).Lsh(v, uint(32*m.words))
	return r.Mod(r, m.m)
}

// factor returns -1/m modulo 2^32. m is odd.
func (m montgomery) factor() uint32 {
	low := uint32(m.m.Uint64()) // of the lowest 64 bits: Uint64 of more is those
	inverse := low              // right to three bits; each step doubles them
	for range 4 {
		inverse *= 2 - low*inverse
	}
	return -inverse
}
