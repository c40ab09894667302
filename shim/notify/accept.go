package notify

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// accept is accept(2) and accept4(2).
func (c *call) accept() outcome {
	var flags int
	if c.notification.call == unix.SYS_ACCEPT4 {
		flags = int(int32(c.args[3]))
	}
	fd, m, o := c.served()
	if o != nil {
		return *o
	}
	space, err := c.acceptable(fd, m, flags)
	if err != nil {
		unix.Close(fd)
		return failed(err)
	}
	a := acceptance{v6: m.V6, flags: flags, space: space}
	o = a.take(c, fd)
	if o != nil && o.err == syscall.ENETDOWN {
		c.lost()
	}
	if ended(o) && c.s.Rebinds {
		return c.later(func(c *call) outcome { return a.again(c, fd, *o) })
	}
	if o != nil && (o.err == syscall.ENETDOWN || o.err == syscall.EINVAL) && c.s.ends.Add(1) > freeEnds {
		unix.Close(fd)
		return c.later(func(*call) outcome {
			pauseAtEnd()
			return *o
		})
	}
	if o != nil || !blocking(fd) {
		unix.Close(fd)
		if o == nil {
			return failed(syscall.EAGAIN)
		}
		return *o
	}
	return c.later(func(c *call) outcome { return a.await(c, fd) })
}

// ended reports whether an accept has found the end of its listener.
func ended(o *outcome) bool {
	return o != nil && (o.err == syscall.ENETDOWN || o.err == syscall.EINVAL)
}

// again makes the listener again, and accepts from it. It closes fd. A call that does not block waits for the node, too: an epoll
// instance that reports edges would not report the listener a second time.
func (a *acceptance) again(c *call, fd int, was outcome) outcome {
	waits := blocking(fd)
	switch err := (renewal{c}).again(fd); err {
	case nil:
	case syscall.ENETDOWN:
		return was
	default:
		return failed(err)
	}
	if !waits {
		return failed(syscall.EAGAIN)
	}
	fd, err := c.file(int32(c.args[0]))
	if err != nil {
		return failed(err)
	}
	return a.await(c, fd)
}

// freeEnds is the number of accepts of listeners without a node that fail at once. Programs try again after ENETDOWN, as accept(2) asks them
// to, and would take a processor and fill their logs: each further one waits.
const freeEnds = 16

// lost reports the end of the node to NodeGone.
func (c *call) lost() {
	if c.s.NodeGone == nil {
		return
	}
	st, err := readStatus(c.tid)
	if _, again := c.s.notified.LoadOrStore(st.process, true); err != nil || again {
		return
	}
	// One process reports it, and NodeGone for another one may end this process: its stderr is taken before.
	c.s.losing.Lock()
	defer c.s.losing.Unlock()
	c.report("the node has ended: the program gets SIGTERM (--on-node-loss=end)")
	c.s.NodeGone(int(st.process))
}

// pauseAtEnd is a variable so that a test can count the waits.
var pauseAtEnd = func() { time.Sleep(100 * time.Millisecond) }

// acceptable checks the arguments, and returns the space for the address of the peer; negative is that it is not asked for.
func (c *call) acceptable(fd int, m shim.Mark, flags int) (space int, err error) {
	switch _, remote, listens := shim.OwnName(fd); {
	case m.Kind != shim.Stream:
		return 0, syscall.EOPNOTSUPP
	case flags&^(unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK) != 0, !listens, remote.IsValid(): // no listener: its bytes are data
		return 0, syscall.EINVAL
	case c.args[1] == 0:
		return -1, nil
	}
	return c.readLength(c.args[2])
}

// acceptance holds the arguments of an accept.
type acceptance struct {
	v6    bool
	flags int
	space int
}

// take gives the program the next connection of a listener, if there is one. fd stays open.
func (a *acceptance) take(c *call, fd int) *outcome {
	var record [shim.AcceptedSize]byte
	got, err := receiveConnection(fd, record[:])
	switch err {
	case nil:
	case syscall.EAGAIN:
		return nil
	case syscall.EINVAL: // the end: shutdown(2), or that of the node, which shows as ECONNRESET only once
		if _, _, e := c.s.client.Names(int(c.tid), fd); e == syscall.ENETDOWN {
			err = e
		}
		fallthrough
	default:
		o := c.refused(err)
		return &o
	}
	_, remote, err := shim.DecodeAccepted(record[:])
	if err == nil && a.flags&unix.SOCK_NONBLOCK != 0 {
		err = unix.SetNonblock(got, true)
	}
	if err == nil && a.space >= 0 {
		err = c.writeAddress(1, a.space, encodeAddress(remote, a.v6))
	}
	if err != nil {
		unix.Close(got)
		return &outcome{err: err}
	}
	o := c.give(got, a.flags&unix.SOCK_CLOEXEC != 0)
	return &o
}

// await waits for a connection. It closes fd at once: while the thread waits, the program's close(2) is to be the last.
func (a *acceptance) await(c *call, fd int) outcome {
	p := newPause(timeout(fd, unix.SO_RCVTIMEO))
	f, stop, err := c.s.waits.accepting(fd)
	if err != nil {
		unix.Close(fd)
		return failed(syscall.ENFILE)
	}
	defer stop()
	for {
		event := c.s.waits.next(f)
		o := a.take(c, fd)
		unix.Close(fd)
		if o != nil {
			if o.err == syscall.ENETDOWN {
				c.lost()
			}
			if ended(o) && c.s.Rebinds {
				if fd, err = c.file(int32(c.args[0])); err == nil {
					return a.again(c, fd, *o)
				}
			}
			return *o
		}
		if err := p.wait(c, event); err != nil {
			return failed(err)
		}
		if fd, err = c.file(int32(c.args[0])); err != nil {
			return failed(err)
		}
	}
}

// receiveConnection takes one record of a listener, and returns the descriptor that came with it.
func receiveConnection(fd int, record []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := unix.Recvmsg(fd, record, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	switch {
	case err == syscall.ECONNRESET: // the node has ended
		return -1, syscall.ENETDOWN
	case err != nil:
		return -1, err
	case n == 0: // shutdown(2) of the listener
		return -1, syscall.EINVAL
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		if flags&unix.MSG_CTRUNC != 0 {
			return -1, syscall.ENFILE
		}
		return -1, syscall.EPROTO
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 || n != len(record) {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return -1, syscall.EPROTO
	}
	return fds[0], nil
}
