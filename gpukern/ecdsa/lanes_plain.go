package ecdsa

import "math/bits"

// This file has the arithmetic of all lanes in Go: the meaning of the vector forms, which tests compare with it.
// Signing with it is slower than crypto/ecdsa.

// multiplyAddPlain sets dst to (a*b + c*d)/R. c and d may be nil.
func (f *field) multiplyAddPlain(dst, a, b, c, d element) {
	var t [2*maxDigits + 1]row
	for i := range b {
		addRow(t[i:], a, &b[i])
	}
	for i := range d {
		addRow(t[i:], c, &d[i])
	}
	var n [maxDigits]row
	for i, v := range f.m.n[:f.digits] {
		for lane := range Lanes {
			n[i][lane] = v
		}
	}
	for i := range f.digits {
		var m row
		for lane := range m {
			m[lane] = (t[i][lane] & digitMask) * f.m.k0 & digitMask
		}
		addRow(t[i:], n[:f.digits], &m)
		for lane := range m {
			t[i+1][lane] += t[i][lane] >> digitBits
		}
	}
	carrySigned(dst, t[f.digits:])
}

// addRow adds the products of a and one row to the columns of t.
func addRow(t []row, a element, by *row) {
	for j := range a {
		for lane, x := range a[j] {
			high, low := bits.Mul64(x, by[lane])
			t[j][lane] += low & digitMask
			t[j+1][lane] += high<<(64-digitBits) | low>>digitBits
		}
	}
}

// carrySigned sets dst to the digits of columns, which are signed. The number is not.
func carrySigned(dst element, t []row) {
	var carry [Lanes]int64
	for i := range dst {
		for lane, v := range t[i] {
			sum := int64(v) + carry[lane]
			dst[i][lane], carry[lane] = uint64(sum)&digitMask, sum>>digitBits
		}
	}
}

func (f *field) subtractPlain(dst, a, b element) {
	var t [maxDigits]row
	for i := range a {
		for lane := range Lanes {
			t[i][lane] = a[i][lane] - b[i][lane] + f.m.bias[i]
		}
	}
	carrySigned(dst, t[:])
}

// combinePlain replaces the bits q from 2^256 or 2^384 on by q*(2^256 - p) or q*(2^384 - p).
func (f *field) combinePlain(dst, a, b, c element) {
	var t [maxDigits]row
	for i := range a {
		for lane := range Lanes {
			t[i][lane] = a[i][lane] + b[i][lane] - 2*c[i][lane] + f.m.bias[i]
		}
	}
	top := f.digits - 1
	for lane := range Lanes {
		switch f.weak {
		case p256: // 2^224 - 2^192 - 2^96 + 1
			q := t[top][lane] >> 48
			t[4][lane] = t[4][lane]&(1<<48-1) + q<<16
			t[3][lane] -= q << 36
			t[1][lane] -= q << 44
			t[0][lane] += q
		case p384: // 2^128 + 2^96 - 2^32 + 1; one q less, as the carry may be negative
			q := uint64(int64(t[top][lane])>>20 - 1)
			t[7][lane] -= q << 20
			t[2][lane] += q << 24
			t[1][lane] += q << 44
			t[0][lane] += q - q<<32
		}
	}
	carrySigned(dst, t[:])
}

// choosePlain sets x and y to the entries of a window that index names, with -y where negative is 1.
func (f *field) choosePlain(x, y element, window []uint64, index, negative *row) {
	both := [2]element{x, y}
	for i := range 2 * f.digits {
		var found row
		for e, v := range window[i*tableEntries:][:tableEntries] {
			for lane, want := range index {
				differs := want ^ uint64(e)
				found[lane] |= v & ((differs|-differs)>>63 - 1)
			}
		}
		both[i/f.digits][i%f.digits] = found
	}
	f.negatePlain(y, y, negative)
}

// negatePlain sets dst to n - y where negative is 1. y is up to n there.
func (f *field) negatePlain(dst, y element, negative *row) {
	var t [maxDigits]row
	for i := range y {
		for lane, v := range y[i] {
			t[i][lane] = v ^ (v^(f.m.n[i]-v))&-negative[lane]
		}
	}
	carrySigned(dst, t[:])
}
