package notify

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// Datagrams that a UDP socket sends while it is not connected have a header (shim.Header), which the Supervisor adds: the calls with an
// address, and those with a struct msghdr, of which the filter sees nothing, come here. Those that it receives have one from the first such
// call on, so that programs that read(2) only get them plain. Those of a connected socket are plain, until a call has space for control
// messages that the program has asked for.

// datagramSocket is served for calls that move datagrams: streams and sockets of the kernel are the kernel's.
func (c *call) datagramSocket() (int, shim.Mark, *outcome) {
	fd, m, o := c.served()
	if o == nil && m.Kind != shim.Datagram {
		unix.Close(fd)
		return -1, m, &kernels
	}
	return fd, m, o
}

// sendto is sendto(2) with an address, which the kernel would ignore.
func (c *call) sendto() outcome {
	if uint32(c.args[5]) == sockaddrNetlink { // no socket of the stack takes that length
		return c.sendNetlink()
	}
	m, more := single(c.args[1], c.args[2], c.args[4], int(int32(uint32(c.args[5])))), c.args[3]&unix.MSG_MORE != 0
	return c.sends(3, func(own *call, fd int, of shim.Mark) outcome { return transmission{own, more}.send(fd, of, &m) })
}

func (c *call) sendmsg() outcome {
	more := c.args[2]&unix.MSG_MORE != 0
	return c.sends(2, func(own *call, fd int, of shim.Mark) outcome {
		m, err := own.readMessage(own.args[1])
		if err != nil {
			return failed(err)
		}
		return transmission{own, more}.send(fd, of, &m)
	})
}

// sendmmsg sends until a datagram fails. Only the first one makes it wait.
func (c *call) sendmmsg() outcome {
	more := c.args[3]&unix.MSG_MORE != 0
	return c.sends(3, func(own *call, fd int, of shim.Mark) outcome {
		return own.each(func(at uint64) outcome {
			m, err := own.readMessage(at)
			if err != nil {
				return failed(err)
			}
			return transmission{own, more}.send(fd, of, &m)
		})
	})
}

// each does a call for each struct mmsghdr until one fails, and writes the lengths.
func (c *call) each(one func(at uint64) outcome) outcome {
	n := min(uint32(c.args[2]), maxParts)
	for i := range uint64(n) {
		at := c.args[1] + i*batchSize
		o := one(at)
		if o.err == nil && o.kind == answered {
			o.err = c.writeLength(at+batchLengthAt, int(o.val))
		}
		switch {
		case o.kind == answered && o.err == nil:
		case i > 0:
			return outcome{val: int64(i)}
		default:
			return o
		}
	}
	return outcome{val: int64(n)}
}

// sends does a sending call, in a goroutine if it has to wait. flags is the number of the argument with the flags.
func (c *call) sends(flags int, send func(own *call, fd int, of shim.Mark) outcome) outcome {
	fd, of, o := c.datagramSocket()
	if o != nil {
		return *o
	}
	got := send(c, fd, of)
	if got.err != syscall.EAGAIN || c.args[flags]&unix.MSG_DONTWAIT != 0 || !blocking(fd) {
		unix.Close(fd)
		return got
	}
	return c.later(func(own *call) outcome {
		defer unix.Close(fd)
		f, stop, err := own.s.waits.connecting(fd)
		if err != nil {
			return failed(syscall.ENFILE)
		}
		defer stop()
		p := newPause(timeout(fd, unix.SO_SNDTIMEO))
		for {
			event := own.s.waits.next(f)
			if o := send(own, fd, of); o.err != syscall.EAGAIN {
				return o
			}
			if err := p.wait(own, event); err != nil {
				return failed(err)
			}
		}
	})
}

// recvfrom is recvfrom(2) with a place for an address.
func (c *call) recvfrom() outcome {
	fd, of, o := c.datagramSocket()
	if o != nil {
		if *o == kernels && of.Kind == shim.NotServed {
			return c.receiveNetlink()
		}
		return elsewhere(of, int(c.args[3]), o)
	}
	unix.Close(fd)
	space := 0
	if c.args[5] != 0 {
		n, err := c.readLength(c.args[5])
		if err != nil {
			return failed(err)
		}
		space = n
	}
	m := single(c.args[1], c.args[2], c.args[4], space)
	m.lengthAt = c.args[5]
	return c.receives(int(int32(c.args[3])), func(own *call, fd int, of shim.Mark, flags int) outcome { return own.receiveOne(fd, of, &m, flags) })
}

func (c *call) recvmsg() outcome {
	return c.receives(int(int32(c.args[2])), func(own *call, fd int, of shim.Mark, flags int) outcome {
		m, err := own.readMessage(own.args[1])
		if err != nil {
			return failed(err)
		}
		return own.receiveOne(fd, of, &m, flags)
	})
}

// recvmmsg receives what is there, and waits for the first one alone, as with MSG_WAITFORONE: the time of the call is not looked at.
func (c *call) recvmmsg() outcome {
	return c.receives(int(int32(c.args[3])), func(own *call, fd int, of shim.Mark, flags int) outcome {
		return own.each(func(at uint64) outcome {
			m, err := own.readMessage(at)
			if err != nil {
				return failed(err)
			}
			return own.receiveOne(fd, of, &m, flags)
		})
	})
}

// receiver does a receiving call once, and does not wait.
type receiver func(own *call, fd int, of shim.Mark, flags int) outcome

