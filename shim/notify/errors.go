package notify

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// reception is a call that receives datagrams.
type reception struct{ *call }

// maxHeld bounds the notices that a call receives before a datagram. The node keeps fewer in a socket.
const maxHeld = 64

// receiveBehindNotices receives a datagram, or the error that a notice of the node stands for. While entries of the queue of errors stand
// there is a notice without an error of its own: the call goes on behind it, and makes it come again.
func (c reception) receiveBehindNotices(fd int, b []byte, flags int) (n, got int, err error) {
	held := false
	defer func() {
		if held {
			c.s.client.Settle(int(c.tid), fd)
		}
	}()
	for range maxHeld {
		if n, _, got, _, err = unix.Recvmsg(fd, b, nil, unix.MSG_DONTWAIT|flags); err != nil || n != 0 || got&unix.MSG_CTRUNC == 0 {
			return n, got, err
		}
		if flags&unix.MSG_PEEK != 0 {
			_, _, _ = unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT) // it would be seen again
		}
		if err := c.s.client.TakeError(int(c.tid), fd); err != nil {
			return 0, 0, err
		}
		held = true
	}
	return 0, 0, syscall.EAGAIN
}

// receiveError is recvmsg(2) with MSG_ERRQUEUE.
func (c reception) receiveError(fd int, of shim.Mark, m *message) outcome {
	e, err := c.s.client.NextError(int(c.tid), fd)
	if err != nil {
		return c.refused(err)
	}
	control, whole := e.Control(m.controlMax, of.V6, encodeAddress)
	flags, n := unix.MSG_ERRQUEUE, min(len(e.Data), m.size())
	if !whole {
		flags |= unix.MSG_CTRUNC
	}
	if n < len(e.Data) {
		flags |= unix.MSG_TRUNC
	}
	if err = c.scatter(m, e.Data[:n]); err == nil {
		name := []byte(nil)
		if e.To.IsValid() {
			name = encodeAddress(e.To, of.V6)
		}
		err = c.finish(m, name, control, flags)
	}
	if err != nil {
		return failed(err)
	}
	return outcome{val: int64(n)}
}
