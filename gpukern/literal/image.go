package literal

import (
	"encoding/binary"
	"unsafe"
)

// Image is a set laid out for kernels: the C struct gk_literals, and the arrays that its pointers lead
// to. It has the form of gpukern.Image, which says more.
type Image struct {
	Struct []byte // little-endian, with zeros where pointers go
	Parts  []Part
}

// Part is an array of an Image.
type Part struct {
	At   int    // offset in Image.Struct of the eight bytes that point to the array
	Data []byte // borrowed from the set; to lie on a boundary of at least 16 bytes
}

// Offsets in struct gk_literals and its size. tables.go says what the arrays hold.
//
//	struct gk_literals {
//		const u32 *filter;              // 1 << bits words, at most 64 KB: meant for shared memory
//		const struct gk_slot *slots;    // { u32 tag, at; }
//		const struct gk_quad *records;
//		u32 bits;
//		u32 slot_shift;                 // slot = tag >> slot_shift, then the next, from the end to the front
//		u32 slot_mask;                  // slots - 1
//		u32 classes;                    // bits 0, 1, 2: there are anchors of 3, 4, 8 bytes
//	};
const (
	imageFilter  = 0
	imageSlots   = 8
	imageRecords = 16
	imageSize    = 40
)

// Image returns the set as kernels read it. A nil set has no classes: it finds nothing.
func (s *Set) Image() Image {
	if s == nil {
		return Image{Struct: make([]byte, imageSize)}
	}
	m := Image{Struct: make([]byte, imageSize-16)}
	for _, v := range []uint32{s.bits(), s.slotShift, uint32(len(s.slots) - 1), s.classes} {
		m.Struct = binary.LittleEndian.AppendUint32(m.Struct, v)
	}
	m.Parts = []Part{
		{imageFilter, bytesOf(s.filter)},
		{imageSlots, bytesOf(s.slots)},
		{imageRecords, bytesOf(s.records)},
	}
	return m
}

// bytesOf borrows the memory of s, which is not empty.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
