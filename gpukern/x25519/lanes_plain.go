package x25519

import "math/bits"

// This file has the arithmetic of all lanes in Go: the meaning of the vector forms, which tests compare with it. crypto/ecdh is
// faster than it.

func multiplyPlain(dst, a, b element) {
	var t [2 * digits]row
	for i := range b {
		for j := range a {
			for lane := range Lanes {
				high, low := bits.Mul64(a[j][lane], b[i][lane])
				t[i+j][lane] += low & digitMask
				t[i+j+1][lane] += high<<(64-digitBits) | low>>digitBits
			}
		}
	}
	carry(t[digits:])
	var above row
	for i := range digits {
		for lane := range Lanes {
			high, low := bits.Mul64(t[digits+i][lane], above260)
			t[i][lane] += low & digitMask
			high = high<<(64-digitBits) | low>>digitBits
			if i+1 < digits {
				t[i+1][lane] += high
			} else {
				above[lane] = high
			}
		}
	}
	finishPlain(dst, t[:digits], &above)
}

// finishPlain makes digits of columns t and above times 2^260.
func finishPlain(dst element, t []row, above *row) {
	for lane := range Lanes {
		top := t[digits-1][lane]
		t[digits-1][lane] = top & (digitMask >> 5)
		t[0][lane] += 19 * (top>>47 + above[lane]<<5)
	}
	carry(t)
	copy(dst, t)
}

// carry makes digits of columns, which are signed, but for the last one.
func carry(t []row) {
	for i := range len(t) - 1 {
		for lane, v := range t[i] {
			t[i][lane] = v & digitMask
			t[i+1][lane] += uint64(int64(v) >> digitBits)
		}
	}
}

func scalePlain(dst, a, b element, factors *row) {
	var t [digits + 1]row
	copy(t[:], b)
	for i := range a {
		for lane, v := range a[i] {
			high, low := bits.Mul64(v, factors[lane])
			t[i][lane] += low & digitMask
			t[i+1][lane] += high<<(64-digitBits) | low>>digitBits
		}
	}
	finishPlain(dst, t[:digits], &t[digits])
}

func addSubtractPlain(sum, difference, a, b element) {
	for i := range a {
		for lane := range Lanes {
			x, y := a[i][lane], b[i][lane]
			sum[i][lane], difference[i][lane] = x+y, x-y+bias[i][lane]
		}
	}
	carry(sum)
	carry(difference)
}

func swapPlain(a, b []row, swap *row) {
	for i := range a {
		for lane, s := range swap {
			differ := (a[i][lane] ^ b[i][lane]) & -s
			a[i][lane] ^= differ
			b[i][lane] ^= differ
		}
	}
}

func butterflyPlain(dst, src element, index *row, sums uint64) {
	var d [digits]row
	for i := range src {
		for lane := range Lanes {
			t, u := src[i][index[lane]], src[i][index[lane^1]]
			switch {
			case lane&1 != 0:
				t = u - t + bias[i][lane]
			case sums>>lane&1 != 0:
				t += u
			}
			d[i][lane] = t
		}
	}
	carry(d[:])
	copy(dst, d[:])
}

func permutePlain(dst, src element, index *row, keep uint64) {
	var d [digits]row
	for i := range src {
		for lane := range Lanes {
			d[i][lane] = src[i][index[lane]] & -(keep >> lane & 1)
		}
	}
	copy(dst, d[:])
}
