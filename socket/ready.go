package socket

import (
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// fan joins what one socket has on several loops: which of them have something, and who waits for it.
//
// Locks are taken in the order loop, fan: a loop that has news holds its own and takes the fan's; a
// goroutine that looks for work takes the fan's, lets it go, and enters a loop.
type fan struct {
	hosts []*host.Host

	mu    sync.Mutex
	ready uint64 // bit i: loop i may have something
	turn  int    // loop that was served last
	q     queue
	err   error // closed: why nobody gets anything any more
}

// next returns a loop that may have something, each in turn, and takes its bit away: whoever finds
// more there says so again. Without one, w is parked, and -1 returned.
func (f *fan) next(w *waiter, owner expirer) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fault(); err != nil {
		return -1, err
	}
	if f.ready == 0 {
		if w != nil {
			f.q.park(w, owner)
		}
		return -1, nil
	}
	i := (f.turn + 1) % len(f.hosts)
	i = (i + bits.TrailingZeros64(f.ready>>i|f.ready<<(64-i))) % 64
	f.turn = i
	f.ready &^= 1 << i
	return i, nil
}

// fault returns why nothing can be had: closed, or the deadline has passed.
func (f *fan) fault() error {
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
func (f *fan) serve(i int, take func(w *waiter) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.q.head != nil && f.err == nil {
		if !take(f.q.head) {
			return
		}
		f.q.finish(f.q.head.err)
	}
	f.ready |= 1 << i
}

// close has everybody fail; false says that it was closed already.
func (f *fan) close(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	f.err = err
	f.q.fail(err)
	return true
}

func (f *fan) setDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.q.setDeadline(t)
	return nil
}

// expire implements expirer.
func (f *fan) expire(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.q.expire(w)
}
