package stack

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// A loop that forwards at a moderate rate sleeps after every burst, for a fraction of a millisecond. Where each
// processor of the runtime (P) belongs to a loop, such a sleep cost the process more than the sleep itself: the
// runtime's monitor thread took the P of the sleeping thread, found no other thread to run, went to sleep too, and
// was woken by the loop's return. At 150 000 packets a second that was a third of all CPU time.
//
// So a sleep that will be short keeps the P: it is a system call that the runtime does not know of. Other goroutines
// cannot run meanwhile, and the monitor would take the P from the loop after 10 ms only. So the loop yields it to
// them every yieldEvery.

const (
	// napLimit bounds a short sleep. A loop expects one where packets ended the last sleep that soon.
	napLimit = 300 * time.Microsecond

	// yieldEvery is the longest time that other goroutines wait for a processor beside a loop that takes short sleeps. A yield
	// costs two switches between threads, some 20 us.
	yieldEvery = time.Millisecond
)

// running counts the loops that Run runs in this process.
var running atomic.Int32

// allTaken reports whether there is no processor but those of loops.
func allTaken() bool { return runtime.GOMAXPROCS(0) <= int(running.Load()) }

// nap decides how a loop's thread sleeps.
type nap struct {
	soon    bool       // packets ended the last sleep within napLimit
	yielded clock.Time // when other goroutines could last run
}

// begin reports whether the sleep that begins keeps the processor (short), and whether other goroutines shall run before it.
func (n *nap) begin(now clock.Time, taken bool) (short, yield bool) {
	short = n.soon && taken
	yield = short && now.Sub(n.yielded) >= yieldEvery
	if yield || !short {
		n.yielded = now
	}
	return short, yield
}

// ended notes that a sleep is over: whether a file ended it, and how long it took.
func (n *nap) ended(woken bool, took time.Duration) { n.soon = woken && took < napLimit }

// ppoll is ppoll(2) on fds for at most limit, which the runtime learns of unless it is short. It reports whether a file
// is readable: not after EINTR or a timeout.
func ppoll(fds []unix.PollFd, limit time.Duration, short bool) bool {
	if !short {
		ts := unix.NsecToTimespec(int64(limit))
		n, _ := unix.Ppoll(fds, &ts, nil)
		return n > 0
	}
	ts := unix.NsecToTimespec(int64(min(limit, napLimit)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n > 0
}
