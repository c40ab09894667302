package notify

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter reports events of the program's files to goroutines, by one epoll instance.
type waiter struct {
	epoll int

	mu        sync.Mutex
	last      uint64
	watched   map[uint64]*watched
	listeners map[uint64]*watched // by cookie
}

// watched is a file of the program. Without a descriptor here it stays watched until the program closes it.
type watched struct {
	id    uint64
	users int
	event chan struct{} // closed by the next event
}

// maxListeners is the number from which on listeners without a waiting call are forgotten. What is watched of them goes with them.
const maxListeners = 4096

func newWaiter() (*waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &waiter{epoll: fd, watched: map[uint64]*watched{}, listeners: map[uint64]*watched{}}, nil
}

func (w *waiter) close() { unix.Close(w.epoll) }

// run wakes those that wait, until the process ends.
func (w *waiter) run() {
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if err != nil && err != unix.EINTR {
			return
		}
		w.mu.Lock()
		for i := range max(n, 0) {
			if f := w.watched[idOf(&events[i])]; f != nil {
				close(f.event)
				f.event = make(chan struct{})
			}
		}
		w.mu.Unlock()
	}
}

func idOf(ev *unix.EpollEvent) uint64 { return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32 }

// add begins to watch the file of fd. mu is held.
func (w *waiter) add(fd int, events uint32) (*watched, error) {
	w.last++
	f := &watched{id: w.last, event: make(chan struct{})}
	ev := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(uint32(f.id)), Pad: int32(f.id >> 32)}
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev)
	if err == unix.EEXIST { // it was forgotten, and its file has come under the same number
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, fd, &ev)
	}
	if err != nil {
		return nil, err
	}
	w.watched[f.id] = f
	return f, nil
}

// connecting watches the file of fd until stop, which the caller calls before it closes fd.
func (w *waiter) connecting(fd int) (f *watched, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, err = w.add(fd, unix.EPOLLOUT|unix.EPOLLRDHUP); err != nil {
		return nil, nil, err
	}
	return f, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) // it is there
		delete(w.watched, f.id)
	}, nil
}

// accepting watches a listener. The caller may close fd at once, so that the program's close(2) is the last and frees
// the port; it calls stop when it waits no more.
func (w *waiter) accepting(fd int) (f *watched, stop func(), err error) {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f = w.listeners[cookie]
	if f == nil {
		w.forget()
		if f, err = w.add(fd, unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
			return nil, nil, err
		}
		w.listeners[cookie] = f
	}
	f.users++
	return f, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f.users--
	}, nil
}

// forget makes space for another listener. mu is held.
func (w *waiter) forget() {
	if len(w.listeners) < maxListeners {
		return
	}
	for cookie, f := range w.listeners {
		if f.users == 0 {
			delete(w.listeners, cookie)
			delete(w.watched, f.id)
		}
	}
}

// next returns what the next event of f closes.
func (w *waiter) next(f *watched) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f.event
}

// A thread that waits in a call which a supervisor has received is woken by SIGKILL alone. So a call that may take
// long looks from time to time whether a signal waits, which then ends it as it would end the kernel's.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// pause is the waiting of one call.
type pause struct {
	interval time.Duration
	end      time.Time // zero: none
	shared   bool      // a signal that another thread might take was there at the last look
}

func newPause(limit time.Duration) pause {
	p := pause{interval: firstLook}
	if limit > 0 {
		p.end = time.Now().Add(limit)
	}
	return p
}

// wait waits for an event. Errors are errRestart and EINTR for a signal, ESRCH where the thread was killed, and EAGAIN at
// the end of the time.
func (p *pause) wait(c *call, event <-chan struct{}) error {
	for {
		d := p.interval
		if !p.end.IsZero() {
			if d = min(d, time.Until(p.end)); d <= 0 {
				return syscall.EAGAIN
			}
		}
		t := time.NewTimer(d)
		select {
		case <-event:
			t.Stop()
			return nil
		case <-t.C:
		}
		p.interval = min(2*p.interval, lastLook)
		if err := p.look(c); err != nil {
			return err
		}
	}
}

// look reports whether the thread has a signal to handle. Only a signal that no other thread can take lets the kernel decide
// between EINTR and doing the call again: it does neither without one.
func (p *pause) look(c *call) error {
	if !c.s.listener.valid(c.id) {
		return syscall.ESRCH
	}
	st, err := readStatus(c.tid)
	if err != nil {
		return syscall.ESRCH
	}
	mine, shared := st.private&^(st.blocked|st.ignored), st.shared&^(st.blocked|st.ignored)
	switch {
	case mine != 0, shared != 0 && st.threads == 1:
		return errRestart
	case shared != 0 && p.shared: // the others have let it wait
		return syscall.EINTR
	}
	p.shared = shared != 0
	return nil
}
