package netsim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const (
	maxFaults   = 10
	defaultMSS4 = 536                    // RFC 9293 3.7.1, MUST-15
	defaultMSS6 = 1220                   // the same, for IPv6
	maxAckDelay = 500 * time.Millisecond // RFC 9293 3.8.6.3, MUST-40
)

// Monitor follows the connections between hosts by what is on the wire, and nothing else: what each
// host sends is judged by what it has sent and what has arrived at it. So it knows nothing of the code
// it judges, and a mistake that both ends make alike is still one.
type Monitor struct {
	// Faults are the rules that were broken, with the packet that did; the first few of them.
	Faults []string
	Count  int // of faults

	// ShrinkOK allows windows that shrink (RFC 9293 3.8.6, SHLD-14, where memory runs out).
	ShrinkOK bool

	// RefuseOK allows a host to drop data that arrives in its window, where memory runs out (RFC 2018 8): such
	// data it need not acknowledge in time.
	RefuseOK bool

	net   *Net
	sides map[wire.Tuple]*side // by the sender's tuple
	now   clock.Time
	line  func() string // describes the packet at hand
}

// side is what is known of one end of a connection. Sequence numbers are offsets: 0 is the SYN of
// the one who counts.
type side struct {
	host *Host
	peer *side
	v4   bool

	// What it sent.
	opened  bool // a SYN
	crossed bool // that SYN was no answer
	iss     uint32
	syn     wire.TCPOptions
	flags   wire.TCPFlags // of the first SYN
	end     uint64        // after the highest number sent
	sent    uint64        // after the highest number of data, but for window probes
	fin     uint64        // of the FIN; 0 for none
	acked   uint64        // highest acknowledgment sent, in the peer's numbers
	right   uint64        // highest right edge of a window sent, in the peer's numbers
	tsval   uint32
	tsAny   bool
	resets  int
	reset   bool // it sent or got a RST
	// What arrived at it.
	heard   bool   // the peer's SYN
	got     ranges // in the peer's numbers
	sure    ranges // of got, what it had no reason to refuse
	ackIn   uint64 // highest acknowledgment of its own numbers
	rightIn uint64 // highest right edge of a window for its own numbers
	largest uint64 // window that arrived, bytes
	tsIn    uint32
	inputs  int
	owed    clock.Time // since when it owes an acknowledgment; 0 for none

	ecn ecnCounts
}

// Monitor returns a monitor of all that happens from now on.
func (n *Net) Monitor() *Monitor {
	m := &Monitor{net: n, sides: map[wire.Tuple]*side{}}
	n.Watch(m.event)
	return m
}

func (m *Monitor) event(e *Event) {
	if e.What != Sent && e.What != Arrived {
		return
	}
	m.now = e.At
	b := e.Packet.Bytes
	m.line = func() string { return Describe(b) }
	t, seg, ecn, v := Parse(b)
	if v != packet.Deliver {
		if e.What == Sent {
			m.fault("sends a packet that is wrong: %v", v)
		}
		return
	}
	if e.What == Arrived {
		if e.Packet.side != nil {
			e.Packet.side.peer.ecn.arrived(seg, ecn)
			m.arrived(e.Packet.side, seg)
		}
		return
	}
	if h, ok := m.net.nodes[e.Packet.From].(*Host); ok {
		e.Packet.side = m.sent(h, t.Reverse(), seg, ecn, len(b))
	}
}

func (m *Monitor) fault(format string, args ...any) {
	m.Count++
	if len(m.Faults) < maxFaults {
		m.Faults = append(m.Faults, fmt.Sprintf("%.6f %s: %s", Seconds(m.now), m.line(), fmt.Sprintf(format, args...)))
	}
}

// check reports a fault unless ok.
func (m *Monitor) check(ok bool, format string, args ...any) {
	if !ok {
		m.fault(format, args...)
	}
}

// near returns the offset of sequence number seq, counted from base, that lies nearest to ref.
func near(seq, base uint32, ref uint64) uint64 {
	off := int64(ref) + int64(int32(seq-base-uint32(ref)))
	return uint64(max(off, 0))
}

