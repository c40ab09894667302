package virtio

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checkEventfd rejects a file that is no eventfd: a loop writes to it. It makes the file non-blocking.
func checkEventfd(fd int) error {
	if name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil || name != "anon_inode:[eventfd]" {
		return fmt.Errorf("the file for notifications is no eventfd but %q (%v)", name, err)
	}
	return unix.SetNonblock(fd, true)
}

// newEventfd returns an eventfd.
func newEventfd() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

var one = uint64(1)

// signal notifies the other end by an eventfd. A counter that is full notifies as well.
func signal(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// notifier is a file to sleep on, which stays the same while the eventfds behind it come and go. They are watched by their edges
// (EPOLLET), so none has to be read: a file of another process might not return.
type notifier struct {
	fd    int
	event [2]unix.EpollEvent
}

func (n *notifier) open() (err error) {
	n.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return err
}

func (n *notifier) close() {
	_ = unix.Close(n.fd)
	n.fd = -1
}

// watch watches fd in the place of old; -1 is none.
func (n *notifier) watch(old, fd int) {
	if old >= 0 {
		_ = unix.EpollCtl(n.fd, unix.EPOLL_CTL_DEL, old, nil) // it may have been refused
	}
	if fd >= 0 {
		_ = unix.EpollCtl(n.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
	}
}

// drain reports whether the other end has notified since the last call.
func (n *notifier) drain() bool {
	got, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(n.fd), uintptr(unsafe.Pointer(&n.event)), uintptr(len(n.event)), 0, 0, 0)
	return errno == 0 && got > 0
}
