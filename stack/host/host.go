package host

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Host is the part of a host that one loop has: all of it where there is one loop. Its parts belong to
// the owner of the loop: another goroutine calls Enter before and Exit after.
//
//	now := h.Enter()
//	n := conn.Write(now, b)
//	h.Exit()
type Host struct {
	Loop *stack.Loop
	IP   *ip.Node
	TCP  *tcp.Mux
	UDP  *udp.Mux

	group *Group
	self  int
}

// Enter makes the calling goroutine the owner of the loop until Exit, and returns the time. It must not
// be called by the owner, which those are already who are called by the loop: tcp.Owner.Ready and the
// like.
func (h *Host) Enter() clock.Time { return h.Loop.Enter() }

// Exit gives the loop back. What is to be sent leaves now where the loop sleeps, else with its turn.
func (h *Host) Exit() { h.Loop.Exit() }

// Group returns the group that h is of.
func (h *Host) Group() *Group { return h.group }

// Index returns the place of h in its group.
func (h *Host) Index() int { return h.self }

// Handle implements stack.Handler.
func (h *Host) Handle(now clock.Time, b *packet.Batch) {}

// Tick implements stack.Handler: timers, output, and then events.
func (h *Host) Tick(now clock.Time) clock.Time {
	next := h.IP.Poll(now)
	next = min(next, h.TCP.Poll(now))
	return min(next, h.UDP.Poll(now))
}
