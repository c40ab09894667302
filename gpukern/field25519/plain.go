package field25519

import (
	"math/bits"
	"unsafe"
)

// This file has the arithmetic of eight lanes in Go: the meaning of the vector forms, which tests compare with it. The standard
// library is faster than it.

var plainForm = &Form{
	name: "plain", lanes: MaxLanes, radix: digitBits, bias: ifmaBias(), run: true,
	multiply: multiplyPlain, square: squarePlain, scale: scalePlain, addSubtract: addSubtractPlain, swap: swapPlain,
	choose: choosePlain, gather: gatherPlain, butterfly: butterflyPlain, permute: permutePlain,
}

// at returns n rows from p on.
func at(p *Row, n int) []Row { return unsafe.Slice(p, n) }

func squarePlain(dst, a *Row) { multiplyPlain(dst, a, a) }

func multiplyPlain(dst, a, b *Row) {
	var t [2 * rows]Row
	for i, y := range at(b, rows) {
		for j, x := range at(a, rows) {
			for lane := range MaxLanes {
				high, low := bits.Mul64(x[lane], y[lane])
				t[i+j][lane] += low & digitMask
				t[i+j+1][lane] += high<<(64-digitBits) | low>>digitBits
			}
		}
	}
	carry(t[rows:])
	var above Row
	for i := range rows {
		for lane := range MaxLanes {
			high, low := bits.Mul64(t[rows+i][lane], above260)
			t[i][lane] += low & digitMask
			high = high<<(64-digitBits) | low>>digitBits
			if i+1 < rows {
				t[i+1][lane] += high
			} else {
				above[lane] = high
			}
		}
	}
	finishPlain(at(dst, rows), t[:rows], &above)
}

// finishPlain makes digits of columns t and above times 2^260.
func finishPlain(dst, t []Row, above *Row) {
	for lane := range MaxLanes {
		top := t[rows-1][lane]
		t[rows-1][lane] = top & (digitMask >> 5)
		t[0][lane] += 19 * (top>>47 + above[lane]<<5)
	}
	carry(t)
	copy(dst, t)
}

// carry makes digits of columns, which are signed, but for the last one.
func carry(t []Row) {
	for i := range len(t) - 1 {
		for lane, v := range t[i] {
			t[i][lane] = v & digitMask
			t[i+1][lane] += uint64(int64(v) >> digitBits)
		}
	}
}

func scalePlain(dst, a, b, factors *Row) {
	var t [rows + 1]Row
	copy(t[:], at(b, rows))
	for i, x := range at(a, rows) {
		for lane, v := range x {
			high, low := bits.Mul64(v, factors[lane])
			t[i][lane] += low & digitMask
			t[i+1][lane] += high<<(64-digitBits) | low>>digitBits
		}
	}
	finishPlain(at(dst, rows), t[:rows], &t[rows])
}

func addSubtractPlain(sum, difference, a, b, bias *Row) {
	var s, d [rows]Row
	copy(s[:], at(a, rows))
	copy(d[:], at(b, rows))
	for i := range rows {
		for lane := range MaxLanes {
			x, y := s[i][lane], d[i][lane]
			s[i][lane], d[i][lane] = x+y, x-y+at(bias, rows)[i][lane]
		}
	}
	carry(s[:])
	carry(d[:])
	copy(at(sum, rows), s[:])
	copy(at(difference, rows), d[:])
}

func swapPlain(a, b, swap *Row) {
	x, y := at(a, 2*rows), at(b, 2*rows)
	for i := range x {
		for lane, s := range swap {
			differ := (x[i][lane] ^ y[i][lane]) & -s
			x[i][lane] ^= differ
			y[i][lane] ^= differ
		}
	}
}

func choosePlain(dst *Row, window *uint64, index *Row) {
	d, words := at(dst, EntryWords), unsafe.Slice(window, EntryWords*Entries)
	clear(d)
	for i := range d {
		for e, v := range words[i*Entries:][:Entries] {
			for lane, want := range index {
				differs := want ^ uint64(e)
				keep := (differs | -differs) >> 63 // 0 for this entry
				d[i][lane] |= v & (keep - 1)
			}
		}
	}
}

func gatherPlain(dst *Row, base *uint64, offsets *Row, words, stride uint64) {
	for i, d := range at(dst, int(words)) {
		for lane, offset := range offsets {
			d[lane] = *(*uint64)(unsafe.Add(unsafe.Pointer(base), offset+uint64(i)*stride))
		}
		at(dst, int(words))[i] = d
	}
}

func butterflyPlain(dst, src, index, bias *Row, sums uint64) {
	var d [rows]Row
	for i, s := range at(src, rows) {
		for lane := range MaxLanes {
			t, u := s[index[lane]], s[index[lane^1]]
			switch {
			case lane&1 != 0:
				t = u - t + at(bias, rows)[i][lane]
			case sums>>lane&1 != 0:
				t += u
			}
			d[i][lane] = t
		}
	}
	carry(d[:])
	copy(at(dst, rows), d[:])
}

func permutePlain(dst, src, index *Row, keep uint64) {
	var d [rows]Row
	for i, s := range at(src, rows) {
		for lane := range MaxLanes {
			d[i][lane] = s[index[lane]] & -(keep >> lane & 1)
		}
	}
	copy(at(dst, rows), d[:])
}
