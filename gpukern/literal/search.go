package literal

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// probe is an anchor that may be there: what the filter has passed.
type probe struct {
	at  uint32 // position of the window
	tag uint32
}

// probeQueue bounds the probes that wait: reads of as many slots are under way at once.
const probeQueue = 48

// search looks for the patterns with anchors at the positions of the bits in masks, counted from
// from.
func (s *Set) search(v *view, from int, masks []uint64, l *list) {
	var queue [probeQueue]probe
	n := 0
	for i, m := range masks {
		for ; m != 0; m &= m - 1 {
			n += s.probes(v.text, from+64*i+bits.TrailingZeros64(m), (*[classes]probe)(queue[n:]))
			if n > probeQueue-classes {
				s.lookUp(v, queue[:n], l)
				n = 0
			}
		}
	}
	s.lookUp(v, queue[:n], l)
}

// probes stores in to those of position p, at most one of each class, and returns how many.
func (s *Set) probes(text []byte, p int, to *[classes]probe) int {
	w := loadText(text, p) | lowerCase
	h4, h8 := hashes(w)
	may8, may4 := s.pairs.at(p, w, h4, h8)
	n := may8 & (s.classes >> class8)
	to[0] = probe{uint32(p), mix(class8, h8)}
	to[n] = probe{uint32(p), mix(class4, h4)}
	n += may4 & (s.classes >> class4)
	to[n] = probe{uint32(p), mix(class3, h4<<8)}
	return int(n + may4&s.threes.has(h4<<8))
}

// lookUp reads the slots of the probes in queue and compares the records of those that are there.
func (s *Set) lookUp(v *view, queue []probe, l *list) {
	slots, shift := s.slots, s.slotShift&31
	for _, q := range queue {
		i := q.tag >> shift
		e := slots[i]
		for e.at != 0 && e.tag != q.tag {
			i = (i + 1) & uint32(len(slots)-1)
			e = slots[i]
		}
		if e.at != 0 {
			s.compare(v, int(q.at), e.at, l)
		}
	}
}

// loadText is load for what is rarely near its end.
func loadText(b []byte, at int) uint64 {
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])
	}
	return load(b, at)
}

// compare adds to the list those records from quad at on that match around p.
func (s *Set) compare(v *view, p int, at uint32, l *list) {
	for {
		r := s.records[2*at:]
		head := r[0]
		size := int(head >> 32 & 0xff)
		start := p - int(head>>40&0xff)
		end := start + size
		if start >= v.first && end > v.skip && end <= len(v.text) && equal(r, v.text[start:end]) {
			l.add(Occurrence{uint32(end - v.skip), uint32(head)})
		}
		if head>>48&1 == 0 {
			return
		}
		at += uint32(head >> 56)
	}
}

// equalPlain compares the bytes of record r with t, eight at a time.
func equalPlain(r []uint64, t []byte) bool {
	fold := r[1]
	for i := 0; i < len(t); i += 8 {
		d := r[2+i/8] ^ loadText(t, i)
		if d&^caseBits(uint8(fold>>i)) != 0 {
			return false
		}
	}
	return true
}

// caseBits returns 0x20 in those bytes whose bits are set in m.
func caseBits(m uint8) uint64 {
	const spread = 0x00204081 // four bits to the lowest of four bytes
	lo, hi := uint64(m&15)*spread&0x01010101, uint64(m>>4)*spread&0x01010101
	return (lo | hi<<32) << 5
}

// list collects matches in order and keeps the first ones. Anchors are found in the order of their
// windows, which is nearly that of their ends: a match goes in from the back.
type list struct {
	m     []Occurrence
	base  int // of m: what lies before is the caller's
	limit int // 0 is none
}

// add puts m in its place, unless it is there already or comes after all that will be reported.
func (l *list) add(m Occurrence) {
	if len(l.m) == l.base || l.m[len(l.m)-1].before(m) {
		if !l.over() {
			l.m = append(l.m, m)
		}
		return
	}
	at := len(l.m)
	for at > l.base && m.before(l.m[at-1]) {
		at--
	}
	if at > l.base && l.m[at-1] == m {
		return
	}
	if l.over() {
		l.m = l.m[:len(l.m)-1]
	}
	l.m = slices.Insert(l.m, at, m)
}

// over reports whether there are more matches than the limit.
func (l *list) over() bool { return l.limit > 0 && len(l.m)-l.base > l.limit }

// complete reports whether no match that ends at end or later changes the list.
func (l *list) complete(end int) bool { return l.over() && int(l.m[len(l.m)-1].End) < end }

// result returns the matches, the one too many without its rule.
func (l *list) result() []Occurrence {
	if l.over() {
		l.m[len(l.m)-1].Rule = 0
	}
	return l.m
}
