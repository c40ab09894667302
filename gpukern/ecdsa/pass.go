package ecdsa

import (
	"fmt"
	"math/big"

	"github.com/millrace/millrace/gpukern/montgomery"
)

// Supported reports whether the CPU computes the lanes with one instruction each (AVX-512 IFMA). Without, crypto/ecdsa is faster.
func Supported() bool { return supported }

// Key is a private key in digits, with a table for its public key. It is read only until Clear, and safe for concurrent use.
type Key struct {
	c      *Curve
	d      []uint64 // times R modulo n
	public *table
}

// NewKey prepares a key from the encodings that crypto/ecdsa has: the number, and the uncompressed point (SEC 1 2.3.3).
// They belong together. The table takes 41 KB for P-256 and 98 KB for P-384.
func NewKey(c *Curve, private, public []byte) (*Key, error) {
	if len(private) != c.size || len(public) != 1+2*c.size || public[0] != 4 {
		return nil, fmt.Errorf("ecdsa: a key of %d and %d bytes for numbers of %d", len(private), len(public), c.size)
	}
	x, y := new(big.Int).SetBytes(public[1:1+c.size]), new(big.Int).SetBytes(public[1+c.size:])
	return &Key{c: c, d: c.n.residue(new(big.Int).SetBytes(private)), public: c.newTable(x, y, keyBits)}, nil
}

// Curve returns the curve of the key.
func (k *Key) Curve() *Curve { return k.c }

// Clear overwrites the private key. It must not be used afterwards.
func (k *Key) Clear() { clear(k.d) }

// Pass is memory for up to eight signatures at once, on one curve. It is not safe for concurrent use.
type Pass struct {
	c    *Curve
	n    int
	keys [Lanes]*Key
	rows []row // all elements and rows below

	low, high       element // nonces as they come: low + high * R
	e, d            element // digests; private keys, times R
	k, kR           element // nonces below n; times R
	a, aR           element // e + r*d; times R
	r, s, w         element // the signature; 1/s
	x, y            element // of the nonce's point, affine and times R
	entryX, entryY  element
	scratch         element
	sum, other      point
	t               temporaries
	inverse         []row
	index, negative []row // windows of the nonces
	odd             *row
}

