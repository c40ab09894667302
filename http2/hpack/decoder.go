package hpack

import (
	"errors"
	"unsafe"

	"github.com/millrace/millrace/semantics"
)

// Errors of a Decoder. All but ErrTooLarge end the connection with COMPRESSION_ERROR (RFC 7541 2.1, RFC 9113 4.3): the table
// is not the peer's any more.
var (
	ErrTooLarge = errors.New("hpack: the field section exceeds the limit")
	ErrCut      = errors.New("hpack: the field block is cut")
	ErrInteger  = errors.New("hpack: an integer is too large")
	ErrHuffman  = errors.New("hpack: a string is not in the Huffman code")
	ErrIndex    = errors.New("hpack: an index without an entry")
	ErrResize   = errors.New("hpack: a table size that is not permitted, or not at the start of the block")
)

// Section holds the fields of a decoded field block. Its Fields, strings included, are valid until the next Decode into it. The
// zero value is valid.
type Section struct {
	Fields []semantics.Field
	// Size is the sum of the sizes of the fields (RFC 9113 6.5.2).
	Size uint64

	text []byte // the bytes of fields that are not those of the static table
}

// Decoder decodes the field blocks of one direction of a connection.
type Decoder struct {
	// MaxLines bounds the field lines of a section, as semantics.Lines counts them; 0 is no bound but that of the size. It is set
	// before Decode.
	MaxLines int

	table table
	max   uint64 // capacity that the peer may set
	limit uint64
}

// DefaultCapacity is the dynamic table of a connection before settings are exchanged (RFC 9113 6.5.2).
const DefaultCapacity = 4096

// NewDecoder returns a decoder for a peer that may use a table of so many bytes, which is what the setting HEADER_TABLE_SIZE
// announces. limit bounds a field section.
func NewDecoder(capacity, limit uint64) *Decoder {
	return &Decoder{table: table{capacity: DefaultCapacity}, max: max(capacity, DefaultCapacity), limit: limit}
}

// Allocated returns how many bytes the dynamic table has allocated, about.
func (d *Decoder) Allocated() int { return d.table.allocated() }

// Decode decodes a field block, which is whole, into s. With ErrTooLarge the table is as the peer's, so the connection can go
// on, and s has no fields. It borrows p.
func (d *Decoder) Decode(p []byte, s *Section) error {
	s.Fields, s.Size, s.text = s.Fields[:0], 0, s.text[:0]
	begun, tooLarge, resizes := false, false, 0
	var lines semantics.Lines
	for len(p) > 0 {
		if p[0]&0xE0 == 0x20 { // RFC 7541 4.2: only at the start
			capacity, n, status := Integer(p, 5)
			switch {
			case status != OK:
				return integerError(status)
			case begun || capacity > d.max || resizes == 2: // the smallest since the last block, and the last
				return ErrResize
			}
			resizes++
			d.table.resize(capacity)
			p = p[n:]
			continue
		}
		begun = true
		if tooLarge {
			s.text = s.text[:0] // of the fields that follow only the table matters
		}
		f, n, err := d.field(p, s, tooLarge)
		if err != nil {
			return err
		}
		p = p[n:]
		if tooLarge {
			continue
		}
		if s.Size += f.Size(); s.Size > d.limit || !lines.Add(f.Name, d.MaxLines) {
			tooLarge = true
			continue
		}
		s.Fields = append(s.Fields, f)
	}
	if tooLarge {
		s.Fields = s.Fields[:0]
		return ErrTooLarge
	}
	return nil
}

// field decodes a representation (RFC 7541 6):
//
//	1 index(7)          indexed
//	01 index(6)         literal that is inserted
//	0000 index(4)       literal
//	0001 index(4)       literal that no hop inserts
//
// A literal has the name of an entry, or, with index 0, a string. The value follows as a string. discard says that the field is
// not used, which spares a copy for every byte of a block that refers to the table only.
func (d *Decoder) field(p []byte, s *Section, discard bool) (f semantics.Field, n int, err error) {
	bits := uint(4)
	switch {
	case p[0]&0x80 != 0:
		bits = 7
	case p[0]&0x40 != 0:
		bits = 6
	}
	index, n, status := Integer(p, bits)
	if status != OK {
		return f, 0, integerError(status)
	}
	if bits == 7 {
		if discard && index > 0 && index <= uint64(len(static)+d.table.len()) {
			return f, n, nil
		}
		f, err = d.entry(index, s)
		return f, n, err
	}
	f.Never = p[0]&0xF0 == 0x10
	used := 0
	if index == 0 {
		if f.Name, used, err = s.literal(p[n:]); err != nil {
			return f, 0, err
		}
		n += used
	} else {
		var e semantics.Field
		if e, err = d.entry(index, s); err != nil {
			return f, 0, err
		}
		f.Name = e.Name
	}
	if f.Value, used, err = s.literal(p[n:]); err != nil {
		return f, 0, err
	}
	if bits == 6 {
		d.table.insert(bytesOf(f.Name), bytesOf(f.Value))
	}
	return f, n + used, nil
}

// entry returns the field of an index (RFC 7541 2.3.3). One of the dynamic table is copied: the entry may be evicted before
// the section is used.
func (d *Decoder) entry(index uint64, s *Section) (semantics.Field, error) {
	switch {
	case index == 0:
		return semantics.Field{}, ErrIndex
	case index <= uint64(len(static)):
		return static[index-1], nil
	case index-uint64(len(static)) > uint64(d.table.len()):
		return semantics.Field{}, ErrIndex
	}
	name, value := d.table.at(int(index) - len(static) - 1)
	start := len(s.text)
	s.text = append(append(s.text, name...), value...)
	text := s.text[start:]
	return semantics.Field{Name: stringOf(text[:len(name)]), Value: stringOf(text[len(name):])}, nil
}

// literal decodes a string into the section's text. Text only grows, into new memory if it must, until the next section; strings
// stay as they are until then.
func (s *Section) literal(p []byte) (v string, n int, err error) {
	text, coded, n, status := ParseString(p, 7)
	if status != OK {
		return "", 0, integerError(status)
	}
	start := len(s.text)
	if !coded {
		s.text = append(s.text, text...)
	} else {
		var valid bool
		if s.text, valid = AppendDecoded(s.text, text); !valid {
			return "", 0, ErrHuffman
		}
	}
	return stringOf(s.text[start:]), n, nil
}

// integerError returns the error of something that is cut or invalid. A block is whole, so nothing may be cut.
func integerError(s Status) error {
	if s == Cut {
		return ErrCut
	}
	return ErrInteger
}

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
