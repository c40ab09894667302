package qpack

import (
	"slices"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// DecoderOptions configures a Decoder. The first two are announced to the peer in the SETTINGS frame.
type DecoderOptions struct {
	// MaxCapacity is SETTINGS_QPACK_MAX_TABLE_CAPACITY in bytes; 0 is no dynamic table.
	MaxCapacity uint64
	// MaxBlocked is SETTINGS_QPACK_BLOCKED_STREAMS; 0 permits none.
	MaxBlocked int
	// MaxSectionSize bounds a field section in bytes, as RFC 9114 4.2.2 counts them; 0 is
	// DefaultSectionSize.
	MaxSectionSize uint64
	// MaxLines bounds the field lines of a section, as semantics.Lines counts them; 0 is no bound but that of the size.
	MaxLines int
}

// DefaultSectionSize is the default of DecoderOptions.MaxSectionSize, in bytes.
const DefaultSectionSize = 64 << 10

// maxIdleInstructions bounds the instructions between two field sections: a peer that inserts and refers to
// nothing costs work for nothing. A table of 1 MiB has no more entries than half of it.
const maxIdleInstructions = 1 << 16

// maxPending bounds the acknowledgments that wait for AppendStream, in bytes.
const maxPending = 64 << 10

// lazyBytes is the number of bytes of instructions that may wait without harm.
const lazyBytes = 24

// Decoder decodes the field sections of one connection.
type Decoder struct {
	table      table
	options    DecoderOptions
	maxEntries uint64 // of RFC 9204 4.5.1.1

	blocked      []blockedStream
	acknowledged uint64 // the insert count that the peer's encoder knows from us, and from out
	reported     uint64 // without out
	idle         int    // instructions since the last field section
	out          []byte // instructions for the decoder stream
	in           []byte // an instruction of the encoder stream that is cut
	text         []byte // scratch for the strings of an instruction
}

type blockedStream struct {
	stream, required uint64
}

// NewDecoder returns a decoder.
func NewDecoder(o DecoderOptions) *Decoder {
	if o.MaxSectionSize == 0 {
		o.MaxSectionSize = DefaultSectionSize
	}
	return &Decoder{options: o, maxEntries: o.MaxCapacity / semantics.Overhead}
}

// Decode decodes the field section of a stream into s, which it overwrites. It borrows the section.
//
// It is not done, without an error, if the section needs entries that did not arrive yet. Then the stream is
// blocked: the caller keeps the section, and passes it again once Unblocked has returned the stream.
//
// An *Error ends the connection; ErrTooLarge only the message.
func (d *Decoder) Decode(stream uint64, section []byte, s *Section) (done bool, err error) {
	s.Fields, s.text, s.Size = s.Fields[:0], s.text[:0], 0
	required, base, p, err := d.prefix(section)
	if err != nil {
		return false, err
	}
	if required > d.table.next {
		return false, d.block(stream, required)
	}
	d.idle = 0
	err = d.fields(p, s, required, base)
	if required > 0 && (err == nil || err == ErrTooLarge) {
		// RFC 9204 4.4.1. The section has been processed, even if it is never read.
		d.out = hpack.AppendInteger(d.out, 0x80, 7, stream)
		d.acknowledged = max(d.acknowledged, required)
		if len(d.out) > maxPending {
			return false, errFlood
		}
	}
	return err == nil, err
}

// prefix parses the Encoded Field Section Prefix (RFC 9204 4.5.1).
func (d *Decoder) prefix(p []byte) (required, base uint64, rest []byte, err error) {
	encoded, n, st := hpack.Integer(p, 8)
	if st != ok {
		return 0, 0, nil, integerError(st)
	}
	if required, err = d.requiredInsertCount(encoded); err != nil {
		return 0, 0, nil, err
	}
	p = p[n:]
	delta, n, st := hpack.Integer(p, 7)
	if st != ok {
		return 0, 0, nil, integerError(st)
	}
	if p[0]&0x80 == 0 {
		return required, required + delta, p[n:], nil
	}
	if delta >= required {
		return 0, 0, nil, errBase // RFC 9204 4.5.1.2
	}
	return required, required - delta - 1, p[n:], nil
}

// requiredInsertCount undoes the encoding of RFC 9204 4.5.1.1, which is modulo twice the entries that the
// table could have.
func (d *Decoder) requiredInsertCount(encoded uint64) (uint64, error) {
	if encoded == 0 {
		return 0, nil
	}
	full := 2 * d.maxEntries
	if encoded > full {
		return 0, errRequired
	}
	most := d.table.next + d.maxEntries
	required := most/full*full + encoded - 1
	if required > most {
		if required <= full {
			return 0, errRequired
		}
		required -= full
	}
	if required == 0 {
		return 0, errRequired
	}
	return required, nil
}

// block notes that a stream waits for entries.
func (d *Decoder) block(stream, required uint64) error {
	for _, b := range d.blocked {
		if b.stream == stream {
			return errStillBlocks
		}
	}
	if len(d.blocked) >= d.options.MaxBlocked {
		return errBlocked // RFC 9204 2.1.2
	}
	d.blocked = append(d.blocked, blockedStream{stream, required})
	return nil
}

// Unblocked returns a stream whose field section can now be decoded. The caller asks until there is none,
// after every Instructions.
func (d *Decoder) Unblocked() (stream uint64, found bool) {
	for i, b := range d.blocked {
		if b.required <= d.table.next {
			d.blocked = slices.Delete(d.blocked, i, i+1)
			return b.stream, true
		}
	}
	return 0, false
}

// Cancel notes that a stream was reset or that its reading ended, whatever of it was decoded
// (RFC 9204 4.4.2).
func (d *Decoder) Cancel(stream uint64) {
	d.blocked = slices.DeleteFunc(d.blocked, func(b blockedStream) bool { return b.stream == stream })
	if d.options.MaxCapacity > 0 && len(d.out) <= maxPending {
		d.out = hpack.AppendInteger(d.out, 0x40, 6, stream)
	}
}

// AppendStream appends the instructions that are due on the decoder stream.
func (d *Decoder) AppendStream(dst []byte) []byte {
	dst = append(dst, d.out...)
	d.out = d.out[:0]
	if n := d.table.next - d.acknowledged; n > 0 {
		dst = hpack.AppendInteger(dst, 0, 6, n) // RFC 9204 4.4.3
		d.acknowledged = d.table.next
	}
	d.reported = d.table.next
	return dst
}

// Pending reports whether AppendStream should be called soon: entries have arrived that the encoder does not
// know to be here, or several instructions wait. A few acknowledgments of sections that refer to known entries
// may wait for more: they only let the encoder evict entries, and each costs a frame.
func (d *Decoder) Pending() bool { return d.table.next > d.reported || len(d.out) >= lazyBytes }

func integerError(st status) error {
	if st == cut {
		return errCut
	}
	return errInteger
}
