package shim

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
