package notify

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// call is a system call of the program that waits for its answer.
type call struct {
	notification
	s *Supervisor
}

// outcome says how a call ends. The zero value is success with the result 0.
type outcome struct {
	val  int64
	err  error // syscall.Errno
	kind outcomeKind
}

type outcomeKind uint8

const (
	answered outcomeKind = iota // with val or err
	passOn                      // the kernel does the call
	done                        // it has been answered
)

// kernels leaves a call to the kernel. Decisions about rights never do: what the program changes meanwhile is its own loss.
var kernels = outcome{kind: passOn}

func failed(err error) outcome { return outcome{err: err} }

// errRestart makes the kernel do the call again after the handler of a signal with SA_RESTART, and otherwise fail with
// EINTR (ERESTARTSYS of the kernel). The program never sees it if a signal waits.
const errRestart = syscall.Errno(512)

// handlers do the calls of the filter.
var handlers = map[int32]func(c *call) outcome{
	unix.SYS_SOCKET: (*call).socket, unix.SYS_BIND: (*call).bind, unix.SYS_CONNECT: (*call).connect, unix.SYS_LISTEN: (*call).listen,
	unix.SYS_ACCEPT: (*call).accept, unix.SYS_ACCEPT4: (*call).accept,
	unix.SYS_GETSOCKNAME: (*call).getsockname, unix.SYS_GETPEERNAME: (*call).getpeername,
	unix.SYS_SENDTO: (*call).sendto, unix.SYS_SENDMSG: (*call).sendmsg, unix.SYS_SENDMMSG: (*call).sendmmsg,
	unix.SYS_RECVFROM: (*call).recvfrom, unix.SYS_RECVMSG: (*call).recvmsg, unix.SYS_RECVMMSG: (*call).recvmmsg,
	unix.SYS_SETSOCKOPT: (*call).setsockopt, unix.SYS_GETSOCKOPT: (*call).getsockopt,
}

// serve answers a call, or leaves that to a goroutine.
func (c *call) serve() {
	h := handlers[c.notification.call]
	if h == nil || c.arch != archs[runtime.GOARCH] {
		c.answer(failed(syscall.ENOSYS)) // the filter chooses no such call
		return
	}
	c.answer(h(c))
}

func (c *call) answer(o outcome) {
	r := response{id: c.id, val: o.val}
	switch {
	case o.kind == done:
		return
	case o.kind == passOn:
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	case o.err != nil:
		errno, ok := o.err.(syscall.Errno)
		if !ok || errno == 0 {
			errno = syscall.EIO
		}
		r.errno = -int32(errno)
	}
	_ = c.s.listener.send(&r) // it fails if the thread was killed
}

// give answers with a descriptor for the file of fd, and closes fd.
func (c *call) give(fd int, cloexec bool) outcome {
	err := c.s.listener.sendFile(c.id, fd, cloexec)
	unix.Close(fd)
	if err != nil {
		return failed(err) // EMFILE, or the thread was killed
	}
	return outcome{kind: done}
}

// pidfd returns a descriptor of the thread, or of its process before Linux 6.9.
func (c *call) pidfd() (int, error) {
	fd, err := unix.PidfdOpen(int(c.tid), unix.PIDFD_THREAD)
	if err != unix.EINVAL {
		return fd, err
	}
	st, err := readStatus(c.tid)
	if err != nil {
		return -1, syscall.ESRCH
	}
	return unix.PidfdOpen(int(st.process), 0)
}

// file returns a descriptor for the file of the program's descriptor n, which the caller closes before it answers: the
// program's own close(2) is then the last. EBADF is that the program has none.
func (c *call) file(n int32) (int, error) {
	p, err := c.pidfd()
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	fd, err := unix.PidfdGetfd(p, int(n), 0)
	if err == nil && !c.s.listener.valid(c.id) { // another thread may have its number
		unix.Close(fd)
		return -1, syscall.ESRCH
	}
	return fd, err
}

// read copies memory of the program. EFAULT is that it has none there.
func (c *call) read(at uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMReadv(int(c.tid), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	return memoryError(n == len(b), err)
}

// write copies b into memory of the program, if its thread still waits.
func (c *call) write(at uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if !c.s.listener.valid(c.id) {
		return syscall.ESRCH
	}
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMWritev(int(c.tid), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	return memoryError(n == len(b), err)
}

func memoryError(whole bool, err error) error {
	if err == unix.EPERM || err == unix.ESRCH || err == nil && whole {
		return err
	}
	return syscall.EFAULT
}
