package websocket

import (
	"net"
	"sync/atomic"
)

// messageLock is held by the goroutine that writes a message. Others get it in the order in which they came, and stop waiting
// when the connection is closed.
type messageLock struct {
	wants atomic.Int32  // the holder and those that wait
	next  chan struct{} // takes the lock to one of these
}

func newMessageLock() messageLock { return messageLock{next: make(chan struct{}, 1)} }

// lock waits for the lock, or returns net.ErrClosed when done is closed first. Then the lock is not needed any more, and
// those that gave up stay counted.
func (l *messageLock) lock(done <-chan struct{}) error {
	if l.wants.Add(1) == 1 {
		return nil
	}
	select {
	case <-l.next:
		return nil
	case <-done:
		return net.ErrClosed
	}
}

func (l *messageLock) unlock() {
	if l.wants.Add(-1) > 0 {
		select {
		case l.next <- struct{}{}:
		default: // done is closed: one that was handed the lock had given up
		}
	}
}
