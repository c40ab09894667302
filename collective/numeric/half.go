package numeric

import "math"

// Formats of IEEE 754 (2019), 3.4 and 3.6:
//
//	binary32   1 sign   8 exponent, bias 127   23 fraction
//	binary16   1 sign   5 exponent, bias 15    10 fraction
//	bfloat16   1 sign   8 exponent, bias 127    7 fraction

// Float32 returns the value, exactly.
func (h Half) Float32() float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0x1f: // infinity, or NaN, which keeps its payload and becomes quiet
		if fraction != 0 {
			fraction |= 0x200
		}
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	case 0: // zero or subnormal: fraction x 2^-24
		f := float32(fraction) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// HalfOf returns the binary16 nearest to f, ties to even (IEEE 754, 4.3.1). Beyond 65504 that is infinity from 65520 on.
func HalfOf(f float32) Half {
	b := math.Float32bits(f)
	sign, b := Half(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b > 0x7f800000: // NaN, quiet
		return sign | 0x7e00 | Half(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14: normal
		b += 0xfff + b>>13&1 // carries into the exponent
		return sign | Half((b-(127-15)<<23)>>13)
	case b < 0x33000000: // below 2^-25, half of the smallest subnormal
		return sign
	}
	// Subnormal: the fraction with its leading one, shifted right to units of 2^-24.
	shift := 126 - b>>23
	m := b&0x7fffff | 0x800000
	whole, rest, tie := m>>shift, m&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > tie || rest == tie && whole&1 == 1 {
		whole++
	}
	return sign | Half(whole)
}

// Float32 returns the value, exactly.
func (b Brain) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BrainOf returns the bfloat16 nearest to f, ties to even. A NaN stays one and becomes quiet.
func BrainOf(f float32) Brain {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return Brain(b>>16) | 0x40
	}
	return Brain((b + 0x7fff + b>>16&1) >> 16)
}
