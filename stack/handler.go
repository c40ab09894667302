package stack

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Handler decides the verdict of each packet: a gateway, a forwarder, a host, or a dispatcher over
// several of them. Its methods are called by the goroutine that polls the loop or, for Tick, by one
// that holds the LoopLock; never by two at a time.
type Handler interface {
	// Handle borrows a batch that the engine has processed and sets the Verdict of every packet:
	// Forward (with Port set to the index of the device to send on), Deliver (the handler takes the
	// frame), Handover (with Flow set to the loop that decides, see Mesh), or a reason to drop. It
	// may rewrite bytes and move Off and Len within the frame. Undecided counts as
	// DropUnsupported. The verdict of a packet of several descriptors (packet.FlagMore) is that of
	// its first.
	Handle(now clock.Time, b *packet.Batch)

	// Tick runs the timers that are due, produces output, and returns when it wants to be called
	// again. clock.Never means when something happens: the loop calls Tick again after the next
	// Handle or command, because either may have armed a timer.
	Tick(now clock.Time) clock.Time
}

// Bridge is the Handler of a bump in the wire: what arrives on one device of a pair (0 and 1, 2 and
// 3, ...) leaves by the other, unchanged.
//
// It reads no packet. A verdict that an earlier stage has set, such as a filter's, stands.
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
