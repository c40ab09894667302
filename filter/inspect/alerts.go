package inspect

import (
	"net/netip"

	"github.com/millrace/millrace/filter/signature"
)

// Anomaly is a finding that the engine reports without a rule.
type Anomaly uint8

// The anomalies.
const (
	NoAnomaly       Anomaly = iota
	StreamOverlap           // segments of TCP differ in bytes of the same place
	FragmentOverlap         // fragments of IP do
	UrgentData              // a segment of TCP has urgent data, and is not taken
	HTTPFraming             // recipients may read the length of a request's body differently
)

// String returns the name of an anomaly.
func (a Anomaly) String() string {
	return [...]string{"", "stream overlap differs", "fragment overlap differs", "urgent data", "ambiguous length of a request"}[a]
}

// Alert is one match of a rule, or an anomaly.
type Alert struct {
	Rule             *signature.Rule // nil for an anomaly
	Anomaly          Anomaly
	Time             int64  // of the packet, in the unit that Packet was given
	Packet           uint64 // which, counted from 1, or its Input.Number; 0 at the end of a flow
	Flow             uint64 // which, counted from 1, or by its first packet's number; 0 for a packet of no flow
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
	Dir              signature.Direction // 0 for a packet of no flow
	App              signature.App
	Tunnel           int    // how many tunnels the packet is in
	Payload          []byte // where it matched, borrowed

	Conn     *Conn     // of a message that a gateway has handed over; nil for a packet
	Exchange *Exchange // the same; nil for a ClientHello
}

// matched does what a rule that matches does.
func (e *Engine) matched(q *rule, p *packet, payload []byte) {
	if f := p.flow; f != nil && f.passed {
		return
	}
	if q.Detect != nil && !e.cfg.LeaveThresholds && !e.thresholds.passes(q.Detect, q.key, e.now, p.src, p.dst) {
		return
	}
	e.setBits(q, p)
	count(q, p)
	if q.Action == signature.Pass {
		if p.flow != nil {
			p.flow.passed = true
		}
		return
	}
	if e.cfg.OnMatch != nil {
		e.cfg.OnMatch(q.Rule)
	}
	switch q.Action {
	case signature.Drop:
		e.blockBy(q, p, Drop)
	case signature.Reject:
		e.blockBy(q, p, Reject)
	}
	if q.NoAlert {
		return
	}
	if q.Limit != nil && !e.cfg.LeaveThresholds && !e.thresholds.passes(q.Limit, q.key, e.now, p.src, p.dst) {
		e.stats.Suppressed++
		return
	}
	a := e.alert(p)
	a.Rule, a.Payload = q.Rule, payload
	e.onAlert(a)
}

// blockBy is block for a rule: the first of the largest outcome is that of the result.
func (e *Engine) blockBy(q *rule, p *packet, o Outcome) {
	if !e.ending && o > e.result.Outcome {
		e.result.Rule = q.Rule
	}
	e.block(p, o)
}

// anomaly reports what no rule requests.
func (e *Engine) anomaly(p *packet, kind Anomaly) {
	e.result.Anomaly = true
	if e.cfg.DropConflicts && !e.ending {
		e.decide(Drop)
	}
	a := e.alert(p)
	a.Anomaly, a.Payload = kind, p.payload
	e.onAlert(a)
}

// alert returns an Alert about a packet. At the end of a flow there is none: its number is 0.
func (e *Engine) alert(p *packet) *Alert {
	a := &Alert{Time: e.now, Packet: e.packet, Src: p.src.Unmap(), Dst: p.dst.Unmap(), SrcPort: p.srcPort, DstPort: p.dstPort, Proto: p.proto, Dir: p.dir, Tunnel: p.depth}
	if p.flow != nil {
		a.Flow, a.App = p.flow.id, p.flow.app
	}
	a.Conn, a.Exchange = e.conn, e.exchange
	if e.ending {
		a.Packet = 0
	}
	return a
}
