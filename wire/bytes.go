package wire

import "encoding/binary"

// Header fields are big endian (RFC 791 Appendix B). The accessors go through these, which the compiler
// turns into one load or store with a byte swap.

func u16(b []byte, i int) uint16 { return binary.BigEndian.Uint16(b[i:]) }

func u24(b []byte, i int) uint32 { return uint32(b[i])<<16 | uint32(u16(b, i+1)) }

func u32(b []byte, i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }

func put16(b []byte, i int, v uint16) { binary.BigEndian.PutUint16(b[i:], v) }

func put24(b []byte, i int, v uint32) { b[i], b[i+1], b[i+2] = byte(v>>16), byte(v>>8), byte(v) }

func put32(b []byte, i int, v uint32) { binary.BigEndian.PutUint32(b[i:], v) }

func appendU16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }

func appendU32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
