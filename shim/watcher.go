package shim

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher reports events of the sockets that no loop watches: registered ones that are idle, connections whose
// handshake is not complete, and listeners. Their events are few. It is one goroutine, and one epoll instance, which
// the runtime polls as a file.
type watcher struct {
	file *os.File // the epoll instance
	fd   int

	mu    sync.Mutex
	last  uint64
	calls map[uint64]func(ev uint32)
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // or the runtime would read it in a thread
	}
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &watcher{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, calls: map[uint64]func(uint32){}}, nil
}

// add calls f with each change of fd's events, until remove. f must not block. Changes of before are reported, too.
func (w *watcher) add(fd int, want uint32, f func(ev uint32)) (id uint64, err error) {
	w.mu.Lock()
	w.last++
	id = w.last
	w.calls[id] = f
	w.mu.Unlock()
	if err := w.control(unix.EPOLL_CTL_ADD, fd, id, want); err != nil {
		w.remove(fd, id)
		return 0, err
	}
	return id, nil
}

func (w *watcher) control(op, fd int, id uint64, want uint32) error {
	e := unix.EpollEvent{Events: want | unix.EPOLLET, Fd: int32(id), Pad: int32(id >> 32)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.fd, op, fd, &e))
}

// modify changes the events of fd. What it is ready for is reported once more.
func (w *watcher) modify(fd int, id uint64, want uint32) error {
	return w.control(unix.EPOLL_CTL_MOD, fd, id, want)
}

// remove ends the calls, apart from one that is under way.
func (w *watcher) remove(fd int, id uint64) {
	_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil) // add has failed
	w.forget(id)
}

// forget ends the calls of a file that is closed, which the kernel has removed by itself.
func (w *watcher) forget(id uint64) {
	w.mu.Lock()
	delete(w.calls, id)
	w.mu.Unlock()
}

// run calls the functions until close.
func (w *watcher) run() {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	var events [128]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, err = unix.EpollWait(int(fd), events[:], 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil || n < 0 {
			return // closed
		}
		for _, e := range events[:n] {
			id := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			w.mu.Lock()
			f := w.calls[id]
			w.mu.Unlock()
			if f != nil {
				f(e.Events)
			}
		}
	}
}

func (w *watcher) close() error { return w.file.Close() }
