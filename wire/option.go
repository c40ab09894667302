package wire

// OptionIter walks the options of an IPv4 or TCP header, which have one format (RFC 791 3.1, RFC 9293
// 3.1): a kind alone for end (0) and no-operation (1), else
//
//	+--------+--------+---------//--------+
//	|  Kind  | Length |  Data             |    Length counts Kind and Length too
//	+--------+--------+---------//--------+
//
// Padding is skipped. The walk ends at the end of the list, or at the first option whose length is
// below 2 or beyond the list; Malformed is then true.
//
//	for it := t.OptionIter(); it.Next(); {
//		switch it.Kind() { ... it.Data() ... }
//	}
type OptionIter struct {
	rest []byte // after the current option
	opt  []byte // the current option
	bad  bool
}

// OptionsOf returns a walk over the options b, which it borrows.
func OptionsOf(b []byte) OptionIter { return OptionIter{rest: b} }

// OptionIter returns a walk over the options of the packet.
func (b IPv4) OptionIter() OptionIter { return OptionsOf(b.Options()) }

// OptionIter returns a walk over the options of the segment.
func (b TCP) OptionIter() OptionIter { return OptionsOf(b.Options()) }

// Next goes to the next option and reports whether there is one.
func (it *OptionIter) Next() bool {
	for len(it.rest) > 0 && it.rest[0] == OptionNOP {
		it.rest = it.rest[1:]
	}
	if len(it.rest) == 0 || it.rest[0] == OptionEnd {
		it.rest = nil
		return false
	}
	if len(it.rest) < 2 || it.rest[1] < 2 || int(it.rest[1]) > len(it.rest) {
		it.rest, it.bad = nil, true
		return false
	}
	n := it.rest[1]
	it.opt, it.rest = it.rest[:n], it.rest[n:]
	return true
}

// Kind returns the kind of the current option.
func (it *OptionIter) Kind() uint8 { return it.opt[0] }

// Data borrows the bytes of the current option behind kind and length.
func (it *OptionIter) Data() []byte { return it.opt[2:] }

// Malformed reports whether the walk ended at an option that contradicts the bytes.
func (it *OptionIter) Malformed() bool { return it.bad }

// Options that IPv4 and TCP share: padding.
const (
	OptionEnd uint8 = 0
	OptionNOP uint8 = 1
)

// IPv4 option types (RFC 791 3.1; the high bit means that fragments carry a copy).
const (
	IPv4RecordRoute  uint8 = 7
	IPv4Timestamp    uint8 = 68
	IPv4LooseRoute   uint8 = 131
	IPv4StrictRoute  uint8 = 137
	IPv4RouterAlert  uint8 = 148 // RFC 2113
	IPv4SecurityOpts uint8 = 130 // RFC 1108
)
