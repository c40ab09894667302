package shim

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// cork joins the datagrams of several calls to one, as Linux does with UDP_CORK and MSG_MORE (udp(7)). The home loop has it. The program's
// calls may come from the library, a supervisor and the kernel (write(2)), in several processes: only the node sees all of them.
type cork struct {
	on      bool   // UDP_CORK
	pieces  int    // datagrams that are announced by MORE
	pending bool   // data waits, also where it is empty
	data    []byte // behind the header of the first, if the socket's datagrams have one
	head    int    // bytes of the header
}

// joins reports whether a datagram that comes now is not to be sent as it is.
func (c *cork) joins() bool { return c.on || c.pieces > 0 || c.pending }

// fits reports whether a datagram has space for n bytes behind those that wait.
func (c *cork) fits(n int) bool { return len(c.data)-c.head+n <= maxDatagram }

// take returns the datagram of all that was joined, and begins anew.
func (c *cork) take() []byte {
	b := c.data
	c.pending, c.data, c.head = false, nil, 0
	return b
}

// add joins a datagram of the program, which has a header of head bytes. It returns the whole when it is complete. ok is false where it
// would be too long: all of it is lost then, as on Linux.
func (c *cork) add(b []byte, head int) (whole []byte, ok bool) {
	more := c.on || c.pieces > 0
	c.pieces = max(c.pieces-1, 0)
	switch {
	case len(b) < head: // no datagram at all, which parse refuses
		return b, true
	case !c.pending:
		c.pending, c.data, c.head = true, bytes.Clone(b), head
	case !c.fits(len(b) - head):
		c.take()
		return nil, false
	default:
		c.data = append(c.data, b[head:]...)
	}
	if more {
		return nil, true
	}
	return c.take(), true
}

// reform gives what waits the form of the datagrams that come from now on: with a header, which names the peer, or without.
func (c *cork) reform(head int) {
	if !c.pending || c.head == head {
		return
	}
	c.data = append(make([]byte, head), c.data[c.head:]...)
	if head > 0 {
		(&datagram{}).encode(c.data)
	}
	c.head = head
}

// headSize returns the size of the header of the datagrams that the program sends.
func (u *packets) headSize() int {
	plain := u.plain.Load()
	if u.k.byCall {
		plain = u.peered.Load()
	}
	if plain {
		return 0
	}
	return datagramSize
}

// join returns what is to be sent of datagrams that the program has written, in the place of list.
func (u *packets) join(list [][]byte) [][]byte {
	if !u.cork.joins() {
		return list
	}
	out := list[:0]
	for _, b := range list {
		whole, ok := u.cork.add(b, u.headSize())
		if !ok {
			u.k.setPacketError(syscall.EMSGSIZE)
			u.k.s.stats.datagramsDropped.Add(1)
		}
		if whole != nil {
			out = append(out, whole)
		}
	}
	return out
}

// drainRounds bounds drain: a socket has space for fewer datagrams.
const drainRounds = 8

// drain reads what the program has written by now. What the device has no space for is held.
func (u *packets) drain(in socket.LoopStack) {
	u.draining = true
	for range drainRounds {
		u.toStack(in)
		if u.watch == nil || !readable(u.k.fd) {
			break
		}
	}
	u.draining = false
}

// push sends what waits.
func (u *packets) push(in socket.LoopStack) {
	shard, ok := in.OfUDP(u.conn)
	if u.cork.pending {
		if whole := u.cork.take(); ok {
			u.send(shard, [][]byte{whole})
		}
	}
}

// onHome calls f on the home loop, behind all that the program has written.
func (u *packets) onHome(f func(in socket.LoopStack)) {
	u.k.s.cfg.Stack.EnterLoop(u.home, func(in socket.LoopStack) {
		if u.watch != nil {
			u.drain(in)
		}
		f(in)
	})
}

// corked is UDP_CORK. Its end sends what waits.
func corked(spec optionSpec) optionSpec {
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		if err := set(k, n, v); err != nil {
			return err
		}
		on := k.options.kept[n] != 0
		if u := k.packets(); u != nil {
			u.onHome(func(in socket.LoopStack) {
				if u.cork.on = on; !on {
					u.push(in)
				}
			})
		}
		return k.showJoins(on)
	}
	return spec
}

// more is MORE: a datagram comes that joins others, or may. It is bound first, as by sendto(2).
func (k *sock) more(arg int) error {
	if k.stream {
		return syscall.EOPNOTSUPP
	}
	k.bindSent()
	u := k.packets()
	if u == nil {
		return syscall.ENETDOWN
	}
	var err error
	waits, piece, n := false, arg&morePiece != 0, arg&moreSize
	u.onHome(func(socket.LoopStack) {
		switch c := &u.cork; {
		case arg&moreFailed != 0:
			c.pieces = max(c.pieces-1, 0)
		case c.pending && !c.fits(n):
			c.take()
			err = syscall.EMSGSIZE
		case !c.pending && arg&moreNameless != 0 && !u.peered.Load():
			err = syscall.EDESTADDRREQ
		case piece:
			c.pieces++
		}
		waits = u.cork.on || u.cork.pieces > 0 || u.cork.pending && arg&(moreFailed|moreNameless) != 0 // the library reads it once more for the latter
	})
	if e := k.showJoins(waits); err == nil {
		err = e
	}
	return err
}

// showJoins changes whether the form of the program's end says that datagrams join: each call has to ask then.
func (k *sock) showJoins(on bool) error {
	if k.joins == on {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.joins = on
	u := k.udp
	if u == nil {
		return k.setForm(k.asked, !k.headed(false), false)
	}
	return k.setForm(k.asked, u.plain.Load(), u.peered.Load())
}

// readable reports whether a read of fd would not wait.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p, 0)
	return n == 1 && p[0].Revents&unix.POLLIN != 0
}
