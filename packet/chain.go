package packet

// A packet that is longer than a frame is a chain: several descriptors in a row, of which all but the
// last have FlagMore, as the segments of an mbuf chain or the AF_XDP descriptors with XDP_PKT_CONTD.
//
//	        D[0]      D[1]      D[2]      D[3]
//	Flags   0         More      More      0
//	        packet A  packet B ................
//
// Findings and verdict of a chain stand in its first descriptor. Every hand-off passes whole chains, so
// that an owner never holds frames of a packet whose rest belongs to another.

// Chain returns the number of descriptors of the packet that starts d. It is 0 where d is empty or the
// last descriptor of the packet is not in d.
func Chain(d []Desc) int {
	for i := range d {
		if d[i].Flags&FlagMore == 0 {
			return i + 1
		}
	}
	return 0
}

// Chains returns the number of descriptors of the first n packets of d, which must be there.
func Chains(d []Desc, n uint64) (used int) {
	for range n {
		used += Chain(d[used:])
	}
	return used
}

// Whole returns how many of the first limit descriptors of d belong to packets that end within that
// limit: what may be passed on where there is room for limit descriptors.
func Whole(d []Desc, limit int) int {
	n := min(limit, len(d))
	for n > 0 && d[n-1].Flags&FlagMore != 0 {
		n--
	}
	return n
}

// Packets returns the number of packets in d. A packet without its last descriptor does not count.
func Packets(d []Desc) (n uint64) {
	for i := range d {
		if d[i].Flags&FlagMore == 0 {
			n++
		}
	}
	return n
}

// Count returns Packets and the bytes of all descriptors of d.
func Count(d []Desc) (packets, bytes uint64) {
	for i := range d {
		bytes += uint64(d[i].Len)
		if d[i].Flags&FlagMore == 0 {
			packets++
		}
	}
	return packets, bytes
}

// Gather appends the bytes of the packet whose descriptors are d to dst, but not more than limit of
// them. It borrows the frames.
func (a *Arena) Gather(dst []byte, d []Desc, limit int) []byte {
	for i := range d {
		piece := a.Bytes(&d[i])
		piece = piece[:min(len(piece), limit)]
		dst = append(dst, piece...)
		limit -= len(piece)
	}
	return dst
}
