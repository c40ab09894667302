package tcp

import (
	"github.com/millrace/millrace/wire"
)

// synTerms is what a SYN offered and we accepted:
//
//	 15       12  11  10  9   8 7   6  5   4  3       0
//	+-----------+----+---+-----+-----+----+----+-------+
//	|           | FO | R | SYN | ECN | TS | SA | scale |
//	+-----------+----+---+-----+-----+----+----+-------+
//
// scale is the shift of the peer's windows, 15 for none (14 is the largest, RFC 7323 2.3);
// SA is SACK, TS timestamps; ECN is an ecnAgreed; SYN the ECN field that the SYN arrived
// with (RFC 9768 3.1.1); R is set when the SYN came again, after which the handshake gives
// no round-trip time (RFC 6298 3); FO that it asked for a Fast Open cookie.
type synTerms uint16

const (
	termsNoScale     synTerms = 15
	termsSACK        synTerms = 1 << 4
	termsTimestamps  synTerms = 1 << 5
	termsSYNRepeated synTerms = 1 << 10
	termsFastOpen    synTerms = 1 << 11
	termsECNShift             = 6
	termsSYNShift             = 8
)

func (t synTerms) scaling() bool { return t&15 != termsNoScale }

func (t synTerms) scale() uint8 { return uint8(t & 15) }

func (t synTerms) sack() bool { return t&termsSACK != 0 }

func (t synTerms) timestamps() bool { return t&termsTimestamps != 0 }

func (t synTerms) withECN(e ecnAgreed) synTerms {
	return t&^(3<<termsECNShift) | synTerms(e)<<termsECNShift
}

func (t synTerms) ecn() ecnAgreed { return ecnAgreed(t >> termsECNShift & 3) }

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

// ecnOf returns the form of ECN that a SYN asks for and we agree to (RFC 3168 6.1.1, RFC
// 9768 3.1.1). With AE set as well, the three bits ask for accurate ECN.
func ecnOf(o *Options, s *Segment) ecnAgreed {
	asked := s.Flags.Has(wire.FlagECE | wire.FlagCWR)
	switch {
	case !asked || o.ECN == ECNOff:
		return ecnNone
	case s.AE && o.ECN != ECNClassic:
		return ecnAccurate
	}
	return ecnClassic
}
