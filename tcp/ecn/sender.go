package ecn

import "github.com/millrace/millrace/wire"

// Sender decodes what the peer counted (RFC 9768 3.2.2.2 and 3.2.3.1). The zero value is not
// ready: see Start.
type Sender struct {
	Counts
	ackSize  uint16 // moving average of the packets that an ACK acknowledges, in sixteenths
	smallest uint16 // payload of the smallest segment sent

	// Since the last option with the counter of CE bytes:
	guessed   uint32 // bytes that were reported as marked by the ACE field alone
	delivered uint32 // bytes, all of them
	packets   uint32 // Packets at that option

	final    bool // the ACK of our SYN-ACK is awaited: its field has the encoding of Table 3
	tested   bool // a first field was seen: section 3.2.2.4
	zeroed   bool // the path clears options: they are ignored (section 3.2.3.2.4)
	disabled bool // the path changes the field: reports are ignored
	noECT    bool

	// The test for a path that marks everything (section 3.2.2.3):
	round      uint32 // bytes that are left of the round trip
	rounds     uint8  // round trips in which all was marked
	varies     bool   // something was not: the test is over
	continuous bool   // it is: reports are ignored
}

// continuousRounds is the number of round trips from the start on that must have been marked as a whole. Congestion that does so has
// brought the window down to the minimum by then.
const continuousRounds = 4

// Start begins to decode. server is whether the ACK of a SYN-ACK is awaited.
func (s *Sender) Start(server bool) {
	*s = Sender{Counts: initialCounts(), packets: firstPackets, smallest: 1<<16 - 1, final: server}
}

// NotECT reports whether a test found that the path or the peer spoils ECN: nothing is sent
// ECN-capable any more. Feedback for the peer goes on (RFC 9768 3.2.2.3 and 3.2.2.4).
func (s *Sender) NotECT() bool { return s.noECT }

// Forbid ends ECN-capable packets.
func (s *Sender) Forbid() { s.noECT = true }

// SynAck takes what a SYN-ACK reports: f is the field with which the SYN, sent with ECN field
// sent, arrived. It reports whether that was congestion. The counter of packets stays, as
// the server's does (RFC 9768 3.2.2.2).
func (s *Sender) SynAck(f Field, sent wire.ECN, o *wire.AccECN) (congested bool) {
	s.testOption(o)
	return s.checkMark(f, sent)
}

// checkMark compares how a segment of the handshake was sent and how it arrived.
func (s *Sender) checkMark(f Field, sent wire.ECN) (congested bool) {
	arrived, ok := f.Mark()
	if ok && Mangled(sent, arrived) {
		s.noECT = true
	}
	return ok && arrived == wire.CE
}

// Final handles the segment that acknowledges our SYN-ACK, which was sent with ECN field
// sent, and reports whether there was congestion (RFC 9768 Table 4). read is whether the
// field has no further meaning: it is a counter, as of later segments, unless the segment is
// a pure ACK without SACK blocks. Another segment than the first is left alone.
func (s *Sender) Final(f Field, sent wire.ECN, o *wire.AccECN, pure bool) (congested, read bool) {
	if !s.final {
		return false, false
	}
	s.final = false
	s.testOption(o)
	if !pure {
		return false, false
	}
	if f == fieldNone { // the client is without ECN, or the path clears the field
		s.noECT, s.disabled = true, true
		return false, true
	}
	if congested = s.checkMark(f, sent); congested {
		s.Packets++
		s.packets++
	}
	return congested, true
}

// Established notes that a SYN-ACK acknowledged ours, of two SYNs that crossed: every ACK has
// a counter.
func (s *Sender) Established() { s.final = false }

// testOption looks at the first option: its counters of ECT bytes begin above 0, unless the
// path clears them (RFC 9768 3.2.3.2.4).
func (s *Sender) testOption(o *wire.AccECN) {
	if o.Has(wire.ECT0) && o.ECT0 == 0 || o.Has(wire.ECT1) && o.ECT1 == 0 {
		s.zeroed = true
	}
}

// Sent notes that data left in segments of size bytes, the last one perhaps smaller: n bytes
// in all.
func (s *Sender) Sent(n, size int) {
	if rest := n % size; rest != 0 {
		size = rest
	}
	s.smallest = min(s.smallest, uint16(min(size, 1<<16-1)))
}

// Feedback is the congestion feedback of one ACK.
type Feedback struct {
	Echo     bool         // ECN-Echo of RFC 3168
	Accurate *Sender      // takes Field and Option; nil where they mean nothing
	Later    bool         // the ACK was surely sent after all that came before
	Flight   uint32       // bytes that are still not acknowledged
	SACK     bool         // so was one that delivers something: without SACK that is guessed from duplicates
	Field    Field        // ACE
	Option   *wire.AccECN // borrowed
}

