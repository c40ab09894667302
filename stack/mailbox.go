package stack

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/ring"
)

// mailbox brings functions from other goroutines to the loop's thread, and wakes it for them.
type mailbox struct {
	box    *ring.MPSC[func()]
	fd     int // eventfd, part of the loop's poll set
	asleep atomic.Bool
}

func newMailbox() (*mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("loop: eventfd: %w", err)
	}
	return &mailbox{box: ring.NewMPSC[func()](256), fd: fd}, nil
}

// Do has f run on the loop's thread, between two turns; false says that 256 functions wait already.
// It is how everything outside of the loop reaches the loop's own state. Any goroutine may call it.
func (l *Loop) Do(f func()) bool {
	if !l.mail.box.Push(f) {
		return false
	}
	if l.mail.asleep.Load() {
		l.mail.ring()
	}
	return true
}

// ring wakes the loop.
func (m *mailbox) ring() {
	one := [8]byte{1}
	_, _ = unix.Write(m.fd, one[:]) // full means that the loop is about to wake
}

// run runs what has arrived. Loop only.
func (m *mailbox) run() {
	for {
		f, ok := m.box.Pop()
		if !ok {
			return
		}
		f()
	}
}

// sleep calls wait with the flag up that tells Do to ring. A message pushed before the flag was up
// is run instead of sleeping.
func (m *mailbox) sleep(wait func()) {
	m.asleep.Store(true)
	if f, ok := m.box.Pop(); ok {
		m.asleep.Store(false)
		f()
		return
	}
	wait()
	m.asleep.Store(false)
	var count [8]byte
	_, _ = unix.Read(m.fd, count[:]) // reset; EAGAIN when nobody rang
}
