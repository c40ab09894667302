package stack

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// FileEvents is the set of operations that a file of a loop is ready for. The values are those of epoll(7).
type FileEvents uint32

// The bits of FileEvents.
const (
	FileReadable   FileEvents = unix.EPOLLIN    // data, its end, or a connection to accept
	FileWritable   FileEvents = unix.EPOLLOUT   // there is room, or a connection is established
	FilePriority   FileEvents = unix.EPOLLPRI   // urgent data
	FilePeerClosed FileEvents = unix.EPOLLRDHUP // the peer has shut down its direction; data may be left
	FileFailed     FileEvents = unix.EPOLLERR   // always reported
	FileHangup     FileEvents = unix.EPOLLHUP   // both directions are shut down; always reported
	FileEdge       FileEvents = unix.EPOLLET    // report changes, not states; never in what is reported
)

// ErrNoFiles is the error of Watch on a loop that was closed.
var ErrNoFiles = errors.New("loop: closed")

const (
	// fileCalls bounds the calls for files in one iteration: half of them for what epoll reports, half for Again.
	// Packets wait for these calls.
	fileCalls = 64

	// lookEvery is the interval at which a loop that moves packets looks for events of files. A look in vain takes some 0.2 us.
	lookEvery = 10 * time.Microsecond
)

// files are the files that a loop polls beside its devices: one epoll instance, whose own descriptor is in the poll
// set of the runner. So an iteration costs what is ready, not what exists.
type files struct {
	l      *Loop
	fd     int          // epoll instance
	slots  []*FileWatch // by number; nil is free
	free   []uint32     // numbers
	gen    uint32       // of the newest watch, never 0
	again  []*FileWatch // to call once more, the oldest at head
	head   int
	looked clock.Time
	found  bool // the last look found something: there may be more
	events [fileCalls / 2]unix.EpollEvent
}

// FileWatch is a file that a loop polls. Its methods belong to the holder of the loop.
type FileWatch struct {
	f         *files // nil once removed
	fd        int
	slot, gen uint32
	call      func(ev FileEvents)
	pending   FileEvents // of Again
	queued    bool       // in files.again
}

// Watch makes the loop call f when the file fd is ready: at the end of an iteration's input, before the handler's Tick,
// so that what f causes leaves with the same iteration. The file stays the caller's, who calls Remove before closing it.
// It must not block, and f must move a bounded amount with each call.
//
// The holder of the loop calls Watch: in Handle, Tick, a command or another f, or between Enter and Exit. The error is
// that of epoll_ctl(2): EEXIST for a file that is watched already, EPERM for one that cannot be polled.
func (l *Loop) Watch(fd int, want FileEvents, f func(ev FileEvents)) (*FileWatch, error) {
	if l.files == nil {
		if err := l.openFiles(); err != nil {
			return nil, err
		}
	}
	return l.files.watch(fd, want, f)
}

// openFiles makes the epoll instance. A loop that sleeps does not know of it yet.
func (l *Loop) openFiles() error {
	if l.notifier.closed() {
		return ErrNoFiles
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("loop: epoll_create1: %w", err)
	}
	l.files = &files{l: l, fd: fd}
	l.notifier.wake()
	return nil
}

func (f *files) watch(fd int, want FileEvents, call func(ev FileEvents)) (*FileWatch, error) {
	if f.fd < 0 {
		return nil, ErrNoFiles
	}
	if f.gen++; f.gen == 0 {
		f.gen = 1
	}
	w := &FileWatch{f: f, fd: fd, gen: f.gen, call: call}
	if n := len(f.free); n > 0 {
		w.slot = f.free[n-1]
	} else {
		w.slot = uint32(len(f.slots))
	}
	if err := w.control(unix.EPOLL_CTL_ADD, want); err != nil {
		return nil, err
	}
	if int(w.slot) == len(f.slots) {
		f.slots = append(f.slots, w)
	} else {
		f.free = f.free[:len(f.free)-1]
		f.slots[w.slot] = w
	}
	return w, nil
}

