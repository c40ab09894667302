package shim

import (
	"syscall"

	"github.com/millrace/millrace/socket"
)

// An AF_UNIX socket connects once. A TCP socket whose connection has failed, or was ended by connect(2) to AF_UNSPEC, may be used again
// (tcp_disconnect of Linux): the library puts a new socket in its place, which gets the options and the port of the old one.

// renewable is the value of a reply that says that another socket may take the place of this one.
var renewable = []byte{1}

// connectError is what connect(2) says of a connection that has failed, once.
func (e ended) connectError() error {
	if e.errno != 0 {
		return e.errno
	}
	return syscall.ECONNABORTED
}

// Bits of RENEW's arg: SO_ERROR or connect(2) has reported the errno, and connect(2) has reported the end.
const (
	errorReported = 1 << iota
	endReported
)

// onFailed does a request for a socket whose connection has failed or was ended. Server.reopened is held.
func (c *channel) onFailed(q *request, r *reply, p int, e *ended) (err error) {
	bound := e.chosen.Port() != 0
	switch {
	case q.op == opConnect || q.op == opBind && !bound && !c.supervisor: // a supervisor cannot replace a socket
		r.value = renewable
		if q.op == opConnect && !q.addr.IsValid() {
			return nil
		}
		return e.connectError()
	case q.op == opBind, q.op == opListen:
		return syscall.EINVAL
	case q.op == opNames:
		if bound {
			r.local = e.chosen
		}
		r.value = c.s.instanceOf()
		return nil
	case q.op != opGetOption && q.op != opSetOption:
		return syscall.EISCONN
	}
	was := &sock{s: c.s, user: e.user, stream: true, v6: ReadMark(p).V6, state: idle, fd: -1, options: e.options}
	if q.op == opSetOption {
		return was.setOption(int(q.level), int(q.name), q.value)
	}
	r.value, err = was.option(int(q.level), int(q.name), q.value[:0], int(q.arg))
	return err
}

// renew makes k what a socket was whose connection has ended. A port that the program has chosen is reserved anew: another program that has
// got it meanwhile makes the next connect(2) fail.
func (k *sock) renew(q *request) error {
	if len(q.value) != 8 || !k.stream || k.bound != nil || k.current() != idle {
		return syscall.EINVAL
	}
	cookie := order.Uint64(q.value)
	s := k.s
	s.reopened.Lock()
	s.mu.Lock()
	e := s.ended.byCookie[cookie]
	known := e.attempt && e.user == k.user
	if known {
		delete(s.ended.byCookie, cookie)
		k.options = e.options
	}
	s.mu.Unlock()
	s.reopened.Unlock()
	if !known { // its place was needed for newer errors: the socket has the defaults
		return nil
	}
	if q.arg&errorReported == 0 {
		k.before.errno = e.errno
	}
	k.before.attempt = q.arg&endReported == 0
	if e.chosen.Port() == 0 {
		return nil
	}
	if err := s.afterCloses(e.chosen.Port(), func() error { return k.bindStream(e.chosen) }); err != nil {
		k.before = ended{errno: errnoOf(err), attempt: true}
		return nil
	}
	k.chosen = e.chosen
	return nil
}

// takeBefore returns what connect(2) says of the socket that was in the place of this one, or nil.
func (k *sock) takeBefore() error {
	e := k.before
	k.before = ended{}
	if !e.attempt {
		return nil
	}
	return e.connectError()
}

// takeBeforeError is SO_ERROR of it.
func (k *sock) takeBeforeError() syscall.Errno {
	errno := k.before.errno
	k.before.errno = 0
	return errno
}

// endStream is connect(2) to AF_UNSPEC: it resets a connection, or ends the attempt of one. The library renews the socket then.
func (k *sock) endStream(r *reply) error {
	k.mu.Lock()
	state, conn, relayed := k.state, k.conn, k.relayed
	k.attempted = state == connected || state == connecting
	k.mu.Unlock()
	switch state {
	case idle:
		k.before.attempt = false
		return nil
	case listening, released:
		return syscall.EOPNOTSUPP
	case paired: // the node has no end of it
		k.s.mu.Lock()
		k.s.ended.put(&k.user.ended, k.cookie, ended{0, true, k.user, k.options, k.chosen})
		k.s.mu.Unlock()
	case connecting, connected:
		if conn != nil {
			conn.Do(func(in socket.LoopConn) {
				_ = in.Abort() // it may have ended
				if relayed != nil {
					relayed.in = in
					relayed.close(0)
				}
			})
		}
		k.release(0)
	}
	r.value = renewable
	return nil
}
