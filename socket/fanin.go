package socket

import (
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// fanIn joins the shards that one socket has on several loops. It knows which shards may have something to
// read, and has the queue of the goroutines that wait for any of them.
//
// Locks are taken in the order loop, fanIn: a loop with new data holds its own lock and takes the fanIn's. A
// goroutine that looks for data takes the fanIn's lock, releases it, and enters a loop.
type fanIn struct {
	hosts []*host.Host

	mu    sync.Mutex
	ready uint64 // bit i: loop i may have data
	last  int    // loop that was served last
	q     deadlineQueue
	err   error // why it is closed
}

// each enters each loop in turn and calls call with its index, until that returns an error.
func (f *fanIn) each(call func(i int) error) error {
	for i, h := range f.hosts {
		h.Enter()
		err := call(i)
		h.Exit()
		if err != nil {
			return err
		}
	}
	return nil
}

// next returns a loop that may have data, round-robin, and clears its ready bit: a reader that leaves data
// there sets it again (serve). If there is none, it parks w and returns -1.
func (f *fanIn) next(w *waiter, owner expirer) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkErr(); err != nil {
		return -1, err
	}
	if f.ready == 0 {
		if w != nil {
			f.q.park(w, owner)
		}
		return -1, nil
	}
	// Rotate so that the bit of the loop behind the last one is bit 0.
	i := (f.last + 1) % len(f.hosts)
	i = (i + bits.TrailingZeros64(f.ready>>i|f.ready<<(64-i))) % 64
	f.last = i
	f.ready &^= 1 << i
	return i, nil
}

// checkErr returns the error of a closed socket or an expired deadline.
func (f *fanIn) checkErr() error {
	if f.err != nil {
		return f.err
	}
	if f.q.deadline != 0 && f.q.expired(stack.Now()) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// serve hands data of loop i to waiting goroutines. The holder of the loop calls it when data has arrived
// and when it has read a part of it. take fills one waiter and returns false if nothing is left. Data that
// no goroutine waits for stays, and sets the ready bit.
func (f *fanIn) serve(i int, take func(w *waiter) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Waiters are served under the mutex, in order. take reads from loop i, which the caller holds.
	for f.q.head != nil && f.err == nil {
		if !take(f.q.head) {
			return
		}
		f.q.wakeFirst(f.q.head.err)
	}
	f.ready |= 1 << i
}

// close wakes all waiting goroutines with err. It returns false if it was closed before.
func (f *fanIn) close(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	f.err = err
	f.q.wakeAll(err)
	return true
}

func (f *fanIn) setDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.q.setDeadline(t)
	return nil
}

// expire implements expirer.
func (f *fanIn) expire(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.q.expire(w)
}
