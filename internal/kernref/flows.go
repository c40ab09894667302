package kernref

import (
	"net/netip"

	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/packet"
)

// Flows is the flow table of Reference: a map that never forgets. Its slots are numbers that no
// other flow ever has; an engine's are the same but for their names, as long as it has room.
type Flows struct {
	Idle  uint32 // epochs
	Epoch uint32
	flows map[direction]*flow.Flow
	slot  map[direction]uint32
	last  uint32
}

// direction is one direction of a flow, from a source to a destination.
type direction struct {
	src, dst netip.AddrPort
	proto    uint8
	ports    bool
}

// see counts a packet of f and returns what Desc.Flow says about it.
func (m *Flows) see(f direction) uint32 {
	if m.flows == nil {
		m.flows, m.slot = map[direction]*flow.Flow{}, map[direction]uint32{}
	}
	direction := uint32(0)
	if f.src.Compare(f.dst) > 0 {
		f.src, f.dst, direction = f.dst, f.src, 1
	}
	e := m.flows[f]
	if e == nil || m.Epoch-e.Last > m.Idle {
		e = &flow.Flow{A: f.src, B: f.dst, Ports: f.ports, Proto: f.proto, First: m.Epoch}
		m.flows[f] = e
		m.last++
		m.slot[f] = m.last
	}
	e.Last = m.Epoch
	e.Packets++
	return m.slot[f]<<1 | direction
}

// Flow returns the latest flow between the ends of f and its slot, 0 where there was none.
func (m *Flows) Flow(f flow.Flow) (flow.Flow, uint32) {
	key := direction{f.A, f.B, f.Proto, f.Ports}
	if e := m.flows[key]; e != nil {
		found := *e
		found.Idle = m.Epoch-e.Last > m.Idle
		return found, m.slot[key]
	}
	return flow.Flow{}, 0
}

// flow returns the direction that r is of.
func (r *packetView) flow() direction {
	f := direction{proto: r.proto, ports: r.sport != noPort && r.flags&packet.FlagFragment == 0}
	sport, dport := uint16(0), uint16(0)
	if f.ports {
		sport, dport = uint16(r.sport), uint16(r.dport)
	}
	f.src, f.dst = netip.AddrPortFrom(r.src, sport), netip.AddrPortFrom(r.dst, dport)
	return f
}
