package transport

import (
	"sync"
	"sync/atomic"
)

// commandList has the functions that other goroutines bring to a loop.
//
// The loop arms the list, looks for commands, and then sleeps. Who brings one appends it, and then looks whether the
// list is armed. So the loop sees the command, or it is notified: once for each sleep.
type commandList struct {
	notify func()
	armed  atomic.Bool
	mu     sync.Mutex
	fs     []func()
	ended  bool
	ran    []func() // the other buffer, of the loop
}

func (q *commandList) do(f func()) bool {
	q.mu.Lock()
	if q.ended {
		q.mu.Unlock()
		return false
	}
	q.fs = append(q.fs, f)
	q.wakeLocked()
	q.mu.Unlock()
	return true
}

// wake ends the sleep of the loop, if it sleeps.
func (q *commandList) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

// wakeLocked notifies under the lock, since the loop frees its eventfd once the list has ended.
func (q *commandList) wakeLocked() {
	if !q.ended && q.armed.CompareAndSwap(true, false) {
		q.notify()
	}
}

func (q *commandList) arm()    { q.armed.Store(true) }
func (q *commandList) disarm() { q.armed.Store(false) }

func (q *commandList) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.fs) > 0
}

// run runs the commands that wait. What they bring waits for the next iteration.
func (q *commandList) run() {
	q.mu.Lock()
	q.fs, q.ran = q.ran[:0], q.fs
	q.mu.Unlock()
	for i, f := range q.ran {
		q.ran[i] = nil
		f()
	}
}

// end runs the commands that wait and accepts no more.
func (q *commandList) end() {
	for q.run(); !q.finish(); q.run() {
	}
}

// finish accepts no more commands, unless some wait.
func (q *commandList) finish() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = len(q.fs) == 0
	return q.ended
}
