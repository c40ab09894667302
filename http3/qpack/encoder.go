package qpack

import (
	"slices"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// EncoderOptions configures an Encoder. The zero value is valid.
type EncoderOptions struct {
	// MaxCapacity bounds the dynamic table in bytes, below what the peer permits; 0 is
	// DefaultCapacity, a negative number is no dynamic table.
	MaxCapacity int
	// MaxBlocked bounds the streams that may be blocked at the peer, below what the peer permits: each
	// may wait for a lost packet of the encoder stream. 0 is DefaultBlocked, a negative number is none.
	MaxBlocked int
}

// Defaults of EncoderOptions.
const (
	DefaultCapacity = 4096
	DefaultBlocked  = 16
)

// maxOutstanding bounds the field sections that wait for an acknowledgment. Beyond it sections refer to no
// dynamic entries.
const maxOutstanding = 256

// maxInstructions bounds the instructions that wait for AppendStream, in bytes: beyond it nothing is inserted.
const maxInstructions = 16 << 10

// Encoder encodes the field sections of one connection. Until SetPeer it uses the static table only.
type Encoder struct {
	table       table
	index       index
	options     EncoderOptions
	maxEntries  uint64 // of RFC 9204 4.5.1.1
	maxBlocked  int
	received    uint64 // Known Received Count (RFC 9204 2.1.4)
	outstanding []outstanding
	oldest      uint64 // least absolute index that an outstanding section refers to, none without
	seen        [256]uint32

	out   []byte // instructions for the encoder stream
	in    []byte // an instruction of the decoder stream that is cut
	lines []byte
	plans []plan
}

// outstanding is a section with references that is not acknowledged.
type outstanding struct {
	stream, required uint64
	oldest           uint64 // least absolute index that it refers to
}

const none = 1<<64 - 1

// plan is the chosen encoding of a field.
type plan struct {
	how   how
	index uint64 // in the static table, or absolute
}

type how uint8

const (
	literal     how = iota // literal name
	staticName             // literal value
	dynamicName            // literal value
	staticField
	dynamicField
)

// NewEncoder returns an encoder.
func NewEncoder(o EncoderOptions) *Encoder {
	if o.MaxCapacity == 0 {
		o.MaxCapacity = DefaultCapacity
	}
	if o.MaxBlocked == 0 {
		o.MaxBlocked = DefaultBlocked
	}
	return &Encoder{options: o, oldest: none}
}

// SetPeer takes SETTINGS_QPACK_MAX_TABLE_CAPACITY and SETTINGS_QPACK_BLOCKED_STREAMS of the peer. It is called
// once at most.
func (e *Encoder) SetPeer(maxCapacity, maxBlocked uint64) {
	e.maxEntries = maxCapacity / semantics.Overhead
	e.maxBlocked = max(0, int(min(maxBlocked, uint64(max(0, e.options.MaxBlocked)))))
	if capacity := min(maxCapacity, uint64(max(0, e.options.MaxCapacity))); capacity > 0 {
		e.table.setCapacity(capacity)
		e.out = hpack.AppendInteger(e.out, 0x20, 5, capacity) // RFC 9204 4.3.1
	}
}

// AppendStream appends the instructions that are due on the encoder stream. They should be sent before the
// sections that were encoded since.
func (e *Encoder) AppendStream(dst []byte) []byte {
	dst = append(dst, e.out...)
	e.out = e.out[:0]
	return dst
}

// Pending reports whether AppendStream would append something.
func (e *Encoder) Pending() bool { return len(e.out) > 0 }

// Encode appends the field section of a stream. Names must be in lower case. It borrows the fields.
func (e *Encoder) Encode(dst []byte, stream uint64, fields []Field) []byte {
	e.plans = e.plans[:0]
	s := outstanding{stream: stream, oldest: none}
	if e.table.capacity > 0 {
		e.planDynamic(fields, &s)
	} else {
		for i := range fields {
			e.plans = append(e.plans, planStatic(&fields[i]))
		}
	}
	// The Base is the insert count, so no reference is post-base.
	base := e.table.next
	e.lines = e.lines[:0]
	for i := range fields {
		e.lines = appendLine(e.lines, &fields[i], e.plans[i], base)
	}
	if s.required == 0 {
		dst = append(dst, 0, 0) // RFC 9204 4.5.1: Base is of no consequence
		return append(dst, e.lines...)
	}
	e.outstanding = append(e.outstanding, s)
	e.oldest = min(e.oldest, s.oldest)
	dst = hpack.AppendInteger(dst, 0, 8, s.required%(2*e.maxEntries)+1)
	dst = hpack.AppendInteger(dst, 0, 7, base-s.required)
	return append(dst, e.lines...)
}

// planStatic plans a field without the dynamic table.
func planStatic(f *Field) plan {
	h := hashOf(f)
	if i := staticIndex.field(h.field, f); i >= 0 && !f.Never {
		return plan{staticField, uint64(i)}
	}
	if i := staticIndex.name(h.name, f.Name); i >= 0 {
		return plan{staticName, uint64(i)}
	}
	return plan{how: literal}
}

// appendLine appends a field line (RFC 9204 4.5.2 to 4.5.6); the layouts are above Decoder.fields.
func appendLine(dst []byte, f *Field, p plan, base uint64) []byte {
	never := byte(0)
	if f.Never {
		never = 1
	}
	switch p.how {
	case staticField:
		return hpack.AppendInteger(dst, 0xC0, 6, p.index)
	case dynamicField:
		return hpack.AppendInteger(dst, 0x80, 6, base-p.index-1)
	case staticName:
		dst = hpack.AppendInteger(dst, 0x50|never<<5, 4, p.index)
	case dynamicName:
		dst = hpack.AppendInteger(dst, 0x40|never<<5, 4, base-p.index-1)
	default:
		dst = appendString(dst, 0x20|never<<4, 3, f.Name)
	}
	return appendString(dst, 0, 7, f.Value)
}

// appendString appends a string literal in the shorter form (RFC 9204 4.1.2).
func appendString(dst []byte, first byte, bits uint, s string) []byte {
	if n := hpack.HuffmanLength(s); n < len(s) {
		return hpack.AppendHuffman(hpack.AppendInteger(dst, first|1<<bits, bits, uint64(n)), s)
	}
	return append(hpack.AppendInteger(dst, first, bits, uint64(len(s))), s...)
}

// Acknowledgments takes bytes of the peer's decoder stream, cut anywhere. It borrows them. An *Error ends
// the connection.
//
//	1 stream(7)       section acknowledgment (RFC 9204 4.4.1)
//	01 stream(6)      stream cancellation (4.4.2)
//	00 increment(6)   insert count increment (4.4.3)
func (e *Encoder) Acknowledgments(p []byte) error {
	if len(e.in) > 0 {
		e.in = append(e.in, p...)
		p = e.in
	}
	for len(p) > 0 {
		bits := uint(6)
		if p[0]&0x80 != 0 {
			bits = 7
		}
		v, n, st := hpack.Integer(p, bits)
		if st == invalid {
			return errAckInteger
		}
		if st == cut {
			break
		}
		if err := e.acknowledgment(p[0], v); err != nil {
			return err
		}
		p = p[n:]
	}
	if len(p) == 0 || len(e.in) > 0 {
		e.in = e.in[:copy(e.in, p)]
		return nil
	}
	e.in = append(e.in, p...)
	return nil
}

func (e *Encoder) acknowledgment(first byte, v uint64) error {
	switch {
	case first&0x80 != 0:
		// The sections of a stream are acknowledged in their order.
		i := slices.IndexFunc(e.outstanding, func(s outstanding) bool { return s.stream == v })
		if i < 0 {
			return errAckSection
		}
		e.received = max(e.received, e.outstanding[i].required)
		e.outstanding = slices.Delete(e.outstanding, i, i+1)
	case first&0x40 != 0:
		e.outstanding = slices.DeleteFunc(e.outstanding, func(s outstanding) bool { return s.stream == v })
	default:
		if v == 0 || v > e.table.next-e.received {
			return errAckIncrement
		}
		e.received += v
		return nil
	}
	e.oldest = none
	for _, s := range e.outstanding {
		e.oldest = min(e.oldest, s.oldest)
	}
	return nil
}
