package datapath

// maxSpans bounds the pieces that a datagram has while fragments are missing between them. Fragments that arrive in order
// need one, and a datagram of up to 2*maxSpans-1 fragments may arrive in any order.
const maxSpans = 16

// span is a range of a datagram's data: the bytes from from to before to.
type span struct{ from, to uint16 }

// coverage records which bytes of a datagram's data have come, in bounded memory: spans in order that neither overlap nor
// touch.
type coverage struct {
	spans  [maxSpans]span
	n      uint8
	size   uint16 // of the datagram's data, where the last fragment has come
	bounds uint64 // bits of the fragments' bounds (boundsBit)
}

// addition classifies fragments by the effect that they have on a coverage.
type addition uint8

const (
	fresh     addition = iota // bytes that had not come
	copied                    // none: the network has duplicated it (RFC 8200 4.5)
	overlaps                  // some that have come, or its end contradicts the last fragment's: the datagram is forged
	scattered                 // one piece more than maxSpans
)

// add enters a fragment, if it is fresh.
func (c *coverage) add(f *fragmentHeader) addition {
	if c.contradicts(f) {
		return overlaps
	}
	from, to := uint16(f.at), uint16(f.end)
	spans := c.spans[:c.n]
	i := 0
	for i < len(spans) && spans[i].to < from {
		i++
	}
	next := i // the first span behind from
	if i < len(spans) && spans[i].to == from {
		next++
	}
	bit := f.boundsBit()
	if next < len(spans) && spans[next].from < to {
		if spans[next].from <= from && to <= spans[next].to && c.bounds&bit != 0 {
			return copied
		}
		return overlaps
	}
	if !c.join(i, next, span{from, to}) {
		return scattered
	}
	c.bounds |= bit
	if !f.more {
		c.size = to
	}
	return fresh
}

// boundsBit returns the bit that stands for where a fragment begins and ends. Without it one of bytes that have come is no
// copy, but cuts them otherwise, which no sender does. With it, it may be either: receivers drop both.
func (f *fragmentHeader) boundsBit() uint64 {
	return 1 << (uint32(f.at<<16|f.end) * 0x9e3779b1 >> 26)
}

// join enters a span between those before i and those from next on: it touches span i where that is not next.
func (c *coverage) join(i, next int, s span) bool {
	touches := next < int(c.n) && c.spans[next].from == s.to
	switch {
	case i < next && touches:
		c.spans[i].to = c.spans[next].to
		copy(c.spans[next:], c.spans[next+1:c.n])
		c.n--
	case i < next:
		c.spans[i].to = s.to
	case touches:
		c.spans[next].from = s.from
	case c.n == maxSpans:
		return false
	default:
		copy(c.spans[i+1:], c.spans[i:c.n])
		c.spans[i] = s
		c.n++
	}
	return true
}

// contradicts reports whether a fragment lies beyond the end of the datagram, or says another one.
func (c *coverage) contradicts(f *fragmentHeader) bool {
	switch {
	case c.size == 0:
		return !f.more && c.n > 0 && int(c.spans[c.n-1].to) > f.end
	case f.more:
		return f.end >= int(c.size)
	}
	return f.end != int(c.size)
}

// whole reports whether all of the datagram has come.
func (c *coverage) whole() bool { return c.size != 0 && c.n == 1 && c.spans[0] == span{0, c.size} }

// begins reports whether a byte before end has come.
func (c *coverage) begins(end int) bool { return c.n > 0 && int(c.spans[0].from) < end }
