package fec

// GF(2^8) with the polynomial x^8+x^4+x^3+x^2+1, as RFC 8681 3.7 has it. Addition is XOR.
const polynomial = 0x11d

// products are a*b for all a and b, in rows of one factor: 64 KiB.
var products = multiplicationTable()

// inverses are 1/a.
var inverses = inverseTable()

func multiply(a, b byte) (p byte) {
	for x := uint16(a); b != 0; b >>= 1 {
		if b&1 != 0 {
			p ^= byte(x)
		}
		if x <<= 1; x&0x100 != 0 {
			x ^= polynomial
		}
	}
	return p
}

func multiplicationTable() *[256][256]byte {
	t := new([256][256]byte)
	for a := range t {
		for b := range t[a] {
			t[a][b] = multiply(byte(a), byte(b))
		}
	}
	return t
}

func inverseTable() (t [256]byte) {
	for a := 1; a < 256; a++ {
		for b := 1; b < 256; b++ {
			if products[a][b] == 1 {
				t[a] = byte(b)
			}
		}
	}
	return t
}

// addScaled adds c*src to dst, which is at least as long.
func addScaled(dst, src []byte, c byte) {
	switch c {
	case 0:
	case 1:
		for i, b := range src {
			dst[i] ^= b
		}
	default:
		row := &products[c]
		for i, b := range src {
			dst[i] ^= row[b]
		}
	}
}

// scale multiplies b by c.
func scale(b []byte, c byte) {
	row := &products[c]
	for i := range b {
		b[i] = row[b[i]]
	}
}
