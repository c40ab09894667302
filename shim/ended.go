package shim

import (
	"errors"
	"net"
	"syscall"
)

// maxEnded is how many errors of ended connections are kept for SO_ERROR. The oldest go first.
const maxEnded = 8192

// errorTable has the errors of connections whose node's end is closed, by cookie, until the program reads them.
type errorTable struct {
	byCookie map[uint64]syscall.Errno
	order    [maxEnded]uint64
	next     int
}

// put keeps an error. Server.mu is held.
func (t *errorTable) put(cookie uint64, n syscall.Errno) {
	if t.byCookie == nil {
		t.byCookie = map[uint64]syscall.Errno{}
	}
	delete(t.byCookie, t.order[t.next])
	t.order[t.next] = cookie
	t.next = (t.next + 1) % maxEnded
	t.byCookie[cookie] = n
}

// take returns an error and forgets it; 0 is none. The cookie itself stays known while the table has it.
func (t *errorTable) take(cookie uint64) (n syscall.Errno, known bool) {
	n, known = t.byCookie[cookie]
	if known {
		t.byCookie[cookie] = 0
	}
	return n, known
}

// errnoOf returns the number of an error. What has none is the node's own trouble.
func errnoOf(err error) syscall.Errno {
	var n syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &n):
		return n
	case errors.Is(err, net.ErrClosed):
		return syscall.ENETDOWN
	case errors.As(err, new(*net.AddrError)):
		return syscall.EINVAL
	}
	return syscall.EIO
}
