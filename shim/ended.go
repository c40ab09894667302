package shim

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// maxEnded is the number of errors of one user's ended connections that are kept for SO_ERROR: twice as many as a user may have
// sockets by default. The oldest go first.
const maxEnded = 1 << 15

// errorTable has the errors of connections whose node's end is closed, by cookie, until the program reads them. The node
// does not see when a program closes such a socket, so that errors which no program reads stay until newer ones of the
// same user need their place.
type errorTable struct {
	byCookie map[uint64]ended
}

// ended is the reason why a connection has ended.
type ended struct {
	errno   syscall.Errno // 0 once the program has read it
	attempt bool          // no connection came about, or the program has ended it: another socket may take its place
	user    *user
	options *options
	chosen  netip.AddrPort // see sock
}

// reported returns e without its error.
func (e ended) reported() ended {
	e.errno = 0
	return e
}

// errorOrder has the cookies of a user's errors, the oldest first. Some may have been read since.
type errorOrder struct {
	cookies []uint64
}

// put keeps an error of a user's socket. Server.mu is held.
func (t *errorTable) put(o *errorOrder, cookie uint64, e ended) {
	if t.byCookie == nil {
		t.byCookie = map[uint64]ended{}
	}
	if len(o.cookies) >= maxEnded {
		o.cookies = slices.DeleteFunc(o.cookies, func(c uint64) bool { return t.byCookie[c] == ended{} })
		drop := max(len(o.cookies)-maxEnded/2, 0) // half at a time: the next compaction is far
		for _, c := range o.cookies[:drop] {
			delete(t.byCookie, c)
		}
		o.cookies = append([]uint64(nil), o.cookies[drop:]...)
	}
	o.cookies = append(o.cookies, cookie)
	t.byCookie[cookie] = e
}

// take returns why a connection has ended, and forgets the error; 0 is none.
func (t *errorTable) take(cookie uint64) ended {
	e := t.byCookie[cookie]
	if e.attempt {
		t.byCookie[cookie] = e.reported()
	} else {
		delete(t.byCookie, cookie)
	}
	return e
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
