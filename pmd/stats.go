package pmd

import (
	"sync/atomic"

	"github.com/millrace/millrace/packet"
)

// Stats counts what a queue did since it was opened: packets, not descriptors.
type Stats struct {
	RxPackets, RxBytes uint64 // handed to the caller
	TxPackets, TxBytes uint64 // taken from the caller
	RxMissed           uint64 // lost before Rx, as the device counts them: ring full or no free frame (DPDK: imissed)
	RxInvalid          uint64 // rejected by the device or the driver as unusable
	TxInvalid          uint64 // taken by Tx and rejected by the device: never sent
	TxInvalidBytes     uint64 // of those that the driver rejects; they count in TxBytes too
	Wakeups            uint64 // system calls made to move packets

	// Of devices with rules for what is claimed (rte_flow), while something is.
	Steered         uint64 // received packets that a rule of the device has marked as claimed
	SteeredSoftware uint64 // and those that were looked up in software

	// Of an exception path (package exception), beside the packets above.
	ToKernel, FromKernel uint64 // packets that no rule claims, and those that the kernel sends
	KernelLost           uint64 // packets of both that the kernel or the device did not take
}

// Add adds the counts of another queue, or of the same before it was opened anew.
func (s *Stats) Add(o Stats) {
	s.RxPackets += o.RxPackets
	s.RxBytes += o.RxBytes
	s.TxPackets += o.TxPackets
	s.TxBytes += o.TxBytes
	s.RxMissed += o.RxMissed
	s.RxInvalid += o.RxInvalid
	s.TxInvalid += o.TxInvalid
	s.TxInvalidBytes += o.TxInvalidBytes
	s.Wakeups += o.Wakeups
	s.Steered += o.Steered
	s.SteeredSoftware += o.SteeredSoftware
	s.ToKernel += o.ToKernel
	s.FromKernel += o.FromKernel
	s.KernelLost += o.KernelLost
}

// Counters are the Stats of a queue while it runs: one loop adds, any goroutine reads. Drivers add
// once for each batch, so its packets share the cost of the atomic additions.
type Counters struct {
	RxPackets, RxBytes, TxPackets, TxBytes atomic.Uint64
	RxMissed, RxInvalid, TxInvalid         atomic.Uint64
	TxInvalidBytes                         atomic.Uint64
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

// Refuse counts the packet of d, which the device does not take; Tx counts it as well.
func (c *Counters) Refuse(d []packet.Desc) {
	_, bytes := packet.Count(d)
	c.TxInvalid.Add(1)
	c.TxInvalidBytes.Add(bytes)
}

// Stats returns what was counted so far. A call that runs beside Rx or Tx may see only some of the counters of a batch.
func (c *Counters) Stats() Stats {
	return Stats{
		RxPackets: c.RxPackets.Load(), RxBytes: c.RxBytes.Load(),
		TxPackets: c.TxPackets.Load(), TxBytes: c.TxBytes.Load(),
		RxMissed: c.RxMissed.Load(), RxInvalid: c.RxInvalid.Load(),
		TxInvalid: c.TxInvalid.Load(), TxInvalidBytes: c.TxInvalidBytes.Load(), Wakeups: c.Wakeups.Load(),
	}
}
