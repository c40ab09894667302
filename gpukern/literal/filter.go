package literal

import "encoding/binary"

// candidatesPlain sets bit i of masks, counted through, where position from+i may be an anchor's.
func (s *Set) candidatesPlain(text []byte, from, end int, masks []uint64) {
	for i := range masks {
		at := from + 64*i
		if at+64+7 <= len(text) && at+64 <= end {
			masks[i] = s.blockPlain((*[64 + 7]byte)(text[at:]))
			continue
		}
		var m uint64
		for p := at; p < min(at+64, end); p++ {
			m |= s.may(load(text, p)) << (p - at)
		}
		masks[i] = m
	}
}

// blockPlain does 64 positions that have all their bytes.
func (s *Set) blockPlain(text *[64 + 7]byte) (m uint64) {
	filter, shift := s.filter, (32-s.bits)&31
	for p := 63; p >= 0; p-- {
		h4, h8 := hashes(binary.LittleEndian.Uint64(text[p : p+8]))
		w := filter[h4<<8>>shift]
		m = m<<1 | uint64(may8(w, h8)|may4(w, h4))
	}
	return m
}

// may returns 1 where the filter passes the window of eight bytes w.
func (s *Set) may(w uint64) uint64 {
	h4, h8 := hashes(w)
	f := s.filter[word(h4, s.bits)]
	return uint64(may8(f, h8) | may4(f, h4))
}
