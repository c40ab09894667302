package shim

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// connectWait is how long the reply to a connect(2) that waits may be delayed. In a local network the handshake is complete
// by then, and the program is told so at once: its socket need not be made unwritable, it does not wait in poll(2), and is
// woken once, not twice. A signal of the program is delayed by as much.
const connectWait = time.Millisecond

// errDelayed is that the reply follows.
var errDelayed = errors.New("delayed")

// delayed is a connect(2) whose reply waits for the handshake. It belongs to the loop of its channel, which is that of the
// connection.
type delayed struct {
	k     *sock
	r     reply
	p     int // the program's end
	timer *time.Timer
}

// delay keeps the reply r for a socket whose handshake has begun. It takes p.
func (l *loopChannel) delay(k *sock, r reply, p int) {
	d := &delayed{k: k, r: r, p: p}
	l.delayed = d
	k.mu.Lock()
	k.answer = func(err error) { l.connected(d, err) }
	k.mu.Unlock()
	d.timer = time.AfterFunc(connectWait, func() {
		l.c.s.cfg.Stack.EnterLoop(l.loop, func(socket.LoopStack) {
			if l.delayed == d {
				l.reply(l.stopWaiting())
			}
		})
	})
}

// connected is called at the end of the handshake.
func (l *loopChannel) connected(d *delayed, err error) {
	if l.delayed != d {
		return
	}
	l.delayed = nil
	d.timer.Stop()
	unix.Close(d.p)
	d.r.errno = errnoOf(err)
	l.reply(&d.r)
}

// stopWaiting makes the program's end unwritable until the handshake is complete, and returns the reply that says that this goes on.
func (l *loopChannel) stopWaiting() *reply {
	d := l.delayed
	l.delayed = nil
	d.timer.Stop()
	d.r.errno = errnoOf(d.k.fillLate(d.p))
	unix.Close(d.p)
	return &d.r
}

// reply sends a reply that was delayed.
func (l *loopChannel) reply(r *reply) {
	if l.answer(r) != nil {
		l.end()
	}
}

// fillLate is fill during a handshake. Without an error of it the result is EINPROGRESS, and nil where the handshake has ended.
func (k *sock) fillLate(p int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = nil
	switch k.state {
	case connecting:
	case connected: // and the answer is about to be sent (finish)
		return nil
	default: // the program has shut it down
		return syscall.ENETDOWN
	}
	filled, err := fill(p)
	k.refilled += filled
	if err != nil {
		return err
	}
	return syscall.EINPROGRESS
}

// takeAnswer returns what awaits the end of the handshake, nil if nothing does.
func (k *sock) takeAnswer() func(error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.answer
	k.answer = nil
	return f
}

// narrowTime is for how long the node has a descriptor of a program's end during a handshake. It does not see meanwhile that
// the program has closed the socket.
const narrowTime = 10 * time.Millisecond

// narrow makes a socket unwritable during a handshake, without a copy of a quarter of its send buffer into it and out of it
// again (see fill). The smallest send buffer of the kernel (SOCK_MIN_SNDBUF) is full, for poll(2), with two bytes in it: the
// guard byte and one more. Only the program's end can enlarge it again, so that the node keeps a descriptor of that: if the
// handshake takes longer than narrowTime, the socket is filled instead, and the descriptor closed. sock.mu guards it.
type narrow struct {
	p     int // the program's end; -1 once it is closed
	size  int // of its send buffer, as getsockopt(2) has it
	timer *time.Timer
}

// narrows is begins with a small send buffer.
func (k *sock) narrows(p int, to netip.AddrPort, dial dialer) error {
	n, err := newNarrow(p)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.narrow = n
	k.mu.Unlock()
	if err = k.start(to, narrowBytes, dial); err != nil {
		k.drain(narrowBytes)
		k.widen()
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n.p >= 0 {
		n.timer = time.AfterFunc(narrowTime, k.fillNarrow)
	}
	return nil
}

// widen makes the socket writable if its send buffer is small.
func (k *sock) widen() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.narrow.widen()
}

// fillNarrow gives a socket whose handshake takes long its send buffer, without making it writable, and closes the
// descriptor. Without success it stays as it is.
func (k *sock) fillNarrow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.narrow
	if k.state != connecting || n.p < 0 {
		return
	}
	filled, err := n.fill()
	k.refilled += filled
	if err == nil {
		n.close()
	}
}

// narrowBytes is how many bytes make a socket with the smallest send buffer unwritable, beside the guard byte.
const narrowBytes = 1

// newNarrow makes p unwritable. p stays the caller's.
func newNarrow(p int) (*narrow, error) {
	size, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(p), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n := &narrow{p: own, size: size}
	if err = unix.SetsockoptInt(own, unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err == nil {
		err = writeGuard(own)
	}
	if err != nil {
		n.widen()
		return nil, err
	}
	return n, nil
}

// widen makes the socket writable, which wakes who waits for that, and closes the descriptor.
func (n *narrow) widen() {
	if n == nil || n.p < 0 {
		return
	}
	raiseBuffer(n.p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, n.size/2)
	n.close()
}

// close closes the descriptor.
func (n *narrow) close() {
	if n == nil || n.p < 0 {
		return
	}
	if n.timer != nil {
		n.timer.Stop()
	}
	unix.Close(n.p)
	n.p = -1
}

// fill enlarges the send buffer to n.size in steps, each of which leaves it unwritable: more than a quarter of the next size
// has to be taken before. It returns how many bytes it has written, with one for the guard byte of before, but not the last,
// which is the guard byte from then on (see fill).
func (n *narrow) fill() (filled int, err error) {
	for {
		taken, err := unix.IoctlGetInt(n.p, unix.SIOCOUTQ)
		if err != nil {
			return filled, err
		}
		next := min(4*taken-2, n.size)
		raiseBuffer(n.p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, next/2)
		if next == n.size {
			break
		}
		wrote, err := unix.SendmsgN(n.p, zeros[:max(1, n.size/4+1-taken)], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil {
			return filled, err
		}
		filled += wrote
	}
	return filled + 1, writeGuard(n.p)
}
