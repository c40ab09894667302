package ecdsa

// point is a point of each lane in Jacobian coordinates: x/z^2, y/z^3, in Montgomery's form. z is 0 at infinity.
//
// The formulas are incomplete: a sum of a point and itself, or its inverse, has z = 0. Callers exclude them, or verify what
// comes out. Bounds (see field): x is below 11/10, y below 4, z below 2.
type point struct{ x, y, z element }

// temporaries are the elements that a formula uses.
type temporaries [9]element

// addAffine sets p to -(p + (x, y)), as the sign costs nothing: a caller alternates the signs of what it adds. x and y
// are at most 1. It has 8 products, 3 of them squares, and one sum of two (FIPS 186-5 has no formulas; these are those of
// D. Hankerson, A. Menezes, S. Vanstone, Guide to elliptic curve cryptography, 2004, algorithm 3.22).
func (f *field) addAffine(p *point, x, y element, t *temporaries) {
	zz, zzz, u, s := t[0], t[1], t[2], t[3]
	f.multiply(zz, p.z, p.z)
	f.multiply(u, x, zz)
	f.multiply(zzz, p.z, zz)
	f.multiply(s, y, zzz)
	f.finishSum(p, p.x, p.y, u, s, p.z, t)
}

// add sets p to -(p + q).
func (f *field) add(p, q *point, t *temporaries) {
	zzP, zzQ, u1, u2, s1, s2, z := t[0], t[1], t[2], t[3], t[7], t[8], t[1]
	f.multiply(zzP, p.z, p.z)
	f.multiply(zzQ, q.z, q.z)
	f.multiply(u1, p.x, zzQ)
	f.multiply(u2, q.x, zzP)
	f.multiply(s1, zzQ, q.z)
	f.multiply(s1, s1, p.y)
	f.multiply(s2, zzP, p.z)
	f.multiply(s2, s2, q.y)
	f.multiply(z, p.z, q.z)
	f.finishSum(p, u1, s1, u2, s2, z, t)
}

// finishSum sets p to minus the sum of two points that z brings to one denominator: (u1, s1) and (u2, s2). u2 and s2 are
// t[2] or t[3], t[8] or t[3]; it uses the others from t[4] to t[6], and t[0].
func (f *field) finishSum(p *point, u1, s1, u2, s2, z element, t *temporaries) {
	h, r, hh, v := t[4], t[5], t[6], t[0]
	f.subtract(h, u1, u2) // 5
	f.subtract(r, s1, s2) // 8
	f.multiply(hh, h, h)
	f.multiply(v, u1, hh)
	f.multiply(p.z, z, h)
	f.multiply(hh, hh, h)
	f.multiply(u2, r, r)
	// The digits of s1 may be those of p.y: it is read before it is written.
	f.combine(p.x, u2, hh, v)
	f.subtract(v, p.x, v)
	f.multiplyAdd(p.y, r, v, s1, hh)
}

// double sets p to 2p (the curve's a is -3: y^2 = x^3 - 3x + b).
func (f *field) double(p *point, zero element, t *temporaries) {
	delta, gamma, beta, alpha, u, v := t[0], t[1], t[2], t[3], t[4], t[5]
	f.multiply(delta, p.z, p.z)
	f.multiply(gamma, p.y, p.y)
	f.multiply(beta, p.x, gamma)
	f.subtract(u, p.x, delta)
	f.combine(v, p.x, delta, zero)
	f.multiply(u, u, v)
	f.combine(alpha, u, u, zero)
	f.combine(alpha, alpha, u, zero) // 3(x - delta)(x + delta)
	f.combine(beta, beta, beta, zero)
	f.combine(beta, beta, beta, zero) // 4xy^2
	f.multiply(u, p.y, p.z)
	f.combine(p.z, u, u, zero)
	f.multiply(u, alpha, alpha)
	f.combine(p.x, u, zero, beta)
	f.combine(gamma, gamma, gamma, zero)
	f.multiply(gamma, gamma, gamma)
	f.subtract(u, beta, p.x)
	f.multiply(u, u, alpha)
	f.combine(p.y, u, zero, gamma)
}

// negate sets p to -p. y is below 4.
func (f *field) negate(p *point, zero element) { f.subtract(p.y, zero, p.y) }
