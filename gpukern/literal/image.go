package literal

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/image"
)

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
func (s *Set) Image() image.Image {
	if s == nil {
		return image.Image{Struct: make([]byte, imageSize)}
	}
	m := image.Image{Struct: make([]byte, imageSize-16)}
	for _, v := range []uint32{s.bits(), s.slotShift, uint32(len(s.slots) - 1), s.classes} {
		m.Struct = binary.LittleEndian.AppendUint32(m.Struct, v)
	}
	m.Parts = []image.Part{
		{At: imageFilter, Data: image.Bytes(s.filter)},
		{At: imageSlots, Data: image.Bytes(s.slots)},
		{At: imageRecords, Data: image.Bytes(s.records)},
	}
	return m
}