// Read returns how many bytes an ACK reports as marked, and whether it reports congestion at
// all: packets without payload can be marked, too. delivered is the number of bytes that the ACK shows
// to have arrived, mss what a full segment has. Classic ECN-Echo does not count: everything
// that the ACK delivers is taken as marked (RFC 8257 3.3).
//
// An ACK that is not known to be the latest may have been overtaken. Its counters would
// run backwards, so they are ignored (RFC 9768 A.1).
func (f *Feedback) Read(delivered, mss uint32) (marked uint32, congested bool) {
	switch {
	case f.Echo:
		return delivered, true
	case f.Accurate == nil || !f.Later && !(f.SACK && delivered > 0):
		return 0, false
	}
	s := f.Accurate
	marked, congested = s.read(f.Field, f.Option, delivered, mss)
	s.testContinuous(marked, delivered, f.Flight)
	if s.continuous {
		return 0, false
	}
	return marked, congested
}

// testContinuous looks whether every byte of the first round trips is reported as marked. That is the work of a path that
// spoils the field, and is no sign of congestion: nothing is sent ECN-capable any more, and no report counts (RFC
// 9768 3.2.2.3).
func (s *Sender) testContinuous(marked, delivered, flight uint32) {
	if delivered == 0 || s.varies || s.continuous {
		return
	}
	if marked < delivered {
		s.varies = true
		return
	}
	if delivered < s.round {
		s.round -= delivered
		return
	}
	s.round = flight
	if s.rounds++; s.rounds > continuousRounds { // the first ACK ends none
		s.continuous, s.noECT = true, true
	}
}

func (s *Sender) read(f Field, o *wire.AccECN, delivered, mss uint32) (marked uint32, congested bool) {
	if !s.tested {
		s.tested = true
		// No counter begins at 0 (RFC 9768 3.2.2.4). Three marks bring it there: where as many
		// packets were acknowledged, 0 may be right.
		if f == 0 && delivered/uint32(s.smallest) < fieldMask+1-firstPackets && delivered/mss < fieldMask+1-firstPackets {
			s.noECT, s.disabled = true, true
		}
	}
	if s.disabled {
		return 0, false
	}
	acked := (delivered + mss - 1) / mss
	least := (uint32(f) - s.Packets) & fieldMask
	if s.ackSize == 0 { // the first ACK shows no jump
		s.ackSize = uint16(min(acked, mostAcked) * 16)
	}
	safe := s.safest(least, acked)
	s.noteAckSize(acked)
	s.delivered += delivered
	if s.zeroed || !o.Has(wire.CE) {
		s.decodeECT(o)
		s.Packets += safe
		marked = min(safe*mss, delivered)
		s.guessed += marked
		return marked, safe > 0
	}
	return s.readExact(o, least, mss)
}

// readExact takes the bytes that an option counts as marked. Their number shows also how
// often the ACE field has wrapped (RFC 9768 A.2.2): so often that full segments hold them.
func (s *Sender) readExact(o *wire.AccECN, least, mss uint32) (marked uint32, congested bool) {
	s.decodeECT(o)
	bytes := advance(&s.Bytes[wire.CE], o.CE)
	if held := (s.Packets - s.packets + least) * mss; held < bytes {
		missing := (bytes - held + mss - 1) / mss
		// Marks that the ACE field cannot have missed are none: path or peer changes one of
		// the two (RFC 9768 3.2.3.2.5).
		if s.Packets+least == s.packets && s.delivered/uint32(s.smallest) <= fieldMask {
			s.noECT = true
		}
		least += (missing + fieldMask) &^ fieldMask
	}
	s.Packets += least
	marked = bytes - min(bytes, s.guessed)
	s.guessed, s.delivered, s.packets = 0, 0, s.Packets
	return marked, least > 0 || marked > 0
}

// decodeECT takes the counters of bytes that arrived as ECT.
func (s *Sender) decodeECT(o *wire.AccECN) {
	if s.zeroed {
		return
	}
	if o.Has(wire.ECT0) {
		advance(&s.Bytes[wire.ECT0], o.ECT0)
	}
	if o.Has(wire.ECT1) {
		advance(&s.Bytes[wire.ECT1], o.ECT1)
	}
}

// advance moves a counter to the next value with the low 24 bits of field, and returns by
// how much (RFC 9768 3.2.3.1).
func advance(counter *uint32, field uint32) uint32 {
	d := (field - *counter) & (1<<24 - 1)
	*counter += d
	return d
}

// thinned is the average of packets for each ACK, in sixteenths, from which on ACKs are taken
// to be few because the peer or the path merges them.
const thinned = 4 * 16

// safest returns by how much the counter of marked packets may have grown: by least, or by
// as many cycles of the ACE field more as the acknowledged packets allow (RFC 9768 A.2.1).
// Where ACKs always acknowledge many packets a wrap would often look possible, so that only
// a jump is taken for lost ACKs.
func (s *Sender) safest(least, acked uint32) uint32 {
	if acked <= least || s.ackSize >= thinned {
		return least
	}
	return acked - (acked-least)&fieldMask
}

// mostAcked bounds what one ACK adds to the average, packets.
const mostAcked = 1 << 10

// noteAckSize moves the average by an eighth of the difference.
func (s *Sender) noteAckSize(acked uint32) {
	if acked > 0 {
		s.ackSize += uint16((int32(min(acked, mostAcked))*16 - int32(s.ackSize)) / 8)
	}
}
