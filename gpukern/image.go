package gpukern

import (
	"encoding/binary"
	"unsafe"

	"github.com/millrace/millrace/gpukern/literal"
)

// Image is a table laid out for the kernels in gpukern/cuda: the C struct that describes it, and the
// arrays that the struct's pointers lead to. Whoever brings it to a device copies the parts there and
// writes their addresses into the struct.
type Image struct {
	Struct []byte // little-endian, with zeros where pointers go
	Parts  []Part
}

// Part is an array of an Image.
type Part = literal.Part

// u32 appends a field of four bytes; the caller keeps the C struct's alignment.
func (m *Image) u32(v uint32) { m.Struct = binary.LittleEndian.AppendUint32(m.Struct, v) }

// u64 appends a field of eight bytes.
func (m *Image) u64(v uint64) { m.Struct = binary.LittleEndian.AppendUint64(m.Struct, v) }

// pointer appends a pointer to data; to nothing where data is empty.
func (m *Image) pointer(data []byte) {
	if len(data) > 0 {
		m.Parts = append(m.Parts, Part{At: len(m.Struct), Data: data})
	}
	m.u64(0)
}

// join appends the struct of another image, which begins on a boundary of eight bytes, and its parts.
func (m *Image) join(o Image) {
	for len(m.Struct)%8 != 0 {
		m.Struct = append(m.Struct, 0)
	}
	for _, p := range o.Parts {
		m.Parts = append(m.Parts, Part{At: p.At + len(m.Struct), Data: p.Data})
	}
	m.Struct = append(m.Struct, o.Struct...)
}

// bytesOf borrows the memory of s.
func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
