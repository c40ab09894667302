package pmd

import (
	"sync/atomic"

	"github.com/millrace/millrace/packet"
)

// Counters are the Stats of a queue while it runs: one loop adds, any goroutine reads. Drivers add
// once for each batch, so the price of the atomic additions is shared by all its packets.
type Counters struct {
	RxPackets, RxBytes, TxPackets, TxBytes atomic.Uint64
	RxDropped, RxInvalid, TxInvalid        atomic.Uint64
	Wakeups                                atomic.Uint64
}

// Rx counts the packets of d, which have been handed to the caller.
func (c *Counters) Rx(d []packet.Desc) {
	packets, bytes := packet.Count(d)
	c.RxPackets.Add(packets)
	c.RxBytes.Add(bytes)
}

// Tx counts the packets of d, which have been taken from the caller.
func (c *Counters) Tx(d []packet.Desc) {
	packets, bytes := packet.Count(d)
	c.TxPackets.Add(packets)
	c.TxBytes.Add(bytes)
}

// Stats returns what was counted so far. The numbers of one batch may be seen in part.
func (c *Counters) Stats() Stats {
	return Stats{
		RxPackets: c.RxPackets.Load(), RxBytes: c.RxBytes.Load(),
		TxPackets: c.TxPackets.Load(), TxBytes: c.TxBytes.Load(),
		RxDropped: c.RxDropped.Load(), RxInvalid: c.RxInvalid.Load(),
		TxInvalid: c.TxInvalid.Load(), Wakeups: c.Wakeups.Load(),
	}
}
