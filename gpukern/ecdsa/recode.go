package ecdsa

// recoding of a number k as signed odd digits: sum of d[w] * 2^(bits*w) with d[w] odd, and -2^bits < d[w] < 2^bits.
//
// Every odd k below 2^L is the sum of s[j] * 2^j over j < L with s[j] = 1 or -1: s[j] is 1 where bit j+1 of k is, and the
// topmost is 1. So the digits are the windows of K = k/2 + 2^(L-1): a window v is the digit 2v + 1 - 2^bits. Its topmost
// bit is its sign. For an even k, n - k is odd: the digits are those of -k modulo n.
type recoding struct {
	digits  [maxDigits + 1]uint64 // of K
	bits    int
	windows int
	odd     uint64 // 1 if k was, else the digits are those of -k
}

// recode recodes k, which is 0 < k < n, in constant time.
func (f *field) recode(k []uint64, bits, windows int) (r recoding) {
	r.bits, r.windows, r.odd = bits, windows, k[0]&1
	even := r.odd - 1 // all ones if it is
	var borrow uint64
	for i, v := range k {
		negative := f.m.n[i] - v - borrow
		borrow = negative >> 63
		r.digits[i] = v ^ (v^negative&digitMask)&even
	}
	for i := range k {
		r.digits[i] = r.digits[i]>>1 | r.digits[i+1]&1<<(digitBits-1)
	}
	top := bits*windows - 1
	r.digits[top/digitBits] |= 1 << (top % digitBits)
	return r
}

// window returns the entry of a table for window w, and 1 if it is to be negated.
func (r *recoding) window(w int) (index, negative uint64) {
	at := w * r.bits
	v := r.digits[at/digitBits] >> (at % digitBits)
	if beyond := at%digitBits + r.bits - digitBits; beyond > 0 {
		v |= r.digits[at/digitBits+1] << (r.bits - beyond)
	}
	half := uint64(1)<<(r.bits-1) - 1
	negative = v>>(r.bits-1)&1 ^ 1
	return v&half ^ half&-negative, negative
}
