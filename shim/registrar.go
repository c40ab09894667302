package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// registrar connects sockets of programs to the node: it has a listener for each type, in a directory that no other user
// can enter.
type registrar struct {
	dir  string
	held *os.File // dir, locked: nothing removes it

	mu        sync.Mutex // one registration at a time, so that what is accepted is what was connected
	listeners map[int]int
}

// optPassRights is SO_PASSRIGHTS of Linux 6.16, which x/sys does not name yet. A test has another number, which the
// kernel does not know, as an older one.
var optPassRights = 83

// refuseRights makes the kernel refuse descriptors that a program sends through its data socket: the last close of one may
// block. It reports whether the kernel does.
func refuseRights(end int) bool {
	return unix.SetsockoptInt(end, unix.SOL_SOCKET, optPassRights, 0) == nil
}

// closeEnd closes the node's end of a socket. Where the kernel has taken descriptors, some may be closed with it, which may
// take as long as a stranger likes: they count for the user until then.
func (k *sock) closeEnd(end int) {
	if k.refuses {
		unix.Close(end)
		k.s.giveFile(k.user)
		return
	}
	k.user.closer.close(end, func() { k.s.giveFile(k.user) })
}

func newRegistrar() (*registrar, error) {
	dir, held, err := makeFolder(os.TempDir())
	if err != nil {
		return nil, err
	}
	r := &registrar{dir: dir, held: held, listeners: map[int]int{}}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		if err := r.listen(kind); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *registrar) path(kind int) string { return filepath.Join(r.dir, fmt.Sprint(kind)) }

func (r *registrar) listen(kind int) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	_ = refuseRights(fd) // sockets that are accepted inherit it
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: r.path(kind)}); err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		unix.Close(fd)
		return os.NewSyscallError("bind", err)
	}
	r.listeners[kind] = fd
	return nil
}

// connect makes the other end of fd, a socket of a program, and returns it. It does not block: the listener's queue is
// empty before each call, whatever mode fd is in. EISCONN, EINVAL and the like say that fd is connected already.
func (r *registrar) connect(fd, kind int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.listeners[kind]; !ok { // drop was called
		if err := r.listen(kind); err != nil {
			return -1, syscall.ENFILE
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: r.path(kind)}); err != nil {
		return -1, err
	}
	end, _, err := unix.Accept4(r.listeners[kind], unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		// EMFILE. What stays in the queue would be the next registration's: a new listener has an empty one.
		r.drop(kind)
		return -1, syscall.ENFILE
	}
	return end, nil
}

// drop ends a listener, and resets what is in its queue. The next registration makes a new one.
func (r *registrar) drop(kind int) {
	unix.Close(r.listeners[kind])
	delete(r.listeners, kind)
	_ = os.Remove(r.path(kind)) // or bind says so
}

func (r *registrar) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fd := range r.listeners {
		unix.Close(fd)
	}
	clear(r.listeners)
	return errors.Join(os.RemoveAll(r.dir), r.held.Close())
}
