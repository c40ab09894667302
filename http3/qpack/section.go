package qpack

import "unsafe"

// Section holds the fields of a decoded field section. It may be used again and again, which spares
// allocations: then its Fields, strings included, are valid until the next Decode into it. The
// zero value is valid.
type Section struct {
	Fields []Field
	// Size is the sum of the sizes of the fields (RFC 9114 4.2.2).
	Size uint64

	text []byte // the bytes of fields that are literals
}

// Detach makes the strings of the current fields valid forever: the next Decode takes new memory.
// The slice Fields itself is still used again.
func (s *Section) Detach() { s.text = nil }

// literal returns the bytes of text from start on as a string, without a copy. Text only grows, into new
// memory if it must, until the next section; the string stays as it is until then.
func (s *Section) literal(start int) string {
	b := s.text[start:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// stringLiteral parses a string literal (RFC 9204 4.1.2): a Huffman bit above a length with a prefix of so many bits.
func stringLiteral(p []byte, bits uint) (text []byte, coded bool, n int, st status) {
	length, n, st := integer(p, bits)
	if st != ok {
		return nil, false, 0, st
	}
	if length > uint64(len(p)-n) {
		return nil, p[0]>>bits&1 == 1, int(min(length, 1<<31)), cut
	}
	end := n + int(length)
	return p[n:end], p[0]>>bits&1 == 1, end, ok
}
