// Package ecn is explicit congestion notification as TCP reports it: what SYN and SYN-ACK
// agree to (RFC 3168, RFC 9768 3.1), and for accurate ECN the counters of both directions:
// a Receiver counts what arrived and encodes it, a Sender decodes what the peer encoded.
//
// The package is pure: package tcp hands it flags, options and byte counts of segments, and
// asks it which flags and options to send. What a mark does to the congestion window is
// decided in package tcp and package tcp/cc.
package ecn

import "github.com/millrace/millrace/wire"

// Mode is the form of feedback that a connection uses.
type Mode uint8

// Values of Mode.
const (
	None     Mode = iota
	Classic       // RFC 3168
	Accurate      // RFC 9768
)

// Field is the number in the three bits AE, CWR and ECE. A SYN asks by it, a SYN-ACK
// answers, and other segments of accurate ECN carry the low bits of a counter (the ACE
// field, RFC 9768 3.2.2):
//
//	  4    2     1
//	+----+-----+-----+
//	| AE | CWR | ECE |
//	+----+-----+-----+
type Field uint8

const (
	fieldMask            = 7
	fieldNone      Field = 0
	fieldClassic   Field = 1 // of a SYN-ACK: agrees to RFC 3168
	fieldNotECT    Field = 2 // Tables 2 and 3: how SYN or SYN-ACK arrived
	fieldECT1      Field = 3
	fieldECT0      Field = 4
	fieldCE        Field = 6
	fieldReflected Field = 7 // of a SYN-ACK: of a server that returns what the SYN had
)

// SYNClassic and SYNAccurate are the flags by which a SYN requests ECN (RFC 3168 6.1.1, RFC 9768 3.1.1).
const (
	SYNClassic  Field = 3
	SYNAccurate Field = 7
)

// FieldOf returns the number in a segment's flags.
func FieldOf(f wire.TCPFlags, ae bool) Field {
	n := Field(f >> 6 & 3)
	if ae {
		n |= 4
	}
	return n
}

// Flags returns CWR and ECE of the number, and AE.
func (f Field) Flags() (flags wire.TCPFlags, ae bool) {
	return wire.TCPFlags(f&3) << 6, f&4 != 0
}

// Encode returns the number that reports the ECN field in which a SYN or SYN-ACK arrived
// (RFC 9768 Tables 2 and 3).
func Encode(arrived wire.ECN) Field {
	return [4]Field{wire.NotECT: fieldNotECT, wire.ECT1: fieldECT1, wire.ECT0: fieldECT0, wire.CE: fieldCE}[arrived&3]
}

// Mark is the reverse of Encode; ok is false for the numbers that report nothing.
func (f Field) Mark() (arrived wire.ECN, ok bool) {
	switch f {
	case fieldNotECT:
		return wire.NotECT, true
	case fieldECT1:
		return wire.ECT1, true
	case fieldECT0:
		return wire.ECT0, true
	case fieldCE:
		return wire.CE, true
	}
	return 0, false
}

// Asked returns what a SYN with the number asks for. Reserved numbers ask for accurate ECN
// (RFC 9768 3.1.3), so that a later version finds servers that agree at least to that.
func (f Field) Asked() Mode {
	switch f {
	case fieldNone:
		return None
	case SYNClassic:
		return Classic
	}
	return Accurate
}

// OfAccurate reports whether the ACK of a SYN-ACK has the number by which a server that kept
// nothing of the handshake knows that it agreed to accurate ECN (RFC 9768 5.1 and Table 4,
// note 3).
func (f Field) OfAccurate() bool { return f > fieldClassic }

// Agreed returns what a SYN-ACK with the number agrees to, in answer to a SYN that asked for
// asked (RFC 9768 Table 2). (1,0,1) is reserved and agrees to accurate ECN (section 3.1.3);
// (1,1,1) is of a broken server that returns the bits of the SYN.
func (f Field) Agreed(asked Mode) Mode {
	switch {
	case asked == Accurate && f != fieldNone && f != fieldClassic && f != fieldReflected:
		return Accurate
	case asked == Accurate && f == fieldClassic, asked == Classic && f&3 == fieldClassic:
		return Classic
	}
	return None
}

// SYN-ACKs of accurate ECN that stay without an answer: the first has the option, the next
// has none, and those after it have no ECN at all, in case a middlebox drops one or the
// other (RFC 9768 3.2.3.2.2).
const (
	WithoutOption = 1
	WithoutECN    = 2
)

// SynAck returns what a SYN-ACK agrees by to mode, in answer to a SYN that arrived with ECN
// field mark. unanswered is the number of SYN-ACKs that timed out before.
func SynAck(mode Mode, mark wire.ECN, unanswered int) Field {
	switch {
	case mode == Classic:
		return fieldClassic
	case mode == Accurate && unanswered < WithoutECN:
		return Encode(mark)
	}
	return fieldNone
}

// Conflict reports whether what two SYNs of a handshake ask for, or two SYN-ACKs agree to,
// cannot go together: the ends might then use different modes without noticing, so that the
// connection has to be reset (RFC 9768 3.1.5).
func Conflict(a, b Mode) bool { return a != b && a != None && b != None }

// Mangled reports whether the path changed the ECN field of a SYN or SYN-ACK in a way that
// no router may (RFC 9768 3.2.2.3): the valid changes are those from an ECT to CE.
func Mangled(sent, arrived wire.ECN) bool {
	return sent != arrived && (arrived != wire.CE || sent == wire.NotECT)
}

// Where counters begin (RFC 9768 3.2.1): not at 0, which a path that clears fields would
// make of them, nor where a peer that reflects bits would seem to count.
const (
	firstPackets = 5
	firstECT     = 1
)

// Counts are the numbers that one end counts of what arrived marked, and that the other
// learns from it: r.cep and s.cep, and the bytes of payload by ECN field.
type Counts struct {
	Packets uint32    // that arrived as CE; the low three bits are the ACE field
	Bytes   [4]uint32 // by wire.ECN; NotECT is not counted
}

func initialCounts() Counts {
	return Counts{Packets: firstPackets, Bytes: [4]uint32{wire.ECT0: firstECT, wire.ECT1: firstECT}}
}

// Unmarked is the ACE field of an end to which no marked packet has come.
const Unmarked Field = firstPackets

// CE returns how many packets were marked.
func (c *Counts) CE() uint32 { return c.Packets - firstPackets }

// Payload returns how many bytes came with the ECN field.
func (c *Counts) Payload(mark wire.ECN) uint32 {
	return c.Bytes[mark&3] - initialCounts().Bytes[mark&3]
}
