package ecn

import "github.com/millrace/millrace/wire"

// Receiver counts what arrives, and encodes it for the peer (RFC 9768 3.2). The zero value
// is not ready: see Start.
type Receiver struct {
	Counts
	reported uint32 // Packets in the last ACK
	changed  bits   // byte counters that have changed since the connection began
	pending  bits   // ... since the last ACK
	unsent   bits   // ... since the last option
	last     wire.ECN

	// The client's ACK of a SYN-ACK reports that SYN-ACK's ECN field (section 3.2.2.1).
	handshake bool // such an ACK is due
	synAck    wire.ECN
	counted   bool // a marked SYN-ACK was: it counts once, however often it arrives

	testACK, testData bool  // the next ACK, and the first data, have an option whatever changed (section 3.2.3.2.1)
	silent            bool  // options are not sent: the path drops segments with one
	option            bool  // the last ACK had one
	repeats           uint8 // data that came again after such an ACK
	progress          uint8 // new data since
}

// bits is a set of byte counters, by 1<<wire.ECN.
type bits uint8

func bit(mark wire.ECN) bits { return 1 << (mark & 3) }

// Start begins to count.
func (r *Receiver) Start() { *r = Receiver{Counts: initialCounts(), reported: firstPackets} }

// SynAck notes that the peer's SYN-ACK arrived, with ECN field mark. The next pure ACK
// reports that of the latest (RFC 9768 3.1.5). Only the first marked one counts: the
// server's count takes no more than one (section 3.2.2.2). The very first SYN-ACK opens the
// connection and is Input as well, which counts it.
func (r *Receiver) SynAck(mark wire.ECN, first bool) {
	r.handshake, r.synAck = true, mark
	r.testACK, r.testData = first, r.testData || first
	if mark == wire.CE && !r.counted {
		r.counted = true
		if !first {
			r.Packets++
		}
	}
}

// HandshakeDue reports whether the next ACK has to be a pure one without SACK blocks: it
// reports how the SYN-ACK arrived (RFC 9768 3.2.2.1).
func (r *Receiver) HandshakeDue() bool { return r.handshake }

// How many marked packets are acknowledged at once (RFC 9768 3.2.2.5.1): two where data is
// unacknowledged, three where not, since ACKs of marked ACKs that are marked in turn have to
// come to an end. More than seven could wrap the field unnoticed.
const (
	markedWithData    = 2
	markedWithoutData = 3
	MostUnreported    = 7
)

// Input counts packets that arrived in a row with the same ECN field and n bytes of payload
// in all. due is whether they have to be acknowledged now (RFC 9768 3.2.2.5.1): data that is
// marked after a packet that was not, or enough marks. unacked is whether data is
// unacknowledged, these bytes included.
func (r *Receiver) Input(mark wire.ECN, packets, n uint32, unacked bool) (due bool) {
	began := mark == wire.CE && r.last != wire.CE && n > 0
	r.last = mark
	if mark != wire.NotECT && n > 0 {
		r.Bytes[mark&3] += n
		b := bit(mark)
		r.changed, r.pending, r.unsent = r.changed|b, r.pending|b, r.unsent|b
	}
	if mark != wire.CE {
		return false
	}
	r.Packets += packets
	most := uint32(markedWithoutData)
	if unacked {
		most = markedWithData
	}
	return began || r.Unreported() >= most
}

// TestsData reports whether the next data has an option whatever changed.
func (r *Receiver) TestsData() bool { return r.testData && !r.silent }

// Unreported returns how many marks no ACK has reported.
func (r *Receiver) Unreported() uint32 { return r.Packets - r.reported }

// Field returns the ACE field of the next ACK: a pure one without SACK blocks may have to
// report the SYN-ACK.
func (r *Receiver) Field(pure bool) Field {
	if r.handshake && pure {
		return Encode(r.synAck)
	}
	return Field(r.Packets & fieldMask)
}

// Sent notes that an ACK left, n bytes of data with it, and whether it had an option.
func (r *Receiver) Sent(n int, option bool) {
	r.reported, r.pending, r.option = r.Packets, 0, option
	if n == 0 {
		r.handshake, r.testACK = false, false
	} else {
		r.testData = false
	}
	if option {
		r.unsent = 0
	}
}

