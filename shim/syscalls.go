package shim

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errDescriptors is that a program has sent descriptors through a data socket. Kernels before 6.16 take them; there is no
// space for them here, so that they are closed with the message.
const errDescriptors = syscall.EBADMSG

// receive is recvmsg(2) into two pieces. It does not tell the scheduler, because with MSG_DONTWAIT it does not block.
func receive(fd int, to *[2][]byte, flags int) (int, syscall.Errno) {
	return transfer(unix.SYS_RECVMSG, fd, to[:], flags)
}

// receiveBehind is receive of what follows the bytes that go to drop.
func receiveBehind(fd int, drop []byte, to *[2][]byte, flags int) (int, syscall.Errno) {
	return transfer(unix.SYS_RECVMSG, fd, [][]byte{drop, to[0], to[1]}, flags)
}

// send is sendmsg(2) of two pieces.
func send(fd int, from *[2][]byte) (int, syscall.Errno) {
	return transfer(unix.SYS_SENDMSG, fd, from[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(call uintptr, fd int, parts [][]byte, flags int) (int, syscall.Errno) {
	var iov [3]unix.Iovec
	n := 0
	for _, p := range parts {
		if len(p) > 0 {
			iov[n].Base = unsafe.SliceData(p)
			iov[n].SetLen(len(p))
			n++
		}
	}
	m := unix.Msghdr{Iov: &iov[0]}
	m.SetIovlen(n)
	got, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&m)), uintptr(flags))
	runtime.KeepAlive(parts)
	if errno != 0 {
		return -1, errno
	}
	if m.Flags&unix.MSG_CTRUNC != 0 {
		return -1, errDescriptors
	}
	return int(got), 0
}

// sendNotice sends a datagram without bytes and with a descriptor, by which the library distinguishes it from those of peers: it has
// no space for one, so that the kernel drops it and says so (MSG_CTRUNC). False is that there was no space for it.
func sendNotice(fd, passed int) bool {
	rights := unix.UnixRights(passed)
	m := unix.Msghdr{Control: unsafe.SliceData(rights)}
	m.SetControllen(len(rights))
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	runtime.KeepAlive(rights)
	return errno != unix.EAGAIN && errno != unix.ENOBUFS
}

// newNotice makes the descriptor of notices: a program that receives it by a system call of its own has an empty file that it
// cannot change.
func newNotice() (int, error) {
	fd, err := unix.MemfdCreate("millrace-notice", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	return fd, err
}

// hungUp reports whether the program has closed its end.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, _ := unix.Poll(p, 0)
	return n == 1 && p[0].Revents&unix.POLLHUP != 0
}

const (
	packetBatch = 16                    // datagrams of one system call
	packetLimit = 4 * packetBatch       // datagrams of one call of a callback
	packetSize  = 64<<10 + datagramSize // the longest datagram, with its header
)

// batch reads datagrams. Each loop has one, and what it has read is valid until the next read.
type batch struct {
	buffers []byte
	parts   [packetBatch]unix.Iovec
	msgs    [packetBatch]mmsghdr
}

// mmsghdr is struct mmsghdr of Linux.
type mmsghdr struct {
	header unix.Msghdr
	size   uint32
	_      uint32
}

// batchOf returns the batch of a loop, which is that of the caller.
func (s *Server) batchOf(loop int) *batch {
	if s.batches[loop] == nil {
		s.batches[loop] = newBatch()
	}
	return s.batches[loop]
}

func newBatch() *batch {
	b := &batch{buffers: make([]byte, packetBatch*packetSize)}
	for i := range b.msgs {
		b.parts[i].Base = &b.buffers[i*packetSize]
		b.parts[i].SetLen(packetSize)
		b.msgs[i].header.Iov = &b.parts[i]
		b.msgs[i].header.SetIovlen(1)
	}
	return b
}

// receive is recvmmsg(2). It does not tell the scheduler, because with MSG_DONTWAIT it does not block.
func (b *batch) receive(fd int) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs)), packetBatch, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// hasDescriptors reports whether one of the n datagrams came with descriptors, which the kernel has closed.
func (b *batch) hasDescriptors(n int) bool {
	for i := range b.msgs[:n] {
		if b.msgs[i].header.Flags&unix.MSG_CTRUNC != 0 {
			return true
		}
	}
	return false
}

// datagram returns the i-th datagram that was read.
func (b *batch) datagram(i int) []byte { return b.buffers[i*packetSize:][:b.msgs[i].size] }
