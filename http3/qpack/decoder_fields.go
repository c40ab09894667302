package qpack

import (
	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// The representations of field lines (RFC 9204 4.5.2 to 4.5.6):
//
//	1 T index(6)              indexed: static if T, else relative to the Base
//	01 N T index(4)           literal with a name by the same two
//	001 N H length(3)         literal with a literal name
//	0001 index(4)             indexed, post-base
//	0000 N index(3)           literal with a post-base name
//
// A literal value follows as H length(7) and its bytes.

// fields decodes the field lines. References must be below the Required Insert Count (RFC 9204 2.2.3).
func (d *Decoder) fields(p []byte, s *Section, required, base uint64) error {
	var lines semantics.Lines
	for len(p) > 0 {
		var f Field
		n, err := 0, error(nil)
		switch b := p[0]; {
		case b&0x80 != 0:
			var e *Field
			if e, n, err = d.reference(p, 6, required, base); err == nil {
				f.Name, f.Value = e.Name, e.Value
			}
		case b&0xC0 == 0x40:
			var e *Field
			if e, n, err = d.reference(p, 4, required, base); err == nil {
				f.Name, f.Never = e.Name, b&0x20 != 0
				n, err = d.value(p, n, s, &f)
			}
		case b&0xE0 == 0x20:
			f.Never = b&0x10 != 0
			if f.Name, n, err = s.decode(p, 3, d.options.MaxSectionSize); err == nil {
				n, err = d.value(p, n, s, &f)
			}
		case b&0xF0 == 0x10:
			var e *Field
			if e, n, err = d.postBase(p, 4, required, base); err == nil {
				f.Name, f.Value = e.Name, e.Value
			}
		default:
			var e *Field
			if e, n, err = d.postBase(p, 3, required, base); err == nil {
				f.Name, f.Never = e.Name, b&0x08 != 0
				n, err = d.value(p, n, s, &f)
			}
		}
		if err != nil {
			return err
		}
		p = p[n:]
		if s.Size += f.Size(); s.Size > d.options.MaxSectionSize || !lines.Add(f.Name, d.options.MaxLines) {
			return ErrTooLarge
		}
		s.Fields = append(s.Fields, f)
	}
	return nil
}

// reference returns the entry that a relative or static index of so many bits names; the bit above says which.
func (d *Decoder) reference(p []byte, bits uint, required, base uint64) (*Field, int, error) {
	index, n, st := hpack.Integer(p, bits)
	if st != ok {
		return nil, 0, integerError(st)
	}
	if p[0]>>bits&1 == 1 {
		if index >= uint64(len(static)) {
			return nil, 0, errStatic
		}
		return &static[index], n, nil
	}
	if index >= base {
		return nil, 0, errDynamic
	}
	f, err := d.dynamic(base-index-1, required)
	return f, n, err
}

// postBase returns the entry that a post-base index names (RFC 9204 3.2.6).
func (d *Decoder) postBase(p []byte, bits uint, required, base uint64) (*Field, int, error) {
	index, n, st := hpack.Integer(p, bits)
	if st != ok {
		return nil, 0, integerError(st)
	}
	f, err := d.dynamic(base+index, required)
	return f, n, err
}

func (d *Decoder) dynamic(index, required uint64) (*Field, error) {
	if index >= required {
		return nil, errBeyond
	}
	e := d.table.at(index)
	if e == nil {
		return nil, errDynamic
	}
	return &e.Field, nil
}

// value decodes the literal value of a field line at p[at:] and returns where it ends.
func (d *Decoder) value(p []byte, at int, s *Section, f *Field) (end int, err error) {
	v, n, err := s.decode(p[at:], 7, d.options.MaxSectionSize)
	f.Value = v
	return at + n, err
}

// decode decodes a string literal into the section's text.
func (s *Section) decode(p []byte, bits uint, limit uint64) (v string, n int, err error) {
	text, coded, n, st := hpack.ParseString(p, bits)
	if st != ok {
		return "", 0, integerError(st)
	}
	// It cannot be shorter decoded than 8/30 of its bytes: what is surely too large is not decoded.
	if uint64(len(text)) > limit && (!coded || uint64(len(text))*8/hpack.LongestCode > limit) {
		return "", 0, ErrTooLarge
	}
	start := len(s.text)
	if !coded {
		s.text = append(s.text, text...)
		return s.literal(start), n, nil
	}
	decoded, valid := hpack.AppendDecoded(s.text, text)
	if !valid {
		return "", 0, errHuffman
	}
	s.text = decoded
	return s.literal(start), n, nil
}
