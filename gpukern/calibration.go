package gpukern

import (
	"fmt"
	"time"
)

// CostModel estimates the time of a back end for a single batch of n packets: FixedNs + n*PacketNs.
type CostModel struct {
	FixedNs     float64 // of a batch, whatever its size
	PacketNs    float64 // of each packet
	PipelinedNs float64 // of each packet with several batches in flight
}

// At returns the time for a single batch of n packets.
func (l CostModel) At(n int) time.Duration { return time.Duration(l.FixedNs + float64(n)*l.PacketNs) }

// String returns the model in one line.
func (l CostModel) String() string {
	return fmt.Sprintf("%.2f us + n*%.1f ns, %.1f Mpps", l.FixedNs/1e3, l.PacketNs, 1e3/l.PipelinedNs)
}

// Calibration is a measurement of a set of operations on packets of one size: the cost of both back ends and
// the batch size from which the GPU is worth it (gpukern/choose measures).
type Calibration struct {
	Ops      Ops
	Bytes    int // size of the packets that were measured
	CPU, GPU CostModel

	// BreakEven is the smallest batch, in packets, that the GPU does in less time than the CPU while other
	// batches are in flight. 0 is never.
	BreakEven int

	// BreakEvenAlone is BreakEven for a single batch in flight, whose whole latency counts. 0 is never.
	BreakEvenAlone int
}

// Never reports whether the GPU is slower at every batch size.
func (c *Calibration) Never() bool { return c.BreakEven == 0 }

// Summary returns the result in words, without the costs.
func (c *Calibration) Summary() string {
	v := "never on the GPU here"
	if !c.Never() {
		v = fmt.Sprintf("on the GPU from %d packets", c.BreakEven)
	}
	if c.BreakEvenAlone > 0 {
		v += fmt.Sprintf(" (a single batch from %d)", c.BreakEvenAlone)
	}
	return v
}

// String returns c in one line.
func (c *Calibration) String() string {
	return fmt.Sprintf("%v, %d B: %s; CPU %v; GPU %v", c.Ops, c.Bytes, c.Summary(), c.CPU, c.GPU)
}