// control is epoll_ctl(2), which does not block.
func (w *FileWatch) control(op int, want FileEvents) error {
	e := unix.EpollEvent{Events: uint32(want), Fd: int32(w.slot), Pad: int32(w.gen)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(w.f.fd), uintptr(op), uintptr(w.fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("loop: epoll_ctl: %w", errno)
	}
	return nil
}

// Modify changes what f is called for. What the file is ready for already is reported once more. The error is ENOENT after
// Remove.
func (w *FileWatch) Modify(want FileEvents) error {
	if w.f == nil {
		return fmt.Errorf("loop: epoll_ctl: %w", unix.ENOENT)
	}
	return w.control(unix.EPOLL_CTL_MOD, want)
}

// Again makes the loop call f in the next iteration with ev, whatever epoll reports: for an f that has not finished with an
// edge-triggered file. The loop does not sleep before that.
func (w *FileWatch) Again(ev FileEvents) {
	if w.f == nil || ev == 0 {
		return
	}
	w.pending |= ev
	if !w.queued {
		w.queued = true
		w.f.queue(w)
	}
}

// queue appends w to those that are called again.
func (f *files) queue(w *FileWatch) {
	if f.head > 0 && len(f.again) == cap(f.again) {
		n := copy(f.again, f.again[f.head:])
		clear(f.again[n:])
		f.again, f.head = f.again[:n], 0
	}
	f.again = append(f.again, w)
	f.l.notifier.wake() // the caller may have entered a sleeping loop
}

// Remove ends the watch: f is not called any more. It may be called twice, and by f.
func (w *FileWatch) Remove() {
	f := w.f
	if f == nil {
		return
	}
	_ = w.control(unix.EPOLL_CTL_DEL, 0) // the file may be closed already
	w.f, w.pending = nil, 0
	f.slots[w.slot] = nil
	f.free = append(f.free, w.slot)
}

// serve calls what is ready, and returns how many calls it made. busy means that the iteration has moved packets.
func (f *files) serve(now clock.Time, busy bool) int {
	n := f.callAgain()
	if !busy || f.found || now.Sub(f.looked) >= lookEvery {
		f.looked = now
		n += f.look()
	}
	if n > 0 {
		f.l.out.RequestTick()
	}
	return n
}

// callAgain calls the files that asked for it before this iteration.
func (f *files) callAgain() (n int) {
	for left := min(len(f.again)-f.head, fileCalls/2); left > 0; left-- {
		w := f.again[f.head]
		f.again[f.head] = nil
		f.head++
		ev := w.pending
		w.queued, w.pending = false, 0
		if w.f != nil && ev != 0 {
			w.call(ev)
			n++
		}
	}
	if f.head == len(f.again) {
		f.again, f.head = f.again[:0], 0
	}
	return n
}

// look calls the files that epoll reports. epoll rotates those that stay ready, so that each comes to its turn. An event
// of a file that an earlier call of this batch has removed is dropped, although its number may be another one's by now.
func (f *files) look() (n int) {
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(f.fd), uintptr(unsafe.Pointer(&f.events)), uintptr(len(f.events)), 0, 0, 0)
	if errno != 0 {
		r = 0 // EINTR: the next look finds it
	}
	f.found = r > 0
	for i := range f.events[:r] {
		e := &f.events[i]
		if w := f.slots[uint32(e.Fd)]; w != nil && w.gen == uint32(e.Pad) {
			w.call(FileEvents(e.Events))
			n++
		}
	}
	return n
}

// waiting reports whether files are to be called again.
func (f *files) waiting() bool { return f != nil && f.head < len(f.again) }

// close frees the epoll instance. No file is called any more.
func (f *files) close() error {
	if f == nil || f.fd < 0 {
		return nil
	}
	fd := f.fd
	f.fd = -1
	return unix.Close(fd)
}
