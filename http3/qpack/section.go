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
