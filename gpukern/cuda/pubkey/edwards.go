package pubkey

import "math/big"

// The curve of Ed25519 (RFC 8032 5.1): -x^2 + y^2 = 1 + dx^2y^2 modulo 2^255 - 19.
var (
	edwardsPrime  = number("57896044618658097711785492504343953926634992332820282019728792003956564819949")
	edwardsD      = number("37095705934669439343138083508754565189542113879843219016388785533085940283555")
	edwardsB      = affine{number("15112221349535400772501151409588531511454012693041857206046113283949847762202"), number("46316835694926478169428394003475163141307993866256225615783033603165251855960")}
	edwardsOrder  = montgomery{number("7237005577332262213973186563042994240857116359379907606001950938285454250989"), 8}
	edwardsDouble = new(big.Int).Lsh(edwardsD, 1)
)

// number reads a constant.
func number(s string) *big.Int {
	v, _ := new(big.Int).SetString(s, 10)
	return v
}

// addEdwards returns the sum of two points. It is for public ones.
func addEdwards(a, b affine) affine {
	p := edwardsPrime
	mul := func(x, y *big.Int) *big.Int {
		v := new(big.Int).Mul(x, y)
		return v.Mod(v, p)
	}
	t := mul(edwardsD, mul(mul(a.x, b.x), mul(a.y, b.y)))
	one := big.NewInt(1)
	fraction := func(top, bottom *big.Int) *big.Int {
		return mul(top, new(big.Int).ModInverse(bottom.Mod(bottom, p), p))
	}
	return affine{
		fraction(new(big.Int).Add(mul(a.x, b.y), mul(a.y, b.x)), new(big.Int).Add(one, t)),
		fraction(new(big.Int).Add(mul(a.y, b.y), mul(a.x, b.x)), new(big.Int).Sub(one, t)),
	}
}

// edwardsTable returns the table of the generator for pk_ed25519_commit: of each window of four bits all sixteen multiples, as
// y + x, y - x and 2dxy.
func edwardsTable() []byte {
	const windows, entries = 64, 16
	var out []byte
	put := func(v *big.Int) {
		var b [32]byte
		putWords(b[:], new(big.Int).Mod(v, edwardsPrime))
		out = append(out, b[:]...)
	}
	at := edwardsB
	for range windows {
		multiple := affine{new(big.Int), big.NewInt(1)}
		for range entries {
			x, y := multiple.x, multiple.y
			put(new(big.Int).Add(y, x))
			put(new(big.Int).Sub(y, x))
			put(new(big.Int).Mul(edwardsDouble, new(big.Int).Mul(x, y)))
			multiple = addEdwards(multiple, at)
		}
		at = multiple
	}
	return out
}
