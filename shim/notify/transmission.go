package notify

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// transmission is a call that sends datagrams.
type transmission struct {
	*call
	more bool // MSG_MORE: others follow that join it
}

// send sends a datagram, and does not wait. One that may join others is announced to the node.
func (c transmission) send(fd int, of shim.Mark, m *message) outcome {
	if !c.more && !shim.ReadForm(fd).Joins {
		return c.sendOne(fd, of, m, false)
	}
	if m.size() > maxDatagram {
		return failed(syscall.EMSGSIZE)
	}
	if err := c.s.client.More(int(c.tid), fd, m.size(), c.more, m.name != 0); err != nil {
		return c.refused(err)
	}
	o := c.sendOne(fd, of, m, true)
	if o.err != nil && c.more {
		c.s.client.NoMore(int(c.tid), fd)
	}
	return o
}

// sendOne sends a datagram with its header. That of a connected socket is the kernel's, if it is not announced. One that is announced needs no
// address: the node knows that others wait.
func (c transmission) sendOne(fd int, of shim.Mark, m *message, announced bool) outcome {
	switch {
	case of.Connected && m.name == 0 && !announced && c.notification.call != unix.SYS_SENDMMSG:
		return kernels
	case of.Connected && m.name == 0:
		return c.sendPlain(fd, m)
	case of.Connected:
		return failed(syscall.EISCONN)
	case m.name == 0 && !announced:
		return failed(syscall.EDESTADDRREQ)
	case m.nameSize < 0 || m.nameSize > maxSockaddr:
		return failed(syscall.EINVAL)
	case m.size() > maxDatagram:
		return failed(syscall.EMSGSIZE)
	}
	h, err := c.header(of, m)
	all := make([]byte, shim.HeaderSize+m.size())
	if err == nil {
		h.Encode(all)
		err = c.gather(m, all[shim.HeaderSize:])
	}
	if err == nil {
		err = unix.Send(fd, all, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if err != nil {
		return failed(c.sendError(err))
	}
	return outcome{val: int64(len(all) - shim.HeaderSize)}
}

// header makes the header of a datagram. Without an address, it joins others.
func (c transmission) header(of shim.Mark, m *message) (h shim.Header, err error) {
	if m.name != 0 {
		b := make([]byte, m.nameSize)
		if err := c.read(m.name, b); err != nil {
			return h, err
		}
		f, _ := family(b)
		if h.Remote, _, err = decodeAddress(b, of.V6 && f != unix.AF_INET); err != nil {
			return h, err
		}
		if h.Remote.Port() == 0 {
			return h, syscall.EINVAL
		}
	}
	if m.controlMax == 0 {
		return h, nil
	}
	oob := make([]byte, m.controlMax)
	if err := c.read(m.control, oob); err != nil {
		return h, err
	}
	return h, h.SetControl(oob)
}

// sendPlain sends a datagram of a connected socket.
func (c transmission) sendPlain(fd int, m *message) outcome {
	b := make([]byte, m.size())
	err := c.gather(m, b)
	if err == nil {
		err = unix.Send(fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if err != nil {
		return failed(c.sendError(err))
	}
	return outcome{val: int64(len(b))}
}

// sendError is the error for the program: UDP knows no end.
func (c transmission) sendError(err error) error {
	if err == syscall.EPIPE || err == syscall.ECONNRESET || err == syscall.ENOTCONN {
		return syscall.ENETDOWN
	}
	return err
}
