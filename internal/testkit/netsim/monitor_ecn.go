package netsim

import "github.com/millrace/millrace/wire"

// sentECN: RFC 3168 6.1.4 and 6.1.5.
func (m *Monitor) sentECN(s *side, mark wire.ECN, n, from, sent uint64) {
	if mark == wire.NotECT {
		return
	}
	const asked = wire.FlagECE | wire.FlagCWR
	accurate := s.ecn.option || s.peer.ecn.option // whose SYN-ACK may have AE alone (RFC 9768 Table 2)
	m.check(s.flags.Any(asked) && s.peer.flags.Any(asked) || accurate, "%v that was not negotiated", mark)
	m.check(mark != wire.CE, "CE from a host")
	m.check(n > 0, "%v without data", mark)
	m.check(from >= sent, "%v on a retransmission", mark)
}

// ecnCounts is what the ECN fields of packets that arrived at one end say, and what that end has said of them.
type ecnCounts struct {
	packets  uint64    // that arrived as CE
	bytes    [4]uint64 // of payload, by wire.ECN
	reported [4]uint32 // the counters of options that it sent
	option   bool      // it sent one
	counts   bool      // it sent one without SYN: what it sends with data has counters
}

// arrived counts a segment. A SYN without ACK does not count (RFC 9768 3.2).
func (k *ecnCounts) arrived(seg wire.TCP, mark wire.ECN) {
	if seg.Flags()&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN {
		return
	}
	k.bytes[mark] += uint64(len(seg.Payload()))
	if mark == wire.CE {
		k.packets++
	}
}

// Where counters begin (RFC 9768 3.2.1).
const firstACE = 5

var firstBytes = [4]uint32{wire.ECT0: 1, wire.ECT1: 1}

// ace returns the number in AE, CWR and ECE.
func ace(seg wire.TCP) (n uint64) {
	for i, set := range []bool{seg.Flags().Has(wire.FlagECE), seg.Flags().Has(wire.FlagCWR), seg.AE()} {
		if set {
			n |= 1 << i
		}
	}
	return n
}

// sentMarks: RFC 9768 3.2. What arrived and is not in a counter may wait in the host; what did not arrive cannot be.
func (m *Monitor) sentMarks(s *side, seg wire.TCP, o *wire.AccECN) {
	k, f := &s.ecn, seg.Flags()
	if f.Has(wire.FlagSYN) {
		m.check(!o.Present() || f.Has(wire.FlagACK), "a SYN with an option of accurate ECN")
		k.reported = firstBytes
	}
	if o.Present() {
		k.option, k.counts = true, k.counts || !f.Has(wire.FlagSYN)
		m.sentCounters(k, o)
	}
	if k.counts && len(seg.Payload()) > 0 {
		n := (ace(seg) - firstACE) & 7
		m.check(n <= k.packets, "%d marked packets, %d have arrived", n, k.packets)
	}
}

// sentCounters judges the counters of an option.
func (m *Monitor) sentCounters(k *ecnCounts, o *wire.AccECN) {
	for mark, v := range [4]uint32{wire.ECT0: o.ECT0, wire.ECT1: o.ECT1, wire.CE: o.CE} {
		if !o.Has(wire.ECN(mark)) {
			continue
		}
		n := uint64(v - firstBytes[mark])
		m.check(n <= k.bytes[mark], "%d bytes of %v, %d have arrived", n, wire.ECN(mark), k.bytes[mark])
		m.check(v >= k.reported[mark], "%v goes back from %d to %d", wire.ECN(mark), k.reported[mark], v)
		k.reported[mark] = v
	}
}
