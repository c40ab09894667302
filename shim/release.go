package shim

import (
	"syscall"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// release answers RELEASE: the program has closed a socket, and its port is free when the reply is sent. Otherwise the watcher and the loops
// see the close some time later, and a bind or a datagram of the program may come before. The socket stays if another descriptor of it is
// open, or if it has a connection, whose bytes may be on their way.
func (c *channel) release(q *request) error {
	if len(q.value) != 8 {
		return syscall.EINVAL
	}
	cookie := order.Uint64(q.value)
	s := c.s
	s.mu.Lock()
	k := s.sockets[cookie]
	if k == nil {
		k = s.leaving[cookie]
	}
	s.mu.Unlock()
	if k != nil {
		k.releaseClosed()
	}
	return nil
}

// releaseClosed releases a socket that its program has closed, and frees its port.
func (k *sock) releaseClosed() {
	if !k.isClosed() {
		return
	}
	switch u := k.packets(); {
	case u != nil:
		k.s.cfg.Stack.EnterLoop(u.home, u.hungUp)
	case k.stream && k.endable():
		k.release(0)
	}
	if k.current() == released {
		k.closeAll()
	}
}

// endable reports whether no bytes of the program are on their way.
func (k *sock) endable() bool {
	state := k.current()
	return state == idle || state == listening
}

// hungUp sends what the program has written before it closed the socket, and releases that. Where the device has no space the socket stays
// until it has.
func (u *packets) hungUp(in socket.LoopStack) {
	if u.watch != nil { // begin may have to come still
		u.file(in, stack.FileHangup)
	}
}
