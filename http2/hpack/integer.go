package hpack

// MaxInteger is the largest integer that RFC 9204 4.1.1 demands, 62 bits.
const MaxInteger = 1<<62 - 1

// AppendInteger appends v with a prefix of so many bits; first has the bits above the prefix
// (RFC 7541 5.1):
//
//	first byte   |flags|  prefix  |   v if v < 2^bits-1, else all ones and then v-(2^bits-1)
//	other bytes  |more |  7 bits  |   least significant first
func AppendInteger(dst []byte, first byte, bits uint, v uint64) []byte {
	limit := uint64(1)<<bits - 1
	if v < limit {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(limit))
	for v -= limit; v >= 0x80; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v))
}

// Status is the outcome of parsing something that may be cut.
type Status uint8

// Values of Status.
const (
	OK      Status = iota // complete
	Cut                   // there is not all of it yet
	Invalid               // it cannot become valid
)

// ParseString parses a string literal (RFC 7541 5.2): a Huffman bit above a length with a prefix of so many bits. n is the size
// of all of it; where it is cut, n is the length that it states, at most 2^31.
func ParseString(p []byte, bits uint) (text []byte, coded bool, n int, s Status) {
	length, n, s := Integer(p, bits)
	if s != OK {
		return nil, false, 0, s
	}
	coded = p[0]>>bits&1 == 1
	if length > uint64(len(p)-n) {
		return nil, coded, int(min(length, 1<<31)), Cut
	}
	end := n + int(length)
	return p[n:end], coded, end, OK
}

// Integer parses an integer with a prefix of so many bits and returns it and its size in bytes. One of more
// than 62 bits, or with so many bytes that it could have more, is invalid (RFC 7541 5.1).
func Integer(p []byte, bits uint) (v uint64, n int, s Status) {
	if len(p) == 0 {
		return 0, 0, Cut
	}
	limit := uint64(1)<<bits - 1
	v = uint64(p[0]) & limit
	if v < limit {
		return v, 1, OK
	}
	return longInteger(p, v)
}

// longInteger parses the bytes after a prefix of all ones.
func longInteger(p []byte, v uint64) (uint64, int, Status) {
	for n, shift := 1, uint(0); n < len(p); n, shift = n+1, shift+7 {
		if shift > 56 {
			return 0, 0, Invalid
		}
		// Below 2^8 + 2^63: no overflow.
		v += uint64(p[n]&0x7F) << shift
		if v > MaxInteger {
			return 0, 0, Invalid
		}
		if p[n]&0x80 == 0 {
			return v, n + 1, OK
		}
	}
	if len(p) > 9 {
		return 0, 0, Invalid
	}
	return 0, 0, Cut
}
