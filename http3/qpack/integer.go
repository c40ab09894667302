package qpack

// maxInteger is the largest integer that RFC 9204 4.1.1 demands, 62 bits.
const maxInteger = 1<<62 - 1

// appendInteger appends v with a prefix of so many bits; first has the bits above the prefix
// (RFC 7541 5.1):
//
//	first byte   |flags|  prefix  |   v if v < 2^bits-1, else all ones and then v-(2^bits-1)
//	other bytes  |more |  7 bits  |   least significant first
func appendInteger(dst []byte, first byte, bits uint, v uint64) []byte {
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

// status is the outcome of parsing something that may be cut.
type status uint8

const (
	ok status = iota
	cut
	invalid
)

// integer parses an integer with a prefix of so many bits and returns it and its size in bytes. One of more
// than 62 bits, or with so many bytes that it could have more, is invalid (RFC 7541 5.1).
func integer(p []byte, bits uint) (v uint64, n int, s status) {
	if len(p) == 0 {
		return 0, 0, cut
	}
	limit := uint64(1)<<bits - 1
	v = uint64(p[0]) & limit
	if v < limit {
		return v, 1, ok
	}
	return longInteger(p, v)
}

// longInteger parses the bytes after a prefix of all ones.
func longInteger(p []byte, v uint64) (uint64, int, status) {
	for n, shift := 1, uint(0); n < len(p); n, shift = n+1, shift+7 {
		if shift > 56 {
			return 0, 0, invalid
		}
		// Below 2^8 + 2^63: no overflow.
		v += uint64(p[n]&0x7F) << shift
		if v > maxInteger {
			return 0, 0, invalid
		}
		if p[n]&0x80 == 0 {
			return v, n + 1, ok
		}
	}
	if len(p) > 9 {
		return 0, 0, invalid
	}
	return 0, 0, cut
}
