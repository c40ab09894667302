package stack

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Bridge is the Handler of a bump in the wire: what comes in on one port of a pair (0 and 1, 2 and
// 3, ...) leaves by the other, unchanged.
//
// It looks at no packet. A verdict that an earlier stage has set, such as a filter's, stands.
type Bridge struct{}

// Handle implements Handler.
func (Bridge) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		if d.Verdict == packet.Undecided {
			d.Verdict = packet.Forward
			d.Port ^= 1
		}
	}
}

// Tick implements Handler: a bridge has no timers.
func (Bridge) Tick(clock.Time) clock.Time { return clock.Never }
