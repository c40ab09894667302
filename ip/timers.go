package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// timerBase says where the timers of each kind begin on the wheel. Those of neighbours are first: slot i
// has timer i.
type timerBase struct {
	addrs uint32
	frags uint32
	end   uint32
}

func (n *Node) startTimers() {
	b := &n.base
	b.addrs = uint32(len(n.neigh.slot))
	b.frags = b.addrs + maxAddrs
	b.end = b.frags + uint32(n.cfg.MaxReassembly)
	n.wheel = clock.NewWheel(int(b.end), time.Millisecond, n.now)
	n.due = n.fire
}

// Poll runs what is due and returns when it wants to be called next.
func (n *Node) Poll(now clock.Time) clock.Time {
	n.enter(now)
	n.wheel.Advance(now, n.due)
	return n.wheel.Next()
}

// fire runs the timer id, which has expired.
func (n *Node) fire(id uint32) {
	switch {
	case id < n.base.addrs:
		n.neighborDue(uint16(id))
	case id >= n.base.frags:
		n.assemblyDue(int(id - n.base.frags))
	default:
		n.addrDue(int(id - n.base.addrs))
	}
}
