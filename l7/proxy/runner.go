package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// Bounds of links.
const (
	readSize    = 48 << 10 // it stays in the first cache: docs/design/027 has figures
	sealSize    = 128 << 10
	bufferSize  = 4 << 10         // of a new buffer
	keepSize    = 256 << 10       // larger buffers are not kept
	keepCount   = 1024            // buffers that are kept for use again
	compactTime = 2 * time.Second // idle, before buffers are given back
	closeTime   = 10 * time.Second
	backWrite   = 30 * time.Second // without progress of what is sent to a backend
	tick        = 10 * time.Millisecond
)

// timed is what a timer belongs to.
type timed interface{ fired() }

// runner is what the connections of one loop share: the time, timers, buffers, and what is put off until the end of a batch.
type runner struct {
	loop transport.Loop
	now  clock.Time

	buf     []byte   // every connection is read into it
	sealed  []byte   // and encrypted into it
	buffers [][]byte // free ones
	run     runQueue

	wheel      *clock.Wheel
	timers     []timed
	freeTimers []uint32
}

// newRunner returns the runner of a loop.
func newRunner(loop transport.Loop) runner {
	now := loop.Now()
	return runner{
		loop: loop, now: now, buf: make([]byte, readSize), sealed: make([]byte, 0, sealSize), wheel: clock.NewWheel(64, tick, now),
	}
}

// enter notes the time of a batch of events. The last tick may be long ago: deadlines from its time would have passed.
func (r *runner) enter() { r.now = r.loop.Now() }

// advance begins the end of a batch: it calls the timers that are due.
func (r *runner) advance(now clock.Time) {
	r.now = now
	r.wheel.Advance(now, func(id uint32) {
		if t := r.timers[id]; t != nil {
			t.fired()
		}
	})
	r.run.begin()
}

// finish runs what the batch has left, and returns when the next one is due without events.
func (r *runner) finish() clock.Time {
	if r.run.run() {
		return r.now // at once
	}
	return r.wheel.Next()
}

// maxSteps bounds what a link does in one iteration of the loop: reads of readSize, or moves of bypassMost, each.
const maxSteps = 8

// maxLast bounds how often a link advances once its connection has failed: by more than a receive buffer has.
const maxLast = 64

// newTimer returns a timer that calls t.
func (r *runner) newTimer(t timed) uint32 {
	if n := len(r.freeTimers); n > 0 {
		id := r.freeTimers[n-1]
		r.freeTimers = r.freeTimers[:n-1]
		r.timers[id] = t
		return id
	}
	id := uint32(len(r.timers))
	r.timers = append(r.timers, t)
	r.wheel.Grow(max(64, 2*int(id)))
	return id
}

// once is a timer that frees itself.
type once struct {
	r  *runner
	id uint32
	t  timed
}

func (o *once) fired() {
	o.r.freeTimer(o.id)
	o.t.fired()
}

// after calls t once, after a time.
func (r *runner) after(d time.Duration, t timed) {
	o := &once{r: r, t: t}
	o.id = r.newTimer(o)
	r.wheel.Arm(o.id, r.now.Add(d))
}

func (r *runner) freeTimer(id uint32) {
	r.wheel.Stop(id)
	r.timers[id] = nil
	r.freeTimers = append(r.freeTimers, id)
}

// getBuffer returns an empty buffer.
func (r *runner) getBuffer() []byte {
	if n := len(r.buffers); n > 0 {
		b := r.buffers[n-1]
		r.buffers = r.buffers[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

// putBuffer takes a buffer back.
func (r *runner) putBuffer(b *[]byte) {
	if c := cap(*b); c >= bufferSize && c <= keepSize && len(r.buffers) < keepCount {
		r.buffers = append(r.buffers, (*b)[:0])
	}
	*b = nil
}