// sent judges a segment that a host sends, and returns the side that it belongs to.
func (m *Monitor) sent(h *Host, t wire.Tuple, seg wire.TCP, ecn wire.ECN, size int) *side {
	s := m.sides[t]
	var o wire.TCPOptions
	m.check(seg.ParseOptions(&o), "options are malformed")
	f := seg.Flags()
	if f.Has(wire.FlagSYN) && !f.Has(wire.FlagRST) && (s == nil || !s.opened || seg.Seq() != s.iss) {
		if s == nil || s.opened {
			s = m.open(h, t)
		}
		s.opened, s.crossed = true, !f.Has(wire.FlagACK)
		s.iss, s.syn, s.flags, s.end = seg.Seq(), o, f, 1
		s.syn.FastOpen = nil
	}
	if s == nil || !s.opened {
		m.check(f.Has(wire.FlagRST), "belongs to no connection")
		return nil
	}
	if f.Has(wire.FlagRST) {
		m.sentReset(s, seg)
		return s
	}
	if f.Has(wire.FlagSYN) {
		s.flags |= f
		m.sentSYN(s, seg, &o, ecn)
	} else {
		m.sentPlain(s, seg, &o)
	}
	m.sentData(s, seg, ecn, size)
	if f.Has(wire.FlagACK) {
		m.sentAck(s, seg, &o)
	}
	m.sentTimestamp(s, seg, &o)
	m.sentMarks(s, seg, &o.AccECN)
	return s
}

// open begins to follow a connection from its first SYN on, in either direction.
func (m *Monitor) open(h *Host, t wire.Tuple) *side {
	s := &side{host: h, v4: t.Local.Is4()}
	s.peer = &side{v4: s.v4, peer: s}
	s.peer.host, _ = m.net.nodes[t.Remote].(*Host)
	m.sides[t], m.sides[t.Reverse()] = s, s.peer
	return s
}

// sentReset: RFC 9293 3.5.2.
func (m *Monitor) sentReset(s *side, seg wire.TCP) {
	s.resets++
	s.reset = true
	m.check(s.resets <= s.inputs+1, "%d resets for %d segments", s.resets, s.inputs)
	m.check(len(seg.Payload()) == 0, "a reset with data")
	m.check(!seg.Flags().Any(wire.FlagSYN|wire.FlagFIN), "a reset with SYN or FIN")
}

// sentSYN: RFC 9293 3.7.1, RFC 7323 2.2 and 3.2, RFC 2018 2, RFC 3168 6.1.1.
func (m *Monitor) sentSYN(s *side, seg wire.TCP, o *wire.TCPOptions, ecn wire.ECN) {
	m.check(!seg.Flags().Has(wire.FlagFIN), "SYN with FIN")
	m.check(ecn == wire.NotECT, "SYN with %v", ecn)
	m.check(o.SACKs == 0, "SYN with SACK blocks")
	if !seg.Flags().Has(wire.FlagACK) {
		return
	}
	if !s.heard {
		m.fault("SYN-ACK without a SYN")
		return
	}
	p := &s.peer.syn
	m.check(!o.HasWindowScale || p.HasWindowScale, "window scale that was not offered")
	m.check(!o.HasTimestamps || p.HasTimestamps, "timestamps that were not offered")
	m.check(!o.SACKPermitted || p.SACKPermitted, "SACK that was not offered")
	if !s.crossed {
		m.check(o.HasWindowScale == s.syn.HasWindowScale && o.WindowScale == s.syn.WindowScale, "another window scale than before")
	}
}

// sentPlain judges what is neither SYN nor RST.
func (m *Monitor) sentPlain(s *side, seg wire.TCP, o *wire.TCPOptions) {
	f := seg.Flags()
	m.check(f.Has(wire.FlagACK), "without ACK")
	m.check(o.MSS == 0 && !o.HasWindowScale && !o.SACKPermitted, "options of a SYN")
	m.check(!f.Has(wire.FlagURG) || seg.Urgent() != 0 || len(seg.Payload()) > 0, "an urgent pointer to nothing")
	if o.SACKs > 0 {
		m.check(s.both(func(o *wire.TCPOptions) bool { return o.SACKPermitted }), "SACK without permission")
	}
}

// both reports whether both ends agreed on an option of the handshake.
func (s *side) both(has func(*wire.TCPOptions) bool) bool {
	return has(&s.syn) && has(&s.peer.syn)
}

