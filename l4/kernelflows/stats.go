package kernelflows

import (
	"fmt"
)

// Reasons name the fates of packets that a program has seen, in the order of Stats.Packets.
var Reasons = [...]string{
	"forwarded", "no_entry", "renewed", "flags", "window", "header", "hops", "too_long", "link", "lost", "failed",
}

// Stats are counters since Open.
type Stats struct {
	Packets [len(Reasons)]uint64 // by reason; all but the first and "failed" went up, and "lost" ones may be dropped there
	Entered uint64               // connections that are entered now
	Slots   int                  // places for them
	Refused uint64               // connections for which there was no place, or that the kernel cannot forward
	Failed  uint64               // keys that the kernel did not take
	Late    uint64               // packets that were counted, or taken back, after the loop had read the counters
}

// Stats returns the counters.
func (t *Table) Stats() (s Stats, err error) {
	for i := range s.Packets {
		var perCPU []uint64
		if err := t.objs.Reasons.Lookup(uint32(i), &perCPU); err != nil {
			return s, fmt.Errorf("read the counters of kernel flows: %w", err)
		}
		for _, n := range perCPU {
			s.Packets[i] += n
		}
	}
	for _, l := range t.loops {
		s.Entered += l.entered.Load()
		s.Refused += l.refused.Load()
		s.Failed += l.failed.Load()
		s.Late += l.late.Load()
		s.Slots += len(l.known)
	}
	return s, nil
}
