package kernbench

import (
	"bytes"
	"strconv"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// flowsOf returns for each packet the number of its flow, from 1, twice, plus its direction; 0 where it
// has none. It finds the flows by itself, in a map.
func flowsOf(l *load, desc []packet.Desc) []uint32 {
	known := map[string]uint32{}
	flow := make([]uint32, len(desc))
	for i := range desc {
		key, direction := flowKey(l.arena.Mem[desc[i].Off:][:desc[i].Len], &desc[i])
		if key == "" {
			continue
		}
		n := known[key]
		if n == 0 {
			n = uint32(len(known) + 1)
			known[key] = n
		}
		flow[i] = n<<1 | direction
	}
	return flow
}

// flowKey returns what makes the flow of a packet: its two ends, the lower one first, the protocol and
// whether ports are known. direction is 1 where the source is the higher end.
func flowKey(p []byte, d *packet.Desc) (key string, direction uint32) {
	if d.Flags&(packet.FlagIPv4|packet.FlagIPv6) == 0 || d.Flags.Has(packet.FlagMalformed) {
		return "", 0
	}
	var src, dst []byte
	if d.Flags.Has(packet.FlagIPv4) {
		a, b := wire.IPv4(p[d.L3:]).Src(), wire.IPv4(p[d.L3:]).Dst()
		src, dst = a[:], b[:]
	} else {
		a, b := wire.IPv6(p[d.L3:]).Src(), wire.IPv6(p[d.L3:]).Dst()
		src, dst = a[:], b[:]
	}
	order, known := bytes.Compare(src, dst), byte(0)
	var ports [4]byte
	if hasPorts(d) {
		copy(ports[:], p[d.L4:])
		known = 1
	}
	if order == 0 {
		order = bytes.Compare(ports[:2], ports[2:])
	}
	if order > 0 {
		src, dst = dst, src
		ports = [4]byte{ports[2], ports[3], ports[0], ports[1]}
		direction = 1
	}
	k := append(append(append([]byte(nil), src...), dst...), ports[:]...)
	return string(append(k, d.Proto, known)), direction
}

// hasPorts reports whether the ports of a packet are known; those of fragments are not, as later
// fragments have none.
func hasPorts(d *packet.Desc) bool {
	switch d.Proto {
	case wire.ProtoTCP, wire.ProtoUDP, wire.ProtoSCTP:
		return d.Payload != 0 && !d.Flags.Has(packet.FlagFragment)
	}
	return false
}

// flowsSeen is which slot of its table a back end gave to which flow.
type flowsSeen struct {
	slot map[uint32]uint32 // by flow
	flow map[uint32]uint32 // by slot
	none uint64            // packets of flows without a slot: the table had no room

	// whole are results of the load that were right, to compare the next ones with at once.
	whole []packet.Desc
	known []bool // of each, whether it is there
}

// same reports whether these results have been right before.
func (s *flowsSeen) same(got []packet.Desc, at int) bool {
	n := len(got)
	return at+n <= len(s.known) && s.known[at] && s.known[at+n-1] && bytes.Equal(descBytes(got), descBytes(s.whole[at:at+n]))
}

// keep keeps results that are right, of which the load has n. Those without a slot may have one next time.
func (s *flowsSeen) keep(got []packet.Desc, at, n int) {
	if s.none > 0 {
		return
	}
	if s.whole == nil {
		s.whole, s.known = make([]packet.Desc, n), make([]bool, n)
	}
	copy(s.whole[at:], got)
	for i := range got {
		s.known[at+i] = true
	}
}

func newFlowsSeen() *flowsSeen {
	return &flowsSeen{slot: map[uint32]uint32{}, flow: map[uint32]uint32{}}
}

// compareFlows compares the slots that a back end gave with the flows that there are: each flow has
// one slot, no two the same, in both directions and in every run. The first result is of the load's
// descriptor at.
func (e *expectation) compareFlows(got []packet.Desc, at int, seen *flowsSeen) error {
	if e.flow == nil {
		return nil
	}
	for k := range got {
		i := at + k
		want, g := e.flow[i], got[k].Flow
		if want == 0 || g == 0 {
			if want != 0 {
				seen.none++
			} else if g != 0 {
				return wrong(i, "flow", g, "none")
			}
			continue
		}
		if want&1 != g&1 {
			return wrong(i, "direction of the flow", g&1, want&1)
		}
		flow, slot := want>>1, g>>1
		s, known := seen.slot[flow]
		if !known {
			if other, taken := seen.flow[slot]; taken {
				return wrong(i, "slot", slot, "its own: flow "+uitoa(other)+" has it")
			}
			seen.slot[flow], seen.flow[slot] = slot, flow
		} else if s != slot {
			return wrong(i, "slot", slot, s)
		}
	}
	return nil
}

func uitoa(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