func scaled(o *wire.TCPOptions) bool { return o.HasWindowScale }

// scale returns the shift of the windows that s announces.
func (s *side) scale() uint8 {
	if s.both(scaled) {
		return s.syn.WindowScale
	}
	return 0
}

// mss returns the largest segment that the peer of s takes, less options (RFC 9293 3.7.1, MUST-16).
func (s *side) mss() int {
	if s.heard && s.peer.syn.MSS != 0 {
		return int(s.peer.syn.MSS)
	}
	if s.v4 {
		return defaultMSS4
	}
	return defaultMSS6
}

// sentData judges the sequence space that a segment takes.
func (m *Monitor) sentData(s *side, seg wire.TCP, ecn wire.ECN, size int) {
	n := uint64(len(seg.Payload()))
	f := seg.Flags()
	from := near(seg.Seq(), s.iss, s.end)
	to := from + n
	if f.Has(wire.FlagSYN) {
		to++
	}
	before := s.sent
	if n > 0 {
		opt := len(seg.Options())
		m.check(int(n)+opt <= s.mss(), "payload of %d and options of %d above the MSS %d", n, opt, s.mss())
		if s.heard && !f.Has(wire.FlagSYN) {
			probe := n == 1 && from <= s.rightIn
			if to <= s.rightIn {
				s.sent = max(s.sent, to)
			}
			m.check(to <= s.rightIn || probe, "%d bytes beyond the window, which ends at %d", int64(to-s.rightIn), s.rightIn)
		}
		m.check(to > s.ackIn || n == 1 || f.Has(wire.FlagSYN), "data that is acknowledged up to %d, from %d to %d", s.ackIn, from, to)
		m.check(from <= s.end, "a hole in what is sent, from %d to %d", s.end, from)
	}
	m.sentFIN(s, f.Has(wire.FlagFIN), from, to)
	m.sentECN(s, ecn, n, from, before)
	s.end = max(s.end, to)
	if f.Has(wire.FlagFIN) {
		s.end = max(s.end, to+1)
	}
	m.check(size <= s.host.cfg.MTU, "a packet of %d bytes for an interface of %d", size, s.host.cfg.MTU)
}

// sentFIN: one FIN, at one place, and nothing behind it.
func (m *Monitor) sentFIN(s *side, fin bool, from, to uint64) {
	if s.fin != 0 {
		m.check(to <= s.fin || from == to, "data behind the FIN at %d", s.fin)
		m.check(!fin || to == s.fin, "FIN at %d and before at %d", to, s.fin)
		m.check(from <= s.fin+1, "from behind the FIN at %d", s.fin)
	}
	if fin {
		m.check(to >= s.end || s.fin != 0, "FIN at %d before the end of data at %d", to, s.end)
		s.fin = to
	}
}

// sentAck judges the acknowledgment, the window and the SACK blocks (RFC 9293 3.10.7.4, RFC 2018 4).
func (m *Monitor) sentAck(s *side, seg wire.TCP, o *wire.TCPOptions) {
	if !s.heard {
		m.fault("acknowledges what nobody sent")
		return
	}
	ack := near(seg.Ack(), s.peer.iss, max(s.acked, 1))
	m.check(ack <= s.got.prefix(), "acknowledges up to %d, received without a hole is up to %d", ack, s.got.prefix())
	m.check(ack >= s.acked, "acknowledges %d after %d", ack, s.acked)
	s.acked = max(s.acked, ack)
	shift := s.scale()
	if seg.Flags().Has(wire.FlagSYN) {
		shift = 0 // RFC 7323 2.2
	}
	right := ack + uint64(seg.Window())<<shift
	syn := seg.Flags().Has(wire.FlagSYN) && s.right > 0 // has no room for a scaled window
	over := syn || s.peer.fin != 0 && ack > s.peer.fin  // a window for nothing
	m.check(right >= s.right || m.ShrinkOK || over, "the window shrinks from %d to %d", s.right, right)
	s.right = max(s.right, right)
	if s.owed != 0 {
		m.check(m.now.Sub(s.owed) <= maxAckDelay, "acknowledges after %v", m.now.Sub(s.owed))
	}
	if ack >= s.sure.prefix() {
		s.owed = 0
	}
	m.sentSACK(s, o, ack)
}

