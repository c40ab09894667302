package literal

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// entry is a pattern on its way into the tables.
type entry struct {
	text []byte // lower case where letters match in either
	fold uint64 // bit i: text[i] is such a letter
	rule uint32
}

// anchor is a window by which an entry is found.
type anchor struct {
	*entry
	before int // where it begins
	tag    uint32
}

// class returns the class of the anchor.
func (e *entry) class() int { return classOf(len(e.text)) }

// Compile compiles patterns; their order means nothing, and repetitions are dropped. The error is a
// *PatternError that names the first pattern in the way. A set of no patterns finds nothing.
func Compile(patterns []Pattern) (*Set, error) {
	if len(patterns) > MaxPatterns {
		return nil, &PatternError{MaxPatterns + 1, fmt.Sprintf("a set has at most %d patterns", MaxPatterns)}
	}
	entries := make([]entry, 0, len(patterns))
	for i := range patterns {
		if reason := patterns[i].check(); reason != "" {
			return nil, &PatternError{i + 1, reason}
		}
		entries = append(entries, newEntry(&patterns[i]))
	}
	slices.SortFunc(entries, entry.order)
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.order(b) == 0 })
	s := &Set{patterns: len(entries), id: ids.Add(1)}
	s.store(s.anchor(entries))
	return s, nil
}

func newEntry(p *Pattern) entry {
	e := entry{text: slices.Clone(p.Bytes), rule: p.Rule}
	for i, c := range e.text {
		if p.NoCase && isLetter(c) {
			e.text[i] = c | 0x20
			e.fold |= 1 << i
		}
	}
	return e
}

// order compares short patterns before long ones, as they have fewer windows to choose from.
func (e entry) order(o entry) int {
	return cmp.Or(cmp.Compare(len(e.text), len(o.text)), bytes.Compare(e.text, o.text),
		cmp.Compare(e.fold, o.fold), cmp.Compare(e.rule, o.rule))
}

// The CPU's filter has eight words for each pattern, from what a first-level cache has room for up to what
// stays in a second-level cache beside all else. That of kernels shares an SM's memory with texts.
const (
	minBits   = 12
	maxBits   = 16
	imageBits = 14
)

// filterBits returns the size of the CPU's filter.
func filterBits(patterns int) uint32 {
	return uint32(min(max(bits.Len(uint(32*patterns)), minBits), maxBits))
}

// anchor chooses the anchors of the entries and fills the filters.
func (s *Set) anchor(entries []entry) []anchor {
	c := newChooser(filterBits(len(entries)), entries)
	s.filter = make([]uint32, 1<<min(c.bits, imageBits))
	anchors := make([]anchor, 0, 2*len(entries))
	for i := range entries {
		e := &entries[i]
		s.classes |= 1 << e.class()
		chosen := c.choose(e)
		s.mark(chosen[0])
		anchors = append(anchors, chosen...)
	}
	s.pairs = c.pairFilter
	return anchors
}

// mark enters a in the filter of kernels.
func (s *Set) mark(a anchor) {
	h4, h8 := hashes(a.at(a.before))
	set := ^uint32(0)
	switch a.class() {
	case class8:
		set = bits8(h8)
	case class4:
		set = bits4(h4)
	case class3:
		if s.threes == nil {
			s.threes = new(bitmap)
		}
		s.threes.set(h4 << 8)
	}
	s.filter[word(h4, s.bits())] |= set
}

// store lays out the records by tag and fills the slots.
func (s *Set) store(anchors []anchor) {
	slices.SortStableFunc(anchors, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.rule, b.rule))
	})
	s.slots = make([]slot, 2<<bits.Len(uint(len(anchors))))
	s.slotShift = uint32(32 - bits.Len(uint(len(s.slots)-1)))
	s.records = make([]uint64, 2, 2+6*len(anchors))
	for i := range anchors {
		a := &anchors[i]
		if i == 0 || anchors[i-1].tag != a.tag {
			s.insert(slot{a.tag, uint32(len(s.records) / 2)})
		}
		more := i+1 < len(anchors) && anchors[i+1].tag == a.tag
		s.records = a.appendRecord(s.records, more)
	}
}

// insert puts v in the first empty slot from its own.
func (s *Set) insert(v slot) {
	i := v.tag >> s.slotShift
	for s.slots[i].at != 0 {
		i = (i + 1) & uint32(len(s.slots)-1)
	}
	s.slots[i] = v
}

// appendRecord appends what tables.go draws.
func (a *anchor) appendRecord(to []uint64, more bool) []uint64 {
	quads := 1 + (len(a.text)+15)/16
	head := uint64(a.rule) | uint64(len(a.text))<<32 | uint64(a.before)<<40 | uint64(quads)<<56
	if more {
		head |= 1 << 48
	}
	to = append(to, head, a.fold)
	for i := range 2 * (quads - 1) {
		to = append(to, load(a.text, 8*i))
	}
	return to
}

// load returns the eight bytes of b from at on, little-endian, with zeros for those behind its end.
func load(b []byte, at int) (v uint64) {
	for i := range min(8, len(b)-at) {
		v |= uint64(b[at+i]) << (8 * i)
	}
	return v
}