// NewPass returns the memory of a pass: 21 KB for P-256, 32 KB for P-384.
func NewPass(c *Curve) *Pass {
	d, windows := c.p.digits, c.generator.windows
	p := &Pass{c: c}
	elements := []*element{
		&p.low, &p.high, &p.e, &p.d, &p.k, &p.kR, &p.a, &p.aR, &p.r, &p.s, &p.w, &p.x, &p.y, &p.scratch,
		&p.sum.x, &p.sum.y, &p.sum.z, &p.other.x, &p.other.y, &p.other.z,
	}
	for i := range p.t {
		elements = append(elements, &p.t[i])
	}
	elements = append(elements, &p.entryX, &p.entryY) // side by side, for choose
	p.rows = alignedRows((len(elements)+inverseEntries)*d + 2*windows + 1)
	rest := p.rows
	cut := func(n int) []row {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	for _, e := range elements {
		*e = cut(d)
	}
	p.inverse, p.index, p.negative, p.odd = cut(inverseEntries*d), cut(windows), cut(windows), &cut(1)[0]
	return p
}

// Curve returns the curve of the pass.
func (p *Pass) Curve() *Curve { return p.c }

// Set sets the next signature: of a digest, of which the leftmost bits count that n has, with a nonce of twice the size of a
// number. The nonce is reduced modulo n: random bits of that length have no bias (FIPS 186-5 A.3.1), and a
// number below n stays what it is.
func (p *Pass) Set(key *Key, digest, nonce []byte) {
	if key.c != p.c || len(nonce) != 2*p.c.size || p.n == Lanes {
		panic("ecdsa: a signature of another curve, a nonce of another length, or too many signatures")
	}
	lane, digits := p.n, p.c.n.digits
	p.n++
	p.keys[lane] = key
	setLane(p.d, lane, key.d)
	var wide [2 * maxDigits]uint64
	montgomery.SetBytes(wide[:], nonce)
	setLane(p.low, lane, wide[:digits])
	setLane(p.high, lane, wide[digits:2*digits])
	clear(wide[:])
	montgomery.SetBytes(wide[:], digest[:min(len(digest), p.c.size)])
	setLane(p.e, lane, wide[:digits])
}

// Run makes and verifies the signatures that are set. It reports false if any of them is wrong: then none may be used.
func (p *Pass) Run() bool {
	p.reduceNonces()
	p.multiplyGenerator()
	p.toAffine()
	p.solve()
	return p.verify()
}

// Signature returns r and s of signature i, big-endian.
func (p *Pass) Signature(i int) (r, s []byte) {
	var d [maxDigits]uint64
	number := func(x element) []byte {
		to := make([]byte, p.c.size)
		laneOf(d[:], x, i)
		montgomery.FillBytes(to, d[:p.c.n.digits])
		return to
	}
	return number(p.r), number(p.s)
}

// Clear overwrites the memory: the next signatures can be set.
func (p *Pass) Clear() {
	clear(p.rows)
	p.keys, p.n = [Lanes]*Key{}, 0
}

// reduceNonces sets k and kR.
func (p *Pass) reduceNonces() {
	f := p.c.n
	f.multiply(p.k, p.low, f.r2)
	f.multiply(p.kR, p.high, f.r3)
	addDigits(p.k, p.k, p.kR)
	f.multiply(p.k, p.k, f.unit) // not above n, and n only for 0
	f.multiply(p.kR, p.k, f.r2)
}

// multiplyGenerator sets sum to k*G or -k*G, which have the same x: odd says which, with the number of windows.
//
// The sum of the first windows is an odd number below each next entry. So no two points are the same or inverses, but for the
// last window modulo n: one number of 2^256, or 2^384, has there a z of 0. That is no signature: r is 0.
func (p *Pass) multiplyGenerator() {
	f, t := p.c.p, p.c.generator
	var digits [maxDigits]uint64
	for lane := range Lanes {
		laneOf(digits[:], p.k, lane)
		r := p.c.n.recode(digits[:f.digits], t.bits, t.windows)
		for w := range t.windows {
			p.index[w][lane], p.negative[w][lane] = r.window(w)
			p.negative[w][lane] ^= flip(w)
		}
		p.odd[lane] = r.odd
	}
	p.choose(p.sum.x, p.sum.y, 0)
	copy(p.sum.z, f.one)
	for w := 1; w < t.windows; w++ {
		p.choose(p.entryX, p.entryY, w)
		f.addAffine(&p.sum, p.entryX, p.entryY, &p.t)
	}
}

// flip returns 1 if the sign of summand i of a sum by addAffine is to be changed: it negates the sum of those before.
func flip(i int) uint64 {
	if i > 0 && i%2 == 0 {
		return 1
	}
	return 0
}

// choose sets x and y, which lie side by side, to the entries of window w of the nonces.
func (p *Pass) choose(x, y element, w int) {
	f, window := p.c.p, p.c.generator.window(w)
	if supported {
		choose(&x[0], &window[0], &p.index[w], &p.negative[w], f.digits, &f.m)
	} else {
		f.choosePlain(x, y, window, &p.index[w], &p.negative[w])
	}
}

// toAffine sets x and y to those of k*G, and r to x modulo n.
func (p *Pass) toAffine() {
	f, zinv, zz := p.c.p, p.t[0], p.t[1]
	f.invert(zinv, p.sum.z, p.inverse)
	f.multiply(zz, zinv, zinv)
	f.multiply(p.x, p.sum.x, zz)
	f.multiply(zz, zz, zinv)
	f.multiply(p.y, p.sum.y, zz)
	// After an even number of windows the sum has the other sign.
	f.subtract(p.scratch, p.c.zero, p.y)
	for lane, odd := range p.odd {
		keep := -(odd ^ uint64(p.c.generator.windows-1)&1)
		for i := range p.y {
			p.y[i][lane] ^= (p.y[i][lane] ^ p.scratch[i][lane]) &^ keep
		}
	}
	f.multiply(p.r, p.x, f.unit)
	p.lower(p.r)
}

// lower brings public numbers below n.
func (p *Pass) lower(x element) {
	var digits [maxDigits]uint64
	d := digits[:p.c.n.digits]
	for lane := range Lanes {
		laneOf(d, x, lane)
		p.c.n.lower(d)
		setLane(x, lane, d)
	}
}

// solve sets s to (e + r*d) / k, and w to 1/s. One inverse is enough for both: with a = e + r*d, s is a^2/(ka), and w is
// k^2/(ka).
func (p *Pass) solve() {
	f, inverse := p.c.n, p.t[0]
	f.multiply(p.a, p.d, p.r)
	addDigits(p.a, p.a, p.e)
	f.multiply(p.aR, p.a, f.r2)
	f.multiply(p.scratch, p.kR, p.aR)
	f.invert(inverse, p.scratch, p.inverse)
	f.multiply(p.s, inverse, p.aR)
	f.multiply(p.s, p.s, p.a)
	f.multiply(p.w, inverse, p.kR)
	f.multiply(p.w, p.w, p.k)
	p.lower(p.s)
}
