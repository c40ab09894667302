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
		m.Pointer(image.Bytes(g.idle))
		m.U32(g.stride)
		m.U32(g.accept)
		m.U32(uint32(len(g.next)))
		m.U32(g.rest)
		m.U32(g.reciprocal)
		m.U32(g.full)
		if i < s.filtered {
			m.U32(uint32(s.filter.tails[i]))
		} else {
			m.U32(0)
		}
		m.U32(uint32(len(g.masks)))
	}
	return m
}

// FilterImage lays the filter out for the kernels: struct gk_filter of gpukern/cuda/expressions.cu.
func (s *Set) FilterImage() image.Image {
	f := &s.filter
	var m image.Image
	m.Pointer(image.Bytes(f.bloom))
	m.Pointer(image.Bytes(f.slots))
	m.Pointer(image.Bytes(f.uses))
	m.U32(f.bloomShift)
	m.U32(f.slotShift)
	return m
}

// FilterBytes returns the size of the filter's first table, which a block of a kernel keeps in shared memory.
func (s *Set) FilterBytes() int { return 4 * len(s.filter.bloom) }

// MarkWords returns the words of marks that a piece of a size takes for each filtered automaton.
func MarkWords(size int) int { return words(size) }

// Class is automata that kernels run in one launch: by their numbers, those that take longest first.
type Class struct {
	Groups []uint32
	Bytes  int // of the largest table and its masks, which a block of a kernel keeps in shared memory
}

// Classes returns the automata of single expressions that are larger than those of several may be, and the others. One without
// automata is left out.
func (s *Set) Classes() (all []Class) {
	var c [2]Class
	for i := s.Groups() - 1; i >= 0; i-- { // the filtered ones come last
		k := &c[1]
		if len(s.groups[i].next) > groupTable {
			k = &c[0]
		}
		k.Groups = append(k.Groups, uint32(i))
		k.Bytes = max(k.Bytes, 2*len(s.groups[i].next)+4*len(s.groups[i].masks))
	}
	for _, k := range c {
		if len(k.Groups) > 0 {
			all = append(all, k)
		}
	}
	return all
}

// Rule returns the rule of a bit of a group, by which kernels name it.
func (s *Set) Rule(group, bit uint32) uint32 { return s.groups[group].rules[bit] }