// Silence ends options: a segment with one was lost where others were not (RFC 9768
// 3.2.3.2.2).
func (r *Receiver) Silence() { r.silent = true }

// Silent reports whether options are not sent.
func (r *Receiver) Silent() bool { return r.silent }

// mostRepeats is the number of times that data comes again after ACKs with an option before they are taken
// to be dropped on their way for that, and enoughProgress how many segments of new data show
// that they are not: more than a sender has in flight whose data always times out.
const (
	mostRepeats    = 2
	enoughProgress = 64
)

// Repeated notes that acknowledged data came again. Where each ACK with an option seems
// lost, options end (RFC 9768 3.2.3.2.2): the ACK of what came again has none, because no
// counter changes, so that the peer goes on until the next.
func (r *Receiver) Repeated() {
	if !r.option {
		return
	}
	r.progress = 0
	if r.repeats++; r.repeats == mostRepeats {
		r.silent = true
	}
}

// Progressed notes that new data came.
func (r *Receiver) Progressed() {
	if r.repeats == 0 {
		return
	}
	if r.progress++; r.progress == enoughProgress {
		r.repeats = 0
	}
}

// Layout is which fields an option has and in which order.
type Layout uint8

// PaddedLen is the length of the longest option with what aligns it, bytes.
const PaddedLen = 12

// NoOption is the Layout of no option.
const NoOption Layout = 0

const (
	layoutOption Layout = 8 // there is one
	layoutOrder1 Layout = 4
	layoutFields Layout = 3 // how many fields
)

// Len returns the length of the option, bytes.
func (l Layout) Len() int {
	if l == NoOption {
		return 0
	}
	return 2 + 3*int(l&layoutFields)
}

// Layout chooses the option of the next ACK, which has room bytes for it and carries n bytes
// of data: where a byte counter has changed since the last ACK, each counter that ever
// changed (RFC 9768 3.2.3.3, the recommended scheme), or as few as the room allows that have
// changed since the last option. What has changed and has no room leaves the option out.
func (r *Receiver) Layout(room, n int) Layout {
	if r.silent {
		return NoOption
	}
	if n == 0 && r.testACK || n > 0 && r.testData {
		return longest(room)
	}
	if r.pending == 0 {
		return NoOption
	}
	if l := layoutOf(r.changed); l.Len() <= room {
		return l
	}
	if l := layoutOf(r.unsent); l.Len() <= room {
		return l
	}
	return NoOption
}

// longest returns the option with most fields that has room, the empty one at least.
func longest(room int) Layout {
	if room < 2 {
		return NoOption
	}
	return layoutOption | Layout(min((room-2)/3, 3))
}

// layoutOf returns the shortest option with the counters of set. Fields are left out at the
// end only: order 0 has ECT(0), CE, ECT(1), and order 1 the reverse (RFC 9768 Figure 4).
func layoutOf(set bits) Layout {
	const e0, e1, ce = 1 << wire.ECT0, 1 << wire.ECT1, 1 << wire.CE
	switch {
	case set&e0 != 0 && set&e1 != 0:
		return layoutOption | 3
	case set&e1 != 0 && set&ce != 0:
		return layoutOption | layoutOrder1 | 2
	case set&e1 != 0:
		return layoutOption | layoutOrder1 | 1
	case set&ce != 0:
		return layoutOption | 2
	}
	return layoutOption | 1
}

// AppendOption appends the option of the layout.
func (r *Receiver) AppendOption(b []byte, l Layout) []byte {
	return appendOption(b, l, &r.Counts)
}

func appendOption(b []byte, l Layout, c *Counts) []byte {
	if l == NoOption {
		return b
	}
	fields := [3]uint32{c.Bytes[wire.ECT0], c.Bytes[wire.CE], c.Bytes[wire.ECT1]}
	kind := wire.TCPOptAccECN0
	if l&layoutOrder1 != 0 {
		kind = wire.TCPOptAccECN1
		fields[0], fields[2] = fields[2], fields[0]
	}
	return wire.AppendAccECN(b, kind, fields[:l&layoutFields])
}

// AppendInitial appends the option of a SYN-ACK, as long as room allows: by it the client
// learns whether options come through (RFC 9768 3.2.3.2.1).
func AppendInitial(b []byte, room int) []byte {
	c := initialCounts()
	return appendOption(b, longest(room), &c)
}
