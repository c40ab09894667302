package inspection

import (
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inspectAll has a packet inspected: each datagram by itself where a driver has joined several (packet.GSOUDP), because rules
// look at the payload of a datagram. It ends at the first that is not to pass: the packet is dropped or passes as a whole.
func (l *Loop) inspectAll(p *policy, in *inspect.Input) (r inspect.Result) {
	d := &l.in.Chain[0]
	size := l.datagramSize()
	if size == 0 {
		in.Frame = l.whole
		return l.engine.Inspect(in)
	}
	whole, payload := l.whole, l.whole[d.Payload:]
	for len(payload) > 0 {
		n := min(size, len(payload))
		l.whole = l.datagram(whole[:d.Payload], payload[:n])
		in.Frame = l.whole // the packet of its alerts
		one := l.engine.Inspect(in)
		r.Bound, r.Anomaly = r.Bound || one.Bound, r.Anomaly || one.Anomaly
		r.Outcome, r.Blocked = max(r.Outcome, one.Outcome), one.Blocked
		if p.prevent && (one.Blocked || one.Outcome != inspect.Pass) {
			break
		}
		payload, in.Fresh = payload[n:], false
	}
	return r
}

// datagramSize returns the payload of each datagram that the packet joins, 0 where it is one.
func (l *Loop) datagramSize() int {
	d := &l.in.Chain[0]
	if !d.Flags.Has(packet.FlagOffload) || d.Proto != wire.ProtoUDP || d.Payload == 0 || int(d.Payload) > len(l.whole) {
		return 0
	}
	o := l.in.Arena.Offload(d)
	if o.GSO != packet.GSOUDP || int(o.SegmentSize) >= len(l.whole)-int(d.Payload) {
		return 0
	}
	return int(o.SegmentSize)
}

// datagram returns the frame of one datagram; head is that of all of them.
func (l *Loop) datagram(head, payload []byte) []byte {
	d := &l.in.Chain[0]
	l.part = append(append(l.part[:0], head...), payload...)
	ip := l.part[d.L3:]
	if d.Flags.Has(packet.FlagIPv4) {
		wire.IPv4(ip).SetTotalLen(uint16(len(ip)))
		wire.IPv4(ip).FillChecksum()
	} else {
		wire.IPv6(ip).SetPayloadLen(uint16(len(ip) - wire.IPv6Len))
	}
	wire.UDP(l.part[d.L4:]).SetLen(uint16(wire.UDPLen + len(payload)))
	return l.part
}