// sentSACK: RFC 2018 4, RFC 2883 4.
func (m *Monitor) sentSACK(s *side, o *wire.TCPOptions, ack uint64) {
	for i, b := range o.SACK[:o.SACKs] {
		l := near(b.Left, s.peer.iss, ack)
		r := near(b.Right, s.peer.iss, ack)
		m.check(l < r && s.got.has(l, r), "SACK block %d of what has not arrived: %d to %d", i, l, r)
		if l >= ack {
			continue
		}
		m.check(i == 0, "SACK block %d below the acknowledgment", i) // RFC 2883: D-SACK is the first
		m.check(r <= ack, "SACK block %d across the acknowledgment: %d to %d, %d", i, l, r, ack)
	}
}

// sentTimestamp: RFC 7323 3.2 and 5.4.
func (m *Monitor) sentTimestamp(s *side, seg wire.TCP, o *wire.TCPOptions) {
	syn := seg.Flags().Has(wire.FlagSYN)
	if !syn {
		agreed := s.both(func(o *wire.TCPOptions) bool { return o.HasTimestamps })
		m.check(agreed == o.HasTimestamps, "timestamps: agreed %v, there %v", agreed, o.HasTimestamps)
	}
	if !o.HasTimestamps {
		return
	}
	m.check(!s.tsAny || int32(o.TSVal-s.tsval) >= 0, "timestamp %d after %d", o.TSVal, s.tsval)
	s.tsval, s.tsAny = o.TSVal, true
	if seg.Flags().Has(wire.FlagACK) && s.heard {
		m.check(int32(o.TSEcr-s.tsIn) <= 0, "echoes timestamp %d, the latest is %d", o.TSEcr, s.tsIn)
	}
}

// arrived notes what a segment from s tells the other end.
func (m *Monitor) arrived(s *side, seg wire.TCP) {
	r := s.peer
	var o wire.TCPOptions
	seg.ParseOptions(&o)
	f := seg.Flags()
	if f.Has(wire.FlagRST) {
		r.reset = true
		return
	}
	r.inputs++
	if f.Has(wire.FlagSYN) {
		r.heard = true
	}
	if o.HasTimestamps && (r.inputs == 1 || int32(o.TSVal-r.tsIn) > 0) {
		r.tsIn = o.TSVal
	}
	old := o.HasTimestamps && int32(o.TSVal-r.tsIn) < 0 // PAWS may refuse it
	if f.Has(wire.FlagACK) && near(seg.Ack(), r.iss, max(r.ackIn, 1))+r.largest < r.ackIn {
		old = true // so may RFC 5961 5.2
	}
	old = !m.arrivedData(r, s, seg, old) || old
	if f.Has(wire.FlagACK) {
		m.arrivedAck(r, s, seg, old)
	}
}

// arrivedData notes the sequence space that has arrived at r, and reports whether r must take note of what
// else the segment says: one that lies before its window is only answered (RFC 9293 3.10.7.4, first).
func (m *Monitor) arrivedData(r, s *side, seg wire.TCP, old bool) bool {
	before := r.got.prefix()
	from := near(seg.Seq(), s.iss, before)
	to := from + uint64(len(seg.Payload()))
	for _, bit := range []wire.TCPFlags{wire.FlagSYN, wire.FlagFIN} {
		if seg.Flags().Has(bit) {
			to++
		}
	}
	r.got.add(from, to)
	if !old && (to <= r.right || r.right == 0) {
		sure := r.sure.prefix()
		r.sure.add(from, to)
		if sure > 0 && r.sure.prefix() > sure && r.owed == 0 && !r.reset && !m.RefuseOK {
			r.owed = m.now
		}
	}
	return to > before || from >= before
}

// arrivedAck notes what r may send now; old says that r need not look at the acknowledgment.
func (m *Monitor) arrivedAck(r, s *side, seg wire.TCP, old bool) {
	ack := near(seg.Ack(), r.iss, max(r.ackIn, 1))
	shift := s.scale()
	if seg.Flags().Has(wire.FlagSYN) {
		shift = 0
	}
	if !old {
		r.ackIn = max(r.ackIn, ack)
	}
	r.rightIn = max(r.rightIn, ack+uint64(seg.Window())<<shift)
	r.largest = max(r.largest, uint64(seg.Window())<<shift)
}
