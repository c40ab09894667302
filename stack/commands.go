package stack

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/ring"
	"golang.org/x/sys/unix"
)

// commandQueueLen bounds the commands that wait: a power of two, as the ring needs.
const commandQueueLen = 256

// CommandQueue brings functions from any goroutine to the one that polls a loop, which runs them
// between two iterations. Everything outside of a loop reaches the loop's own state by it
// without the LoopLock, and the only way into a loop with Run.
type CommandQueue struct {
	ring     *ring.MPSC[func()]
	notifier *notifier
}

// Do queues f and wakes the loop for it; false means that 256 commands wait already. Any goroutine
// may call it, f too: what f queues runs before a later iteration. Once the runner has returned
// no command runs any more.
func (q *CommandQueue) Do(f func()) bool {
	if !q.ring.Push(f) {
		return false
	}
	q.notifier.wake()
	return true
}

// RunWaiting runs the commands that wait now. The caller holds the loop (LoopLock.Enter): it is for a loop that does not run
// yet, whose commands would wait until then. It reports whether there was one.
func (q *CommandQueue) RunWaiting() bool { return q.run() }

// run runs the commands that wait, and no more than the queue holds: a command that queues itself
// again must not keep the loop from its packets. It reports whether there was one. Only the
// goroutine that polls the loop calls it.
func (q *CommandQueue) run() bool {
	for n := range commandQueueLen {
		f, ok := q.ring.Pop()
		if !ok {
			return n > 0
		}
		f()
	}
	return true
}

// runOne runs the command that has waited longest, and reports whether there was one.
func (q *CommandQueue) runOne() bool {
	f, ok := q.ring.Pop()
	if ok {
		f()
	}
	return ok
}

// notifier wakes the goroutine that polls a loop.
//
// The protocol between the sleeper and those that bring it work has two steps on each side, and
// sequentially consistent atomics order them:
//
//	sleeper:  arm;           then look for work (commands, other loops' packets); then sleep
//	bringer:  publish work;  then wake, which looks whether the notifier is armed
//
// Whatever the interleaving, the sleeper sees the work or the bringer sees the flag: no wakeup is
// lost. The compare-and-swap in wake makes one notification of many wakeups, so that a burst of
// work costs one system call.
type notifier struct {
	armed atomic.Bool

	// mu keeps close out of notify, which other goroutines call as late as they like: after close
	// the descriptor number may be another file's. The loop itself reads fd without it, since close
	// comes after.
	mu sync.Mutex
	fd int           // eventfd, part of the loop's poll set; -1 once closed
	ch chan struct{} // replaces fd while the loop is served without files; else nil
}

func newNotifier() (*notifier, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("loop: eventfd: %w", err)
	}
	return &notifier{fd: fd}, nil
}

// arm announces a sleep: from now on wake notifies. The caller looks for work once more before it
// sleeps.
func (n *notifier) arm() { n.armed.Store(true) }

// disarm ends what arm began.
func (n *notifier) disarm() { n.armed.Store(false) }

// wake notifies a sleeping loop, once for each sleep. Any goroutine may call it, after it has
// published the work.
func (n *notifier) wake() {
	if n.armed.Load() && n.armed.CompareAndSwap(true, false) {
		n.notify()
	}
}

// notify notifies the loop, asleep or not, if it is not closed.
func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return
	}
	if n.ch != nil {
		select {
		case n.ch <- struct{}{}:
		default: // a notification is pending already
		}
		return
	}
	one := [8]byte{1}
	_, _ = unix.Write(n.fd, one[:]) // EAGAIN: the counter is full, so the loop is about to wake
}

// useChannel replaces the eventfd by c, or restores it where c is nil.
func (n *notifier) useChannel(c chan struct{}) {
	n.mu.Lock()
	n.ch = c
	n.mu.Unlock()
}

// drain resets the eventfd. Only the goroutine that polls the loop calls it.
func (n *notifier) drain() {
	var count [8]byte
	_, _ = unix.Read(n.fd, count[:]) // EAGAIN: no notification
}

// closed reports whether close was called.
func (n *notifier) closed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fd < 0
}

// close may be called twice.
func (n *notifier) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return nil
	}
	fd := n.fd
	n.fd = -1
	return unix.Close(fd)
}
