package gpukern

import (
	"fmt"
	"time"
)

// Line is how long a back end takes for a lone batch of n packets: T0 + n*T1, in nanoseconds. Each is
// what it takes for a packet with several batches under way.
type Line struct {
	T0, T1 float64
	Each   float64
}

// At returns the time for a lone batch of n packets.
func (l Line) At(n int) time.Duration { return time.Duration(l.T0 + float64(n)*l.T1) }

// String tells l for people.
func (l Line) String() string {
	return fmt.Sprintf("%.2f us + n*%.1f ns, %.1f Mpps", l.T0/1e3, l.T1, 1e3/l.Each)
}

// Choice is the verdict about a set of operations on packets of a size: which back end is faster for
// what, with the figures that say so (gpukern/choose measures them).
type Choice struct {
	Ops      Ops
	Bytes    int // size of the packets that were measured
	CPU, GPU Line

	// From is how many packets a batch needs for the GPU to save the loop time: from there on the GPU
	// does a batch, with others under way, in less time than the CPU. 0 is never.
	From int

	// FromAlone is From for a lone batch, whose whole latency counts. 0 is never.
	FromAlone int
}

// Never reports whether the GPU is of no use for this.
func (c *Choice) Never() bool { return c.From == 0 }

// Verdict tells the verdict for people, without the figures.
func (c *Choice) Verdict() string {
	v := "never on the GPU here"
	if !c.Never() {
		v = fmt.Sprintf("on the GPU from %d packets", c.From)
	}
	if c.FromAlone > 0 {
		v += fmt.Sprintf(" (a lone batch from %d)", c.FromAlone)
	}
	return v
}

// String tells c in one line, for people.
func (c *Choice) String() string {
	return fmt.Sprintf("%v, %d B: %s; CPU %v; GPU %v", c.Ops, c.Bytes, c.Verdict(), c.CPU, c.GPU)
}
