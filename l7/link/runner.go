package link

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/tls"
)

// Bounds of links.
const (
	ReadSize    = 48 << 10 // it stays in the first cache: docs/design/027 has figures
	sealSize    = 128 << 10
	bufferSize  = 4 << 10         // of a new buffer
	keepSize    = 256 << 10       // larger buffers are not kept
	keepCount   = 1024            // buffers that are kept for use again
	CompactTime = 2 * time.Second // idle, before buffers are given back
	closeTime   = 10 * time.Second
	BackWrite   = 30 * time.Second // without progress of what is sent to a backend
	Tick        = 10 * time.Millisecond
)

// Timed is the owner of a timer.
type Timed interface{ Fired() }

// Runner is shared by the connections of one loop: the time, timers, buffers, and what is put off until the end of a batch.
type Runner struct {
	Loop transport.Loop
	Now  clock.Time

	buf     []byte   // every connection is read into it
	sealed  []byte   // and encrypted into it
	buffers [][]byte // free ones
	Run     RunQueue

	// IdleGrace bounds the time for which a connection without a request is kept when it drains, where the protocol has no way to
	// announce its end. 0 is the time in which a request that is under way arrives.
	IdleGrace time.Duration

	// Signatures has those of handshakes that the batch has brought.
	Signatures tls.Signatures

	Wheel      *clock.Wheel
	Timers     []Timed
	FreeTimers []uint32
}

// NewRunner returns the runner of a loop.
func NewRunner(loop transport.Loop) Runner {
	now := loop.Now()
	return Runner{
		Loop: loop, Now: now, buf: make([]byte, ReadSize), sealed: make([]byte, 0, sealSize), Wheel: clock.NewWheel(64, Tick, now),
	}
}

// Enter notes the time of a batch of events. The last tick may be long ago: deadlines from its time would have passed.
func (r *Runner) Enter() { r.Now = r.Loop.Now() }

// Advance begins the end of a batch: it calls the timers that are due.
func (r *Runner) Advance(now clock.Time) {
	r.Now = now
	r.Wheel.Advance(now, func(id uint32) {
		if t := r.Timers[id]; t != nil {
			t.Fired()
		}
	})
	r.Run.begin()
}

// Finish runs what the batch has left, and returns when the next one is due without events.
func (r *Runner) Finish() clock.Time {
	later := r.Run.run()
	if r.Signatures.Waiting() > 0 { // after all that the batch had to read: the more handshakes wait, the less each costs
		r.Signatures.Run()
		later = r.Run.run()
	}
	if later || r.Signatures.Waiting() > 0 { // one more: crypto/tls signs again where the engine's own handshake could not go on
		return r.Now // at once
	}
	return r.Wheel.Next()
}

// MaxSteps bounds what a link does in one iteration of the loop: reads of ReadSize, or moves of BypassMost, each.
const MaxSteps = 8

// maxLast bounds how often a link advances once its connection has failed: by more than a receive buffer has.
const maxLast = 64

// NewTimer returns a timer that calls t.
func (r *Runner) NewTimer(t Timed) uint32 {
	if n := len(r.FreeTimers); n > 0 {
		id := r.FreeTimers[n-1]
		r.FreeTimers = r.FreeTimers[:n-1]
		r.Timers[id] = t
		return id
	}
	id := uint32(len(r.Timers))
	r.Timers = append(r.Timers, t)
	r.Wheel.Grow(max(64, 2*int(id)))
	return id
}

// once is a timer that frees itself.
type once struct {
	r  *Runner
	id uint32
	t  Timed
}

func (o *once) Fired() {
	o.r.FreeTimer(o.id)
	o.t.Fired()
}

// After calls t once, after a time.
func (r *Runner) After(d time.Duration, t Timed) {
	o := &once{r: r, t: t}
	o.id = r.NewTimer(o)
	r.Wheel.Arm(o.id, r.Now.Add(d))
}

// FreeTimer stops a timer and frees it.
func (r *Runner) FreeTimer(id uint32) {
	r.Wheel.Stop(id)
	r.Timers[id] = nil
	r.FreeTimers = append(r.FreeTimers, id)
}

// GetBuffer returns an empty buffer.
func (r *Runner) GetBuffer() []byte {
	if n := len(r.buffers); n > 0 {
		b := r.buffers[n-1]
		r.buffers = r.buffers[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

// PutBuffer takes a buffer back.
func (r *Runner) PutBuffer(b *[]byte) {
	if c := cap(*b); c >= bufferSize && c <= keepSize && len(r.buffers) < keepCount {
		r.buffers = append(r.buffers, (*b)[:0])
	}
	*b = nil
}
