package expression

import "github.com/millrace/millrace/gpukern/image"

// Image lays the set out for the kernels: an array of struct gk_group of gpukern/cuda/expressions.cu, whose pointers lead
// to their tables.
func (s *Set) Image() image.Image {
	var m image.Image
	for i := range s.Groups() {
		g := &s.groups[i]
		m.Pointer(image.Bytes(g.next))
		m.Pointer(g.class[:])
		m.Pointer(image.Bytes(g.masks))
		m.Pointer(image.Bytes(g.final))
		m.U32(g.stride)
		m.U32(g.accept)
		m.U32(uint32(len(g.next)))
		m.U32(0)
	}
	return m
}

// Tables returns the words of the largest table of several expressions, which has the size that a block of a kernel
// keeps in shared memory; the tables of single expressions may be larger.
func (s *Set) Tables() (words int) {
	for i := range s.Groups() {
		if n := len(s.groups[i].next); n <= groupTable {
			words = max(words, n)
		}
	}
	return words
}

// Rule returns the rule of a bit of a group, by which kernels name it.
func (s *Set) Rule(group, bit uint32) uint32 { return s.groups[group].rules[bit] }
