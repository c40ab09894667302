package field25519

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Digits of the forms of eight lanes, and limbs of AVX2: a digit of 26 bits and one of 25.
const (
	digitBits = 52
	digitMask = 1<<digitBits - 1
	halfBits  = 51
	evenBits  = 26
	above260  = 19 << 5 // 2^260 modulo 2^255 - 19
)

// limbs is a number in five limbs of 52 or 51 bits.
type limbs [rows]uint64

// words returns the words of an element: row after row, lane after lane.
func (e Element) words() *[rows * MaxLanes]uint64 {
	return (*[rows * MaxLanes]uint64)(unsafe.Pointer(unsafe.SliceData(e[:rows])))
}

// setLimbs sets a lane.
func (f *Form) setLimbs(e Element, lane int, l *limbs) {
	w := e.words()
	for i, v := range l {
		if f.lanes == MaxLanes {
			w[i*MaxLanes+lane] = v
			continue
		}
		w[2*i*f.lanes+lane] = v & (1<<evenBits - 1)
		w[(2*i+1)*f.lanes+lane] = v >> evenBits
	}
}

// limbsOf returns a lane, whose limbs may be longer than the radix.
func (f *Form) limbsOf(e Element, lane int) (l limbs) {
	w := e.words()
	for i := range l {
		if f.lanes == MaxLanes {
			l[i] = w[i*MaxLanes+lane]
		} else {
			l[i] = w[2*i*f.lanes+lane] + w[(2*i+1)*f.lanes+lane]<<evenBits
		}
	}
	return l
}

// split returns the limbs of a number of 255 bits, little-endian. Its topmost bit is ignored.
func (f *Form) split(x *[Size]byte) (l limbs) {
	var w [5]uint64
	for i := range 4 {
		w[i] = binary.LittleEndian.Uint64(x[8*i:])
	}
	w[3] &= 1<<63 - 1
	for i := range l {
		at := uint(i) * f.radix
		word, shift := at/64, at%64
		v := w[word]>>shift | w[word+1]<<1<<(63-shift)
		l[i] = v & (1<<f.radix - 1)
	}
	return l
}

// Set sets a lane to a number, little-endian, whose topmost bit is ignored.
func (f *Form) Set(e Element, lane int, x *[Size]byte) {
	l := f.split(x)
	f.setLimbs(e, lane, &l)
}

// SetAll sets all lanes to a number.
func (f *Form) SetAll(e Element, x *[Size]byte) {
	for lane := range f.lanes {
		f.Set(e, lane, x)
	}
}

// CopyLane sets a lane of dst to one of src.
func (f *Form) CopyLane(dst Element, to int, src Element, from int) {
	d, s := dst.words(), src.words()
	for i := range len(d) / f.lanes {
		d[i*f.lanes+to] = s[i*f.lanes+from]
	}
}

// Bytes sets to to the number of a lane, below 2^255 - 19, little-endian.
func (f *Form) Bytes(to *[Size]byte, e Element, lane int) {
	w := f.sum(e, lane)
	top := w[3]>>63 | w[4]<<1 // the number is below 2^262: it is below 2^255 + 2^12 then
	w[3], w[4] = w[3]&(1<<63-1), 0
	addWord(&w, 19*top)
	// x + 19 has bit 255 if x is 2^255 - 19 or more: it is then x minus that, once the bit is gone.
	less := w
	addWord(&less, 19)
	reach := -(less[3] >> 63)
	less[3] &= 1<<63 - 1
	for i := range 4 {
		binary.LittleEndian.PutUint64(to[8*i:], w[i]^(w[i]^less[i])&reach)
	}
}

// sum returns the number of a lane in words of 64 bits.
func (f *Form) sum(e Element, lane int) (w [5]uint64) {
	for i, v := range f.limbsOf(e, lane) {
		at := uint(i) * f.radix
		word, shift := at/64, at%64
		var carry uint64
		w[word], carry = bits.Add64(w[word], v<<shift, 0)
		w[word+1], carry = bits.Add64(w[word+1], v>>1>>(63-shift), carry)
		for j := word + 2; j < 5; j++ {
			w[j], carry = bits.Add64(w[j], 0, carry)
		}
	}
	return w
}

func addWord(w *[5]uint64, v uint64) {
	var carry uint64
	w[0], carry = bits.Add64(w[0], v, 0)
	for j := 1; j < 5; j++ {
		w[j], carry = bits.Add64(w[j], 0, carry)
	}
}

// ifmaBias returns 2*(2^255 - 19) in digits, of which the topmost one is longer.
func ifmaBias() Element {
	e := Element(Rows(rows))
	l := limbs{digitMask - 37, digitMask, digitMask, digitMask, 1<<48 - 1}
	for lane := range MaxLanes {
		for i, v := range l {
			e[i][lane] = v
		}
	}
	return e
}

// avx2Bias is ifmaBias for AVX2. Each digit is twice that of 2^255 - 19, so that no difference of digits is negative.
func avx2Bias() Element {
	e := Element(Rows(rows))
	w := e.words()
	for i := range w {
		w[i] = 1<<27 - 2
		if i/4%2 != 0 {
			w[i] = 1<<26 - 2
		}
		if i < 4 {
			w[i] = 1<<27 - 38
		}
	}
	return e
}
