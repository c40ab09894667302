// Package image lays tables out for the kernels in gpukern/cuda, which read the same arrays as the CPU does.
// Packages of tables describe themselves as an Image; gpukern/cuda copies it to a device. It has no
// knowledge of any table.
package image

import (
	"encoding/binary"
	"unsafe"
)

// Image is a table laid out for the kernels in gpukern/cuda: the C struct that describes it, and the
// arrays that the struct's pointers lead to. Whoever brings it to a device copies the parts there and
// writes their addresses into the struct.
type Image struct {
	Struct []byte // little-endian, with zeros where pointers go
	Parts  []Part
}

// Part is an array of an Image.
type Part struct {
	At   int    // offset in Image.Struct of the eight bytes that point to the array
	Data []byte // borrowed from the table; to lie on a boundary of at least 16 bytes
}

// U32 appends a field of four bytes; the caller keeps the C struct's alignment.
func (m *Image) U32(v uint32) { m.Struct = binary.LittleEndian.AppendUint32(m.Struct, v) }

// U64 appends a field of eight bytes.
func (m *Image) U64(v uint64) { m.Struct = binary.LittleEndian.AppendUint64(m.Struct, v) }

// Pointer appends a pointer to data; to nothing where data is empty.
func (m *Image) Pointer(data []byte) {
	if len(data) > 0 {
		m.Parts = append(m.Parts, Part{At: len(m.Struct), Data: data})
	}
	m.U64(0)
}

// Join appends the struct of another image, which begins on a boundary of eight bytes, and its parts.
func (m *Image) Join(o Image) {
	for len(m.Struct)%8 != 0 {
		m.Struct = append(m.Struct, 0)
	}
	for _, p := range o.Parts {
		m.Parts = append(m.Parts, Part{At: p.At + len(m.Struct), Data: p.Data})
	}
	m.Struct = append(m.Struct, o.Struct...)
}

// Bytes borrows the memory of s.
func Bytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// Over borrows the start of mem as n values of T, which has no pointers.
func Over[T any](mem []byte, n int) []T {
	_ = mem[:n*int(unsafe.Sizeof(*new(T)))]
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n)
}
