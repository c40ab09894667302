package shim

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// toStack moves what the program has written to the send buffer, as far as that has space: Writable follows where it has
// none. What is left stays in the program's send buffer.
func (r *relay) toStack() {
	if r.sends > 0 {
		return
	}
	if r.rings != nil {
		r.ringToStack()
		return
	}
	if !r.sendEarly() {
		return
	}
	moved := 0
	for !r.ended && r.failed == 0 {
		n, more, err := r.read()
		moved += n
		if err != nil {
			r.afterSend((*relay).programFailed)
			return
		}
		if !more {
			break
		}
		if moved >= burst {
			r.watch.Again(stack.FileReadable)
			break
		}
	}
	r.bulk = moved >= bulkFrom
	r.k.s.stats.toStack.Add(uint64(moved))
	if r.failed != 0 {
		r.toProgram()
		return
	}
	if !r.ended {
		r.consumeLater()
		return
	}
	if err := r.consume(); err != nil {
		r.afterSend((*relay).programFailed)
		return
	}
	if r.isClosed() && !r.closed {
		if moved > 0 && r.lingers() || r.unread() {
			r.closeAfterSend()
			return
		}
		r.programClosed()
	}
}

// lingers reports whether the program has set SO_LINGER: Close may reset the connection.
func (r *relay) lingers() bool {
	seconds, err := r.in.Option(socket.OptLinger)
	return err == nil && seconds >= 0
}

// read copies one piece into the send buffer. more is that there may be more.
func (r *relay) read() (n int, more bool, err error) {
	if r.bulk {
		if want := r.takable(); want >= bulkLeast {
			return r.take(want)
		}
	}
	space, err := r.in.Reserve(reserved)
	if err != nil { // and ready does not report it again
		r.fail(err)
		return 0, false, nil
	}
	size := len(space[0]) + len(space[1])
	if size == 0 {
		return 0, false, nil
	}
	n, errno := receive(r.fd, &space, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err := r.in.Commit(max(n, 0)); err != nil {
		r.fail(err)
		return 0, false, nil
	}
	switch {
	case errno == syscall.EAGAIN:
		return 0, false, nil
	case errno == syscall.EINTR:
		return 0, true, nil
	case errno != 0:
		if errno == errDescriptors {
			r.k.s.stats.descriptors.Add(1)
		}
		return 0, false, errno
	case n == 0:
		r.hangup = r.hangup || hungUp(r.fd) // it may have closed its end, and the event is yet to come
		r.programEnded()
		return 0, false, nil
	}
	r.unconsumed += n
	return n, n == size || r.shut, nil
}

// takable returns how many bytes take may move: all that are new in the socket but one. Where many were read before, they would
// be copied twice.
func (r *relay) takable() int {
	if r.unconsumed > 1+maxUnconsumed {
		return 0
	}
	have, err := unix.IoctlGetInt(r.fd, unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return min(have-r.unconsumed-1, burst)
}

// take moves up to most bytes into the send buffer, and takes them out of the socket with the same call, with what was read
// before. So they are copied once, where a look at them and their consumption are two copies. At least one byte stays that
// was not read yet: it is the guard byte until the next read, which begins with it (the kernel has set SO_PEEK_OFF to 0).
func (r *relay) take(most int) (n int, more bool, err error) {
	space, err := r.in.Reserve(most)
	if err != nil {
		r.fail(err)
		return 0, false, nil
	}
	cut(&space, most)
	if len(space[0]) == 0 {
		return 0, false, nil
	}
	got, errno := receiveBehind(r.fd, r.drop[:r.unconsumed], &space, unix.MSG_DONTWAIT)
	n = max(got-r.unconsumed, 0)
	r.unconsumed = max(r.unconsumed-max(got, 0), 0)
	if err := r.in.Commit(n); err != nil {
		r.fail(err)
		return 0, false, nil
	}
	if errno != 0 && errno != syscall.EINTR {
		if errno == errDescriptors {
			r.k.s.stats.descriptors.Add(1)
		}
		return 0, false, errno
	}
	return n, true, nil
}

// cut shortens pieces to n bytes.
func cut(pieces *[2][]byte, n int) {
	pieces[0] = pieces[0][:min(len(pieces[0]), n)]
	pieces[1] = pieces[1][:min(len(pieces[1]), n-len(pieces[0]))]
}

// consume takes out what was read, but for the guard byte.
func (r *relay) consume() error {
	if r.closed || r.unconsumed <= 1+maxUnconsumed {
		return nil
	}
	n := r.unconsumed - 1
	r.unconsumed, r.deferral.reads = 1, 0
	return r.skip(n)
}

// toProgram moves what was received to the program's receive buffer, as far as that has space. What is left stays in the
// stack's receive buffer, and closes the window.
func (r *relay) toProgram() {
	if r.rings != nil {
		r.ringToProgram()
		return
	}
	if !r.sendLate() {
		return
	}
	moved := 0
	for moved < burst {
		data := r.in.Peek()
		size := len(data[0]) + len(data[1])
		if size == 0 {
			r.awaitSpace(false)
			break
		}
		n, errno := r.deliver(&data, size)
		if errno == syscall.EPIPE {
			r.rejected()
			if r.closed {
				return
			}
			continue
		}
		r.in.Discard(n)
		moved += n
		if n < size {
			r.awaitSpace(true)
			break
		}
	}
	r.deferral.answered = r.deferral.answered || moved > 0
	r.k.s.stats.toProgram.Add(uint64(moved))
	left := r.in.Peek()
	switch {
	case len(left[0]) == 0:
		r.atEnd()
		return
	case !r.full:
		r.watch.Again(stack.FileWritable)
	}
	if r.failed != 0 && !r.rejects {
		r.rejectWrites()
	}
}

// rejectWrites makes the program's writes fail, also those that wait, while it has yet to read what came before the reset:
// it may never do so if it waits to write first. The guard byte stays.
func (r *relay) rejectWrites() {
	r.rejects = true
	_ = unix.Shutdown(r.fd, unix.SHUT_RD) // the program may have closed it
	r.skipAllBut(1)
	r.unconsumed = 1
}

// rejected handles EPIPE: the program has closed its end, which makes unread data a reset, or has only shut down its
// direction. Linux drops what comes then.
func (r *relay) rejected() {
	r.readShut = true
	if r.sends == 0 && hungUp(r.fd) {
		r.file(socket.LoopStack{}, stack.FileHangup)
		r.afterSend((*relay).programFailed) // what it has written and the stack has no space for is lost with the reset
	}
}

// deliver sends data to the program, or drops it where the program has said that it reads no more.
func (r *relay) deliver(data *[2][]byte, size int) (int, syscall.Errno) {
	if r.readShut {
		return size, 0
	}
	n, errno := send(r.fd, data)
	for errno == syscall.EINTR {
		n, errno = send(r.fd, data)
	}
	if errno == syscall.EPIPE {
		return 0, errno
	}
	return max(n, 0), 0 // EAGAIN and ENOBUFS: later
}

// awaitSpace watches for space in the program's receive buffer. Otherwise each read of the program would wake the loop.
func (r *relay) awaitSpace(on bool) {
	if r.full == on && !on {
		return
	}
	r.full = on
	want := stack.FileReadable | stack.FilePeerClosed | stack.FileEdge
	if on {
		want |= stack.FileWritable
	}
	_ = r.watch.Modify(want) // the file is watched
}