// receives does a receiving call, in a goroutine if it has to wait.
func (c *call) receives(flags int, receive receiver) outcome {
	fd, of, o := c.datagramSocket()
	if o != nil {
		return elsewhere(of, flags, o)
	}
	got := receive(c, fd, of, flags)
	waits := flags&(unix.MSG_DONTWAIT|unix.MSG_ERRQUEUE) == 0 && blocking(fd)
	switch {
	case got.err == syscall.ENETDOWN && c.s.Rebinds:
		return c.later(func(own *call) outcome {
			switch err := (renewal{own}).again(fd); {
			case err == syscall.EINVAL, err == syscall.ENETDOWN:
				return got
			case err != nil:
				return failed(err)
			case !waits:
				return failed(syscall.EAGAIN)
			}
			return own.awaitDatagram(of, flags, receive)
		})
	case got.err == syscall.ENETDOWN && c.s.ends.Add(1) > freeEnds:
		unix.Close(fd)
		return c.later(func(*call) outcome {
			pauseAtEnd()
			return got
		})
	case got.err == syscall.EAGAIN && waits:
		unix.Close(fd)
		return c.later(func(own *call) outcome { return own.awaitDatagram(of, flags, receive) })
	}
	unix.Close(fd)
	return got
}

// elsewhere is the outcome of a receiving call on another socket. A stream has no queue of errors, and the kernel would take bytes.
func elsewhere(of shim.Mark, flags int, o *outcome) outcome {
	if of.Kind == shim.Stream && flags&unix.MSG_ERRQUEUE != 0 {
		return failed(syscall.EAGAIN)
	}
	return *o
}

// awaitDatagram receives what comes. While it waits the Supervisor has no copy of the socket, as in accept.
func (c *call) awaitDatagram(of shim.Mark, flags int, receive receiver) outcome {
	fd, err := c.file(int32(c.args[0]))
	if err != nil {
		return failed(err)
	}
	p := newPause(timeout(fd, unix.SO_RCVTIMEO))
	f, stop, err := c.s.waits.accepting(fd)
	if err != nil {
		unix.Close(fd)
		return failed(syscall.ENFILE)
	}
	defer stop()
	for {
		event := c.s.waits.next(f)
		o := receive(c, fd, of, flags)
		unix.Close(fd)
		if o.err != syscall.EAGAIN {
			return o
		}
		if err := p.wait(c, event); err != nil {
			return failed(err)
		}
		if fd, err = c.file(int32(c.args[0])); err != nil {
			return failed(err)
		}
	}
}

// bufferSize is that of the longest datagram, with its header.
const bufferSize = shim.HeaderSize + maxDatagram + 1

// buffers are those of receiving calls: to clear one would take longer than to copy most datagrams.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// receiveOne receives a datagram, and does not wait.
func (c *call) receiveOne(fd int, of shim.Mark, m *message, flags int) outcome {
	if flags&unix.MSG_ERRQUEUE != 0 {
		return reception{c}.receiveError(fd, of, m)
	}
	form, err := reception{c}.formFor(fd, of, m)
	switch err {
	case nil:
	case syscall.ENETDOWN:
		return failed(c.endOfDatagrams())
	default:
		return c.refused(err)
	}
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	b := buffer[:]
	n, got, err := reception{c}.receiveBehindNotices(fd, b, flags&unix.MSG_PEEK)
	switch {
	case err == syscall.ECONNRESET, err == nil && n == 0 && hungUp(fd):
		return failed(c.endOfDatagrams())
	case err != nil:
		return failed(err)
	}
	b = b[:n]
	var h shim.Header
	switch {
	case form.Headed:
		if h, err = shim.DecodeHeader(b); err != nil {
			return failed(syscall.EAGAIN) // the program has connected the socket meanwhile
		}
		b = b[shim.HeaderSize:]
	case m.name != 0:
		if _, h.Remote, err = c.s.client.Names(int(c.tid), fd); err != nil {
			return c.refused(err)
		}
	}
	return c.deliver(m, &h, b, of, flags, got)
}

// formFor returns the form of the socket's datagrams, and gives them headers where the call needs what these have.
func (c reception) formFor(fd int, of shim.Mark, m *message) (shim.Form, error) {
	form := shim.ReadForm(fd)
	if form.Headed || of.Connected && (!form.Control || m.controlMax == 0) {
		return form, nil
	}
	if err := c.s.client.AddHeaders(int(c.tid), fd); err != nil {
		return form, err
	}
	return shim.ReadForm(fd), nil
}

// deliver writes a datagram into the program.
func (c *call) deliver(m *message, h *shim.Header, b []byte, of shim.Mark, flags, got int) outcome {
	got &= unix.MSG_TRUNC
	whole, control := true, []byte(nil)
	if m.at != 0 && h.Local.IsValid() { // it has come with a header
		if control, whole = h.Control(nil, m.controlMax, encodeAddress); !whole {
			got |= unix.MSG_CTRUNC
		}
	}
	n := min(len(b), m.size())
	if n < len(b) {
		got |= unix.MSG_TRUNC
	}
	if err := c.scatter(m, b[:n]); err != nil {
		return failed(err)
	}
	if err := c.finish(m, encodeAddress(h.Remote, of.V6), control, got); err != nil {
		return failed(err)
	}
	if flags&unix.MSG_TRUNC != 0 {
		n = len(b)
	}
	return outcome{val: int64(n)}
}

// endOfDatagrams is the errno of a socket whose other end is closed.
func (c *call) endOfDatagrams() error {
	c.lost()
	if c.s.Rebinds {
		return syscall.ENETDOWN
	}
	c.report("the node has ended, and with it the sockets of this program: start it again")
	return syscall.ENETDOWN
}

func hungUp(fd int) bool {
	ev := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(ev, 0)
	return err == nil && n == 1 && ev[0].Revents&unix.POLLHUP != 0
}
