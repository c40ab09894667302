package shim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/socket"
)

// The kernel wakes a program when bytes that it has written are consumed, whether it waits for space or not: out of a blocking read,
// and by an edge of EPOLLOUT. So a relay leaves small requests in the socket for some round trips, and consumes them behind what
// the loop sends, while the program waits for the peer anyway.
const (
	// deferBytes and deferReads bound what is left there. Each write of a program is a buffer of the kernel, which counts 768 bytes
	// or more against its send buffer.
	deferBytes = 4 << 10
	deferReads = 16

	// deferTime is the time that they stay at most: a program that writes very short pieces may find its socket full meanwhile.
	deferTime = time.Millisecond

	// consumesPerPoll bounds how many sockets are consumed from at once.
	consumesPerPoll = 64
)

// deferral counts what a relay has yet to consume.
type deferral struct {
	reads    int  // since it has consumed
	answered bool // the program has got bytes since the last read
	queued   bool // it is in deferred.relays
}

// deferred are the relays of a loop that have bytes to consume.
type deferred struct {
	relays []*relay
	since  clock.Time // of the first
	due    bool       // the rest of those that were too many
	sends  bool       // sent is called behind what the loop sends
	sent   func()
}

// newDeferred returns the deferred relays of a loop, which is that of the caller.
func newDeferred(in socket.LoopStack) *deferred {
	d := &deferred{}
	d.sent = func() {
		d.sends = false
		d.consume()
	}
	in.AddPoller(d)
	return d
}

// Poll implements stack.Poller.
func (d *deferred) Poll(now clock.Time) int {
	if len(d.relays) == 0 || !d.due && now.Sub(d.since) < deferTime {
		return 0
	}
	return d.consume()
}

// Arm implements stack.Poller: nothing is deferred while the loop sleeps.
func (d *deferred) Arm() clock.Time {
	if len(d.relays) > 0 {
		d.consume()
	}
	return clock.Never
}

// add defers what r has to consume.
func (d *deferred) add(r *relay, now clock.Time) {
	if r.deferral.queued {
		return
	}
	r.deferral.queued = true
	if len(d.relays) == 0 {
		d.since, d.due = now, false
	}
	d.relays = append(d.relays, r)
}

// consume takes relays from the list, and returns how many. The rest is due, too.
func (d *deferred) consume() int {
	n := min(len(d.relays), consumesPerPoll)
	for _, r := range d.relays[:n] {
		r.deferral.queued = false
		r.consumeDeferred()
	}
	d.relays = slices.Delete(d.relays, 0, n)
	d.due = len(d.relays) > 0
	return n
}

// consumeDeferred consumes what was deferred: nothing on a relay that is closed by now, or has rings.
func (r *relay) consumeDeferred() {
	if r.consume() != nil {
		r.afterSend((*relay).programFailed)
	}
}

// consumeLater is consume for a connection that goes on. A program that writes much, or goes on without an answer, gets the space
// as soon as the loop has sent what it wrote.
func (r *relay) consumeLater() {
	if r.unconsumed <= 1+maxUnconsumed {
		return
	}
	f := &r.deferral
	f.reads++
	soon := !f.answered || f.reads >= deferReads || r.unconsumed > deferBytes
	f.answered = false
	loop := r.k.s.cfg.Stack.LoopOf(r.in)
	d := r.k.s.queuesOf(loop).unread
	d.add(r, loop.Now())
	if soon && !d.sends {
		d.sends = true
		loop.After(d.sent)
	}
}
