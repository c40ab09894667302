package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// timerBase is the first timer of each kind on the one wheel of a node. Each slot of each fixed table has a timer of its
// own, so that arming one allocates nothing, and an id names its owner without a map:
//
//	0            addrs       groups      queries        routes     solicits    frags         end
//	| neighbours | addresses | groups    | 2 per device | learned  | 1 per     | datagrams in |
//	| by slot    | maxAddrs  | MaxGroups | IPv6, IPv4   | routes   | device    | reassembly   |
type timerBase struct {
	addrs    uint32
	groups   uint32
	queries  uint32 // two for each device
	routes   uint32
	solicits uint32 // one for each device
	frags    uint32
	end      uint32
}

func (n *Node) startTimers() {
	b := &n.base
	b.addrs = uint32(len(n.neigh.slot))
	b.groups = b.addrs + maxAddrs
	b.queries = b.groups + uint32(n.cfg.MaxGroups)
	b.routes = b.queries + 2*uint32(len(n.links))
	b.solicits = b.routes + maxLearned
	b.frags = b.solicits + uint32(len(n.links))
	b.end = b.frags + uint32(n.cfg.MaxReassembly)
	n.wheel = clock.NewWheel(int(b.end), time.Millisecond, n.now)
	n.due = n.fire
}

// Poll runs the timers that are due and returns the time of the next one, clock.Never where none is armed. Every other
// method may arm an earlier one: the caller asks again after its last call before it sleeps.
func (n *Node) Poll(now clock.Time) clock.Time {
	n.setNow(now)
	n.wheel.Advance(now, n.due)
	return n.wheel.Next()
}

// fire runs the expired timer id.
func (n *Node) fire(id uint32) {
	switch {
	case id < n.base.addrs:
		n.neighborTimer(uint16(id))
	case id >= n.base.frags:
		n.assemblyExpired(int(id - n.base.frags))
	case id >= n.base.solicits:
		n.sendRouterSolicit(uint8(id - n.base.solicits))
	case id >= n.base.routes:
		n.expireRoute(int(id - n.base.routes))
	case id >= n.base.queries:
		n.answerGeneral(int(id - n.base.queries))
	case id >= n.base.groups:
		n.groupTimer(uint16(id - n.base.groups))
	default:
		n.addrTimer(int(id - n.base.addrs))
	}
}
