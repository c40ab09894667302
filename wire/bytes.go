package wire

// Header fields are big endian (RFC 791 Appendix B). The accessors go through these, which the
// compiler turns into one load or store with a byte swap.

func u16(b []byte, i int) uint16 { return uint16(b[i+1]) | uint16(b[i])<<8 }

func u32(b []byte, i int) uint32 {
	_ = b[i+3]
	return uint32(b[i+3]) | uint32(b[i+2])<<8 | uint32(b[i+1])<<16 | uint32(b[i])<<24
}

func u24(b []byte, i int) uint32 {
	return uint32(b[i+2]) | uint32(b[i+1])<<8 | uint32(b[i])<<16
}

func put16(b []byte, i int, v uint16) { b[i], b[i+1] = byte(v>>8), byte(v) }

func put24(b []byte, i int, v uint32) { b[i], b[i+1], b[i+2] = byte(v>>16), byte(v>>8), byte(v) }

func put32(b []byte, i int, v uint32) {
	_ = b[i+3]
	b[i], b[i+1], b[i+2], b[i+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
}

func u64(b []byte, i int) uint64 { return uint64(u32(b, i))<<32 | uint64(u32(b, i+4)) }
