package pool

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
)

// waits counts the requests of each loop that wait for a connection to a backend, so that loops serve them in fair order.
type waits struct {
	refused, expired atomic.Uint64

	loops atomic.Int32 // at which some wait
	mu    sync.Mutex
	since []clock.Time // by loop, of the one that has waited for the longest time
}

// SetWait notes since when the request that has waited for the longest time at a loop waits; clock.Never is that there is none.
// loop numbers the loops from 0.
func (b *Backend) SetWait(loop int, since clock.Time) {
	w := &b.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.since) <= loop {
		w.since = append(w.since, clock.Never)
	}
	was := w.since[loop]
	w.since[loop] = since
	switch {
	case was == clock.Never && since != clock.Never:
		w.loops.Add(1)
	case was != clock.Never && since == clock.Never:
		w.loops.Add(-1)
	}
}

// LongestWait returns since when a request waits at a loop other than the given one: of all of them the earliest time, or
// clock.Never.
func (b *Backend) LongestWait(except int) clock.Time {
	w := &b.waits
	if w.loops.Load() == 0 { // nearly always
		return clock.Never
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	earliest := clock.Never
	for loop, since := range w.since {
		if loop != except {
			earliest = min(earliest, since)
		}
	}
	return earliest
}
