package gpukern

import (
	"net/netip"

	"github.com/millrace/millrace/packet"
)

// RefFlows is the flow table of Reference: a map that never forgets. Its slots are numbers that no
// other flow ever has; an engine's are the same but for their names, as long as it has room.
type RefFlows struct {
	Idle  uint32 // epochs
	Epoch uint32
	flows map[refFlow]*Flow
	slot  map[refFlow]uint32
	last  uint32
}

// refFlow is one direction of a flow, from a source to a destination.
type refFlow struct {
	src, dst netip.AddrPort
	proto    uint8
	ports    bool
}

// see counts a packet of f and returns what Desc.Flow says about it.
func (m *RefFlows) see(f refFlow) uint32 {
	if m.flows == nil {
		m.flows, m.slot = map[refFlow]*Flow{}, map[refFlow]uint32{}
	}
	direction := uint32(0)
	if f.src.Compare(f.dst) > 0 {
		f.src, f.dst, direction = f.dst, f.src, 1
	}
	e := m.flows[f]
	if e == nil || m.Epoch-e.Last > m.Idle {
		e = &Flow{A: f.src, B: f.dst, Ports: f.ports, Proto: f.proto, First: m.Epoch}
		m.flows[f] = e
		m.last++
		m.slot[f] = m.last
	}
	e.Last = m.Epoch
	e.Packets++
	return m.slot[f]<<1 | direction
}

// Flow returns the latest flow between the ends of f and its slot, 0 where there was none.
func (m *RefFlows) Flow(f Flow) (Flow, uint32) {
	key := refFlow{f.A, f.B, f.Proto, f.Ports}
	if e := m.flows[key]; e != nil {
		found := *e
		found.Idle = m.Epoch-e.Last > m.Idle
		return found, m.slot[key]
	}
	return Flow{}, 0
}

// flow returns the direction that r is of.
func (r *refPacket) flow() refFlow {
	f := refFlow{proto: r.proto, ports: r.sport != noPort && r.flags&packet.FlagFragment == 0}
	sport, dport := uint16(0), uint16(0)
	if f.ports {
		sport, dport = uint16(r.sport), uint16(r.dport)
	}
	f.src, f.dst = netip.AddrPortFrom(r.src, sport), netip.AddrPortFrom(r.dst, dport)
	return f
}

// RefSketch is what Reference counts: every source by itself.
type RefSketch struct {
	Sources        map[netip.Addr]*RefRate // IPv4 addresses, and the first addresses of IPv6 /64s
	Packets, Bytes uint64
}

// RefRate is what a source sent.
type RefRate struct{ Packets, Bytes uint64 }

// count counts a packet of n bytes.
func (m *RefSketch) count(src netip.Addr, n int) {
	if m.Sources == nil {
		m.Sources = map[netip.Addr]*RefRate{}
	}
	if src.Is6() {
		a := src.As16()
		clear(a[8:])
		src = netip.AddrFrom16(a)
	}
	r := m.Sources[src]
	if r == nil {
		r = new(RefRate)
		m.Sources[src] = r
	}
	r.Packets++
	r.Bytes += uint64(n)
	m.Packets++
	m.Bytes += uint64(n)
}
