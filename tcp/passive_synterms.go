package tcp

import (
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/wire"
)

// synTerms holds the accepted options of a SYN:
//
//	 15  14  13  12  11  10  9   8 7   6  5   4  3       0
//	+---+---+---+---+----+---+-----+-----+----+----+-------+
//	|   | U | W | N | FO | R | SYN | ECN | TS | SA | scale |
//	+---+---+---+---+----+---+-----+-----+----+----+-------+
//
// scale is the shift of the peer's windows, 15 for none (14 is the largest, RFC 7323 2.3);
// SA is SACK, TS timestamps; ECN is an ecn.Mode; SYN the ECN field that the latest SYN arrived
// with (RFC 9768 3.1.1); R is set when the SYN came again, after which the handshake gives
// no round-trip time (RFC 6298 3); FO that it asked for a Fast Open cookie; N that a SYN or
// SYN-ACK was without ECN, after which nothing may be sent ECN-capable (RFC 9768 3.1.5);
// W that the SYN-ACK announced a small window; U that the Output had no room for the SYN-ACK.
type synTerms uint16

const (
	termsNoScale     synTerms = 15
	termsSACK        synTerms = 1 << 4
	termsTimestamps  synTerms = 1 << 5
	termsSYNRepeated synTerms = 1 << 10
	termsFastOpen    synTerms = 1 << 11
	termsNotECT      synTerms = 1 << 12
	termsSmallWindow synTerms = 1 << 13
	termsUnsent      synTerms = 1 << 14
	termsECNShift             = 6
	termsSYNShift             = 8
)

func (t synTerms) scaling() bool { return t&15 != termsNoScale }

func (t synTerms) scale() uint8 { return uint8(t & 15) }

func (t synTerms) sack() bool { return t&termsSACK != 0 }

func (t synTerms) timestamps() bool { return t&termsTimestamps != 0 }

func (t synTerms) withECN(e ecn.Mode) synTerms {
	return t&^(3<<termsECNShift) | synTerms(e)<<termsECNShift
}

func (t synTerms) ecn() ecn.Mode { return ecn.Mode(t >> termsECNShift & 3) }

func (t synTerms) synECN() wire.ECN { return wire.ECN(t >> termsSYNShift & 3) }

// announcedBy returns the MSS that the peer's SYN announces, or the default (RFC 9293
// 3.7.1, MUST-15).
func announcedBy(t *wire.Tuple, o *wire.TCPOptions) uint16 {
	if o.MSS == 0 {
		return defaultMSS(t)
	}
	return o.MSS
}

// termsOf returns what a SYN offers and o allows.
func termsOf(o *Options, s *Segment) synTerms {
	t := termsNoScale
	if s.Options.HasWindowScale && !o.NoScaling {
		t = synTerms(s.Options.WindowScale)
	}
	if s.Options.SACKPermitted && !o.NoSACK {
		t |= termsSACK
	}
	if s.Options.HasTimestamps && !o.NoTimestamps {
		t |= termsTimestamps
	}
	if s.Options.HasFastOpen && o.FastOpen {
		t |= termsFastOpen
	}
	return t | synTerms(ecnOf(o, s))<<termsECNShift | synTerms(s.ECN)<<termsSYNShift
}

// ecnOf returns the form of ECN that a SYN requests and we agree to (RFC 3168 6.1.1, RFC
// 9768 3.1.2).
func ecnOf(o *Options, s *Segment) ecn.Mode {
	switch o.ECN {
	case ECNOff:
		return ecn.None
	case ECNClassic:
		return classicOf(s)
	}
	return ecn.FieldOf(s.Flags, s.AE).Asked()
}

// classicOf is ecnOf for an end that knows RFC 3168 alone, in which AE means nothing.
func classicOf(s *Segment) ecn.Mode {
	if s.Flags.Has(wire.FlagECE | wire.FlagCWR) {
		return ecn.Classic
	}
	return ecn.None
}

// conflicts reports whether a further SYN of the handshake asks for another form of ECN, so
// that the connection must be reset (RFC 9768 3.1.5).
func (t synTerms) conflicts(o *Options, s *Segment) bool {
	return o.ECN != ECNClassic && ecn.Conflict(t.ecn(), ecn.FieldOf(s.Flags, s.AE).Asked())
}

// again returns the terms after a further SYN: the form of ECN stays, and its ECN field is
// the one to report. One without ECN ends ECN-capable packets (RFC 9768 3.1.5). A
// measurement of RTT would not know which of them was answered (RFC 6298 3).
func (t synTerms) again(s *Segment) synTerms {
	t = t&^(3<<termsSYNShift) | synTerms(s.ECN)<<termsSYNShift | termsSYNRepeated
	if ecn.FieldOf(s.Flags, s.AE).Asked() == ecn.None {
		t |= termsNotECT
	}
	return t
}

// onlyAccurateECN returns what remains of the terms for a cookie without timestamps.
func (t synTerms) onlyAccurateECN() synTerms {
	if t.ecn() != ecn.Accurate {
		return termsNoScale
	}
	return termsNoScale | t&(3<<termsECNShift|3<<termsSYNShift)
}

// synAckField returns what the SYN-ACK agrees to ECN by, after some that timed out.
func (t synTerms) synAckField(unanswered int) ecn.Field {
	return ecn.SynAck(t.ecn(), t.synECN(), unanswered)
}
