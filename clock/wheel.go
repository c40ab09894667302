package clock

import (
	"math/bits"
	"time"
)

// The wheel has levels of 64 slots; a slot of level l spans 64^l ticks. Five levels of 1 ms ticks
// reach 12 days ahead. Timers beyond wait in the last slot and are inserted again when the wheel gets there.
//
//	level 0   64 slots of 1 tick      fires
//	level 1   64 slots of 64 ticks    cascades into level 0 when the wheel enters a slot
//	level 2   64 slots of 4096 ticks  cascades into levels 0 and 1, and so on
const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = 5
	horizon  = 1<<(slotBits*levels) - 1
	heads    = levels * slots
	none     = ^uint32(0)
)

// Wheel is a hierarchical timer wheel (Varghese and Lauck, 1987) over timers named 0 to n-1, such
// as the slots of a flow table. Arming, stopping and firing cost a few nanoseconds each whatever
// n is; a timer takes 16 bytes, all of them allocated by NewWheel and Grow, and none is a pointer.
//
// A timer fires at most once and never early; it is late by up to one tick and by however late
// Advance is called.
type Wheel struct {
	tick  Time     // length of a tick, ns
	zero  Time     // start of tick 0: the tick that the wheel was made in
	now   uint64   // the last tick that was run
	armed int      // number of timers that will fire
	due   []uint64 // tick at which a timer fires, by timer
	// Doubly linked lists, one for each slot. Slot s of level l has its head at l*64 + s, and timer id
	// lies at heads + id behind them; a timer that is not armed has next = none.
	next, prev []uint32
	used       [levels]uint64 // bit s: slot s of the level is not empty
}

// NewWheel returns a wheel for n timers with ticks of the given length, at time now.
func NewWheel(n int, tick time.Duration, now Time) *Wheel {
	w := &Wheel{
		tick: Time(tick),
		zero: now - ((now%Time(tick))+Time(tick))%Time(tick), // rounded down, also below 0: Time has no origin
		next: make([]uint32, heads, heads+n),
		prev: make([]uint32, heads, heads+n),
		due:  make([]uint64, 0, n),
	}
	for i := range w.next {
		w.next[i], w.prev[i] = uint32(i), uint32(i)
	}
	w.Grow(n)
	return w
}

// Grow extends the wheel to n timers and keeps the state of those that it has; it never shrinks.
func (w *Wheel) Grow(n int) {
	more := n - len(w.due)
	if more <= 0 {
		return
	}
	w.due = append(w.due, make([]uint64, more)...)
	w.prev = append(w.prev, make([]uint32, more)...)
	w.next = append(w.next, make([]uint32, more)...)
	for i := len(w.next) - more; i < len(w.next); i++ {
		w.next[i] = none
	}
}

// Armed returns the number of timers that will fire.
func (w *Wheel) Armed() int { return w.armed }

// Arm makes timer id fire at t, or at the next tick if t has passed. A timer that was armed is moved.
func (w *Wheel) Arm(id uint32, t Time) {
	w.Stop(id)
	w.armed++
	due := w.ticks(t)
	if w.at(due) < t { // never early: the tick that begins at or after t
		due++
	}
	w.due[id] = max(due, w.now+1)
	w.insert(heads + id)
}

// ticks returns the tick that t lies in, 0 for all times before.
func (w *Wheel) ticks(t Time) uint64 {
	if t < w.zero {
		return 0
	}
	return (uint64(t) - uint64(w.zero)) / uint64(w.tick) // a difference of any two times fits
}

// at returns the start of a tick.
func (w *Wheel) at(tick uint64) Time { return w.zero + Time(tick)*w.tick }

// Stop disarms timer id, if it is armed.
func (w *Wheel) Stop(id uint32) {
	if w.next[heads+id] == none {
		return
	}
	w.armed--
	w.unlink(heads + id)
}

// insert links the node of an armed timer into the slot of the lowest level that reaches its tick.
func (w *Wheel) insert(node uint32) {
	at := min(w.due[node-heads], w.now+horizon)
	level := max(0, bits.Len64(at^w.now)-1) / slotBits
	level = min(level, levels-1)
	s := uint32(at>>(slotBits*level)) % slots
	head := w.head(level, s)
	last := w.prev[head]
	w.next[last], w.prev[node] = node, last
	w.next[node], w.prev[head] = head, node
	w.used[level] |= 1 << s
}

// head returns the node of a slot, which links the first and the last of its timers: with a node that is never
// removed, neither end of a list is a special case.
func (w *Wheel) head(level int, s uint32) uint32 {
	return uint32(level)*slots + s
}

// unlink removes a timer's node from its list and marks the slot empty if it was the last.
func (w *Wheel) unlink(node uint32) {
	p, n := w.prev[node], w.next[node]
	w.next[p], w.prev[n] = n, p
	w.next[node] = none
	if p == n { // the head alone
		w.used[p/slots] &^= 1 << (p % slots)
	}
}

// Advance runs the wheel up to now and calls fire for each timer that is due, earliest tick first.
// fire may arm and stop any timer.
func (w *Wheel) Advance(now Time, fire func(id uint32)) {
	if now >= w.at(w.now+1) { // a loop polls far more often than once a tick
		w.advance(now, fire)
	}
}

func (w *Wheel) advance(now Time, fire func(id uint32)) {
	for target := w.ticks(now); w.now < target; {
		if w.armed == 0 {
			w.now = target
			return
		}
		last := w.now | (slots - 1) // the last tick before level 1 moves
		at := last + 1
		if m := w.used[0] >> (w.now % slots) >> 1; m != 0 {
			at = w.now + 1 + uint64(bits.TrailingZeros64(m))
		}
		if at > target {
			w.now = target
			return
		}
		w.now = at
		if at > last {
			w.cascade(1)
		}
		for head := w.head(0, uint32(at)%slots); w.next[head] != head; {
			node := w.next[head]
			w.unlink(node)
			w.armed--
			fire(node - heads)
		}
	}
}

// cascade inserts the timers of a level's current slot into the levels below, from the highest level that
// moves: its timers may belong into the slot that the level below is about to empty.
func (w *Wheel) cascade(level int) {
	if level == levels {
		return
	}
	s := uint32(w.now>>(slotBits*level)) % slots
	if s == 0 {
		w.cascade(level + 1)
	}
	head := w.head(level, s)
	for node := w.next[head]; node != head; {
		after := w.next[node]
		w.unlink(node)
		w.insert(node)
		node = after
	}
}

// Next returns the time at which Advance has something to do: never later than the first timer,
// and Never when none is armed.
func (w *Wheel) Next() Time {
	if w.armed == 0 {
		return Never
	}
	// The timers of a level are within the present slot of the level above, and so before all
	// of that level and higher ones.
	l := 0
	for w.used[l] == 0 {
		l++
	}
	at := w.now >> (slotBits * l) // the level's position
	ahead := bits.RotateLeft64(w.used[l], -int((at+1)%slots))
	return w.at((at + 1 + uint64(bits.TrailingZeros64(ahead))) << (slotBits * l))
}
