package socket

import (
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// fanIn joins what one socket has on several loops: which of them have something, and who waits for it.
//
// Locks are taken in the order loop, fan: a loop that has news holds its own and takes the fan's; a
// goroutine that looks for work takes the fan's, lets it go, and enters a loop.
type fanIn struct {
	hosts []*host.Host

	mu    sync.Mutex
	ready uint64 // bit i: loop i may have something
	last  int    // loop that was served last
	q     deadlineQueue
	err   error // closed: why nobody gets anything any more
}

// next returns a loop that may have something, each in turn, and takes its bit away: whoever finds
// more there says so again. Without one, w is parked, and -1 returned.
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
	i := (f.last + 1) % len(f.hosts)
	i = (i + bits.TrailingZeros64(f.ready>>i|f.ready<<(64-i))) % 64
	f.last = i
	f.ready &^= 1 << i
	return i, nil
}

// checkErr returns why nothing can be had: closed, or the deadline has passed.
func (f *fanIn) checkErr() error {
	if f.err != nil {
		return f.err
	}
	if f.q.deadline != 0 && f.q.expired(stack.Now()) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// serve is called by the holder of loop i when it has something, and when it has taken some of it: take
// does for each goroutine that waits what it came for, and returns false when there is nothing left. What
// remains is for those who come.
func (f *fanIn) serve(i int, take func(w *waiter) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.q.head != nil && f.err == nil {
		if !take(f.q.head) {
			return
		}
		f.q.wakeFirst(f.q.head.err)
	}
	f.ready |= 1 << i
}

// close has everybody fail; false says that it was closed already.
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
