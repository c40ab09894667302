package montgomery

import "math/bits"

// This file has the products of all lanes in Go: the meaning of the vector forms, which tests compare with it, and the form
// of CPUs without them. There crypto/rsa is faster.

func multiplyPlain(t, a, b []row) {
	clear(t)
	for i := range b {
		addRow(t[i:], a, &b[i])
	}
}

// addRow adds the products of a and one row to the columns of t.
func addRow(t, a []row, by *row) {
	for j := range a {
		for lane, x := range a[j] {
			high, low := bits.Mul64(x, by[lane])
			t[j][lane] += low & digitMask
			t[j+1][lane] += high<<(64-digitBits) | low>>digitBits
		}
	}
}

func reducePlain(dst, t, modulus []row, k0 *row) {
	n := len(modulus)
	for i := range n {
		var m row
		for lane, k := range k0 {
			m[lane] = (t[i][lane] & digitMask) * k & digitMask
		}
		addRow(t[i:], modulus, &m)
		for lane := range m {
			t[i+1][lane] += t[i][lane] >> digitBits
		}
	}
	var carry row
	for i := range dst {
		for lane, v := range t[n+i] {
			v += carry[lane]
			dst[i][lane], carry[lane] = v&digitMask, v>>digitBits
		}
	}
}

func choosePlain(dst, table []row, index *row, entries int) {
	clear(dst)
	for e := range entries {
		entry := table[e*len(dst):][:len(dst)]
		for lane, want := range index {
			differs := want ^ uint64(e)
			keep := (differs | -differs) >> 63 // 0 for this entry
			for i := range dst {
				dst[i][lane] |= entry[i][lane] & (keep - 1)
			}
		}
	}
}
