package notify

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is a struct seccomp_notif.
type notification struct {
	id    uint64
	tid   uint32 // in the numbers of this process
	flags uint32
	call  int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// readable reports whether the Supervisor may read memory and descriptors of the thread. It may not where the process is not dumpable, as
// that of a file which its user cannot read (mode 711), or where Yama permits ancestors alone, but for root.
func (n *notification) readable() bool {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, err := unix.ProcessVMReadv(int(n.tid), local, []unix.RemoteIovec{{Len: 1}}, 0) // at 0, where nothing is: EFAULT
	return err != unix.EPERM
}

// response is a struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// addition is a struct seccomp_notif_addfd.
type addition struct {
	id       uint64
	flags    uint32
	fd       uint32
	newFD    uint32
	newFlags uint32
}

// listener is the descriptor of a filter.
type listener int

func (l listener) ioctl(request uintptr, arg unsafe.Pointer) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), request, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

// receive waits for a call. ENOENT is that its thread has been killed meanwhile.
func (l listener) receive(n *notification) error {
	*n = notification{} // the kernel refuses another
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n))
	return err
}

// valid reports whether the thread still waits in the call: only then its number is its own.
func (l listener) valid(id uint64) bool {
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id))
	return err == nil
}

// send answers a call. An error is that the thread has been killed.
func (l listener) send(r *response) error {
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r))
	return err
}

// add gives the process of the thread a descriptor, and leaves the call waiting.
func (l listener) add(a *addition) error {
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(a))
	return err
}

// sendFile gives the thread a descriptor of the file of fd, which is the result of its call. No signal may meet it: the kernel
// would take the descriptor back, and let the call return 0 all the same (Linux 6.18).
func (l listener) sendFile(id uint64, fd int, cloexec bool) error {
	a := addition{id: id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, fd: uint32(fd)}
	if cloexec {
		a.newFlags = unix.O_CLOEXEC
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &allSignals, &old); err != nil {
		return err
	}
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) // it was valid
	return err
}

var allSignals = func() (s unix.Sigset_t) {
	for i := range s.Val {
		s.Val[i] = ^s.Val[i]
	}
	return s
}()

// wakeOnSameCPU makes the kernel run the other side of a call at once where it has run last (Linux 6.6). Older ones
// do not know it.
func (l listener) wakeOnSameCPU() {
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(l), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
}
