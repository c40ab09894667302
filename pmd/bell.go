package pmd

import "sync/atomic"

// Bell wakes the loop that receives from a driver which has no file to sleep on, because the sender
// is of the same process: the sender rings after each Tx. A driver that has one tells it in Info.Bell;
// a wrapper passes it on.
type Bell struct{ ring atomic.Pointer[func()] }

// Attach has ring called after each arrival from now on, from the goroutine of the sender. It must not
// block, and is cheap while nobody sleeps. nil detaches.
func (b *Bell) Attach(ring func()) {
	if ring == nil {
		b.ring.Store(nil)
		return
	}
	b.ring.Store(&ring)
}

// Ring tells of an arrival. It is for drivers, after the packet can be received.
func (b *Bell) Ring() {
	if f := b.ring.Load(); f != nil {
		(*f)()
	}
}
