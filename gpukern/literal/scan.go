package literal

import (
	"encoding/binary"
	"math/bits"
)

// Scan appends to out the matches that end in text, by End and then by Rule, each once, and returns it.
// tail is what came before text, of which only the last TailLen bytes matter: patterns may begin there.
// Ends count from the first byte of text.
//
// At most limit matches are told; where there are more, an entry with Rule 0 follows, whose End is that
// of the next one. A limit below 1 is none.
func (s *Set) Scan(tail, text []byte, limit int, out []Match) []Match {
	if s.patterns == 0 || len(text) == 0 {
		return out
	}
	l := list{out, len(out), max(limit, 0)}
	from := 0
	if len(tail) > 0 {
		from = s.scanEdge(tail, text, &l)
	}
	s.windows(text, from, len(text), 0, &l)
	return l.done()
}

// scanEdge searches the windows in tail and the first of text, as many as the longest pattern may begin
// before the text, and returns how many those are. A copy makes one of both: up to MaxLen-1 bytes of the
// tail, as many windows in text, and what patterns reach behind those.
//
//	| tail, 63 | windows, 63 | 63 more |
func (s *Set) scanEdge(tail, text []byte, l *list) int {
	var buf [3 * TailLen]byte
	n := copy(buf[:], tail[max(0, len(tail)-TailLen):])
	from := min(len(text), TailLen)
	all := buf[:n+copy(buf[n:], text[:min(len(text), 2*TailLen)])]
	s.windows(all, 0, n+from, n, l)
	return from
}

// chunk is how many positions are filtered before candidates are looked at.
const chunk = 2048

// windows searches the patterns with anchors that begin in text[from:to]. The first skip bytes of text
// are a tail: matches end behind it, and ends count from there.
func (s *Set) windows(text []byte, from, to, skip int, l *list) {
	var masks [chunk / 64]uint64
	for ; from < to; from += chunk {
		if l.settled(from + MinLen - skip) {
			return
		}
		end := min(from+chunk, to)
		some := masks[:(end-from+63)/64]
		s.candidates(text, from, end, some)
		for i, m := range some {
			for ; m != 0; m &= m - 1 {
				s.candidate(text, from+64*i+bits.TrailingZeros64(m), skip, l)
			}
		}
	}
}

// candidatesPlain sets bit i of masks, counted through, where position from+i may be an anchor's.
func (s *Set) candidatesPlain(text []byte, from, end int, masks []uint64) {
	for i := range masks {
		var m uint64
		for p := from + 64*i; p < min(from+64*i+64, end); p++ {
			h4, h8 := hashes(loadText(text, p))
			w := s.filter[word(h4, s.bits)]
			if may8(w, h8) || may4(w, h4) {
				m |= 1 << ((p - from) % 64)
			}
		}
		masks[i] = m
	}
}

// loadText is load for what is rarely near its end.
func loadText(b []byte, at int) uint64 {
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])
	}
	return load(b, at)
}

// candidate looks for the anchors at p, which the filter has passed.
func (s *Set) candidate(text []byte, p, skip int, l *list) {
	h4, h8 := hashes(loadText(text, p))
	w := s.filter[word(h4, s.bits)]
	if s.classes&(1<<class8) != 0 && may8(w, h8) {
		s.anchored(text, p, skip, mix(class8, h8), l)
	}
	if !may4(w, h4) {
		return
	}
	if s.classes&(1<<class4) != 0 {
		s.anchored(text, p, skip, mix(class4, h4), l)
	}
	if s.classes&(1<<class3) != 0 {
		s.anchored(text, p, skip, mix(class3, h4<<8), l)
	}
}

// anchored compares the patterns whose anchor has the tag with the text around p.
func (s *Set) anchored(text []byte, p, skip int, tag uint32, l *list) {
	for i := tag >> s.slotShift; ; i = (i + 1) & uint32(len(s.slots)-1) {
		v := s.slots[i]
		if v.at == 0 {
			return
		}
		if v.tag == tag {
			s.compare(text, p, skip, v.at, l)
			return
		}
	}
}

// compare tells the list of those records from quad at on that match around p.
func (s *Set) compare(text []byte, p, skip int, at uint32, l *list) {
	for {
		r := s.records[2*at:]
		head := r[0]
		size := int(head >> 32 & 0xff)
		start := p - int(head>>40&0xff)
		end := start + size
		if start >= 0 && end > skip && end <= len(text) && equal(r[2:], text[start:end], r[1]) {
			l.add(Match{uint32(end - skip), uint32(head)})
		}
		if head>>48&1 == 0 {
			return
		}
		at += uint32(head >> 56)
	}
}

// equal compares the bytes of a record with t, eight at a time.
func equal(r []uint64, t []byte, fold uint64) bool {
	for i := 0; i < len(t); i += 8 {
		d := r[i/8] ^ loadText(t, i)
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
