// Package stack runs the house: one Loop per queue takes batches from drivers, through the engine,
// to a handler, and sends what the handler forwards.
package stack

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// Handler decides what becomes of packets: a gateway, a forwarder, a transport.
type Handler interface {
	// Handle borrows a batch that the engine has been through and sets the Verdict of every
	// packet: Forward (with Port set to the port of the loop to send on), Deliver (the handler has
	// taken the frame), or a reason to drop. It may rewrite bytes and move Off and Len inside of
	// the frame. Undecided counts as DropUnsupported.
	Handle(now clock.Time, b *packet.Batch)

	// Tick runs the timers that are due and returns when it wants to run again, clock.Never for
	// not at all.
	Tick(now clock.Time) clock.Time
}
