package stack

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/ring"
)

// mailbox brings functions from other goroutines to the loop's thread, and wakes it for them.
type mailbox struct {
	box    *ring.MPSC[func()]
	asleep atomic.Bool

	// mu keeps close out of ring, which comes from other goroutines as late as it likes: the number
	// may be another file's by then. The loop itself reads fd without it, since close comes after.
	mu   sync.Mutex
	fd   int           // eventfd, part of the loop's poll set; -1 once closed
	bell chan struct{} // what wakes the loop instead of fd, while it is served without files; else nil
}

// letters is how many functions the mailbox holds.
const letters = 256

func newMailbox() (*mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("loop: eventfd: %w", err)
	}
	return &mailbox{box: ring.NewMPSC[func()](letters), fd: fd}, nil
}

// Do has f run on the loop's thread, between two turns; false says that 256 functions wait already.
// It is how everything outside of the loop reaches the loop's own state. Any goroutine may call it,
// f too: what f asks for runs before a later turn. Once Run has returned nothing is run any more.
func (l *Loop) Do(f func()) bool {
	if !l.mail.box.Push(f) {
		return false
	}
	l.mail.wake()
	return true
}

// wake rings once for each sleep. Any goroutine may call it, after what it tells of.
func (m *mailbox) wake() {
	if m.asleep.Load() && m.asleep.CompareAndSwap(true, false) {
		m.ring()
	}
}

// ring wakes the loop, if there still is one.
func (m *mailbox) ring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd < 0 {
		return
	}
	if m.bell != nil {
		select {
		case m.bell <- struct{}{}:
		default: // it rings already
		}
		return
	}
	one := [8]byte{1}
	_, _ = unix.Write(m.fd, one[:]) // full means that the loop is about to wake
}

// close may be called twice.
func (m *mailbox) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd < 0 {
		return nil
	}
	fd := m.fd
	m.fd = -1
	return unix.Close(fd)
}

// run runs what has arrived, and no more than the box holds: a function that sends itself again
// must not keep the loop from its packets. It reports whether there was anything. Loop only.
func (m *mailbox) run() bool {
	for n := range letters {
		f, ok := m.box.Pop()
		if !ok {
			return n > 0
		}
		f()
	}
	return true
}

// sleep calls wait with the flag up that tells Do to ring. A message pushed before the flag was up
// is run instead of sleeping, which sleep reports.
func (m *mailbox) sleep(wait func()) bool {
	m.asleep.Store(true)
	if f, ok := m.box.Pop(); ok {
		m.asleep.Store(false)
		f()
		return true
	}
	wait()
	m.asleep.Store(false)
	m.hush()
	return false
}

// toll has c ring instead of the eventfd, or with nil the eventfd again.
func (m *mailbox) toll(c chan struct{}) {
	m.mu.Lock()
	m.bell = c
	m.mu.Unlock()
}

// hush resets the eventfd. Loop only.
func (m *mailbox) hush() {
	var count [8]byte
	_, _ = unix.Read(m.fd, count[:]) // EAGAIN when nobody rang
}
