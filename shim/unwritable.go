package shim

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// A socket that connects without blocking must not be writable before its handshake is complete. Either it is filled (fill), or it has
// a small send buffer meanwhile (smallBuffer).

// zeros fills sockets. No program reads it.
var zeros [1 << 20]byte

// fill takes so much of p's send buffer that poll(2) does not report POLLOUT: one byte more than a quarter. The
// last byte is apart, because it is the guard byte from then on: a buffer of the kernel of which one byte is left counts as
// a whole. It returns how many bytes are to be taken out: all, with the guard byte of before, but the last.
func fill(p int) (int, error) {
	size, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 0, err
	}
	n, err := unix.SendmsgN(p, zeros[:min(size/4+1, len(zeros))], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil {
		return 0, err
	}
	return n + 1, writeGuard(p)
}

// drain takes back what fill has put there.
func (k *sock) drain(filled int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b [4096]byte
	for filled > 0 && k.fd >= 0 {
		n, _, err := unix.Recvfrom(k.fd, b[:min(filled, len(b))], unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			return
		}
		filled -= n
	}
}

// beginFilled fills the socket and sends the SYN. early bytes wait in the socket already.
func (k *sock) beginFilled(p int, to netip.AddrPort, early int, dial dialer) error {
	filled, err := fill(p)
	if err != nil {
		return err
	}
	if err = k.start(to, early+filled, dial); err != nil {
		k.drain(early + filled)
	}
	return err
}

// smallTime is for how long the node has a descriptor of a program's end during a handshake. It does not see meanwhile that
// the program has closed the socket.
const smallTime = 10 * time.Millisecond

// smallBuffer makes a socket unwritable during a handshake, without a copy of a quarter of its send buffer into it and out of it
// again (see fill). The smallest send buffer of the kernel (SOCK_MIN_SNDBUF) is full, for poll(2), with two bytes in it: the
// guard byte and one more. Only the program's end can enlarge it again, so that the node keeps a descriptor of that: if the
// handshake takes longer than smallTime, the socket is filled instead, and the descriptor closed. sock.mu guards it.
type smallBuffer struct {
	p    int // the program's end; -1 once it is closed
	size int // of its send buffer, as getsockopt(2) has it
	k    *sock
}

// beginSmall is beginFilled with a small send buffer.
func (k *sock) beginSmall(p int, to netip.AddrPort, dial dialer) error {
	n, err := newSmallBuffer(p)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.small = n
	k.mu.Unlock()
	if err = k.start(to, smallBytes, dial); err != nil {
		k.drain(smallBytes)
		k.restoreBuffer()
		return err
	}
	return nil
}

// limitSmall bounds for how long the socket has a small buffer, if it has one. The caller holds the loop.
func (k *sock) limitSmall(in socket.LoopStack) {
	k.mu.Lock()
	n := k.small
	k.mu.Unlock()
	if n != nil {
		n.k = k
		k.s.queuesOf(in).small.add(in.Now(), n)
	}
}

// restoreBuffer makes the socket writable if its send buffer is small.
func (k *sock) restoreBuffer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.small.restore()
}

// over implements expiring.
func (n *smallBuffer) over() bool {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	return n.k.state != connecting || n.p < 0
}

// expire implements expiring.
func (n *smallBuffer) expire() { n.k.fillSmall() }

// fillSmall gives a socket whose handshake takes long its send buffer, without making it writable, and closes the
// descriptor. Without success it stays as it is.
func (k *sock) fillSmall() {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.small
	if k.state != connecting || n.p < 0 {
		return
	}
	filled, err := n.fill()
	k.refilled += filled
	if err == nil {
		n.close()
	}
}

// smallBytes is the number of bytes that make a socket with the smallest send buffer unwritable, beside the guard byte.
const smallBytes = 1

// newSmallBuffer makes p unwritable. p stays the caller's.
func newSmallBuffer(p int) (*smallBuffer, error) {
	size, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(p), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n := &smallBuffer{p: own, size: size}
	if err = unix.SetsockoptInt(own, unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err == nil {
		err = writeGuard(own)
	}
	if err != nil {
		n.restore()
		return nil, err
	}
	return n, nil
}

// restore makes the socket writable, which wakes who waits for that, and closes the descriptor.
func (n *smallBuffer) restore() {
	if n == nil || n.p < 0 {
		return
	}
	raiseBuffer(n.p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, n.size/2)
	n.close()
}

// close closes the descriptor.
func (n *smallBuffer) close() {
	if n == nil || n.p < 0 {
		return
	}
	unix.Close(n.p)
	n.p = -1
}

// fill enlarges the send buffer to n.size in steps, each of which leaves it unwritable: more than a quarter of the next size
// has to be taken before. It returns how many bytes it has written, with one for the guard byte of before, but not the last,
// which is the guard byte from then on (see fill).
func (n *smallBuffer) fill() (filled int, err error) {
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
