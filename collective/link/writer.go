package link

import (
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// writer writes messages to a connection, in order. A message that the socket takes at once is written by the sender;
// what is left is written by a goroutine, which runs only while there is something.
type writer struct {
	conn net.Conn
	raw  syscall.RawConn // nil: only the goroutine writes

	mu      sync.Mutex
	queue   []item
	running bool
	idle    chan struct{} // is closed when running ends
	err     error

	buf     [HeaderSize + 4096]byte // of a small message
	iov     [][]byte
	written int
	failed  error
	try     func(fd uintptr) bool // writes iov, without waiting
}

// item is a message that waits.
type item struct {
	parts [][]byte
	done  *Pending // nil: the bytes are a copy, and no sender waits
}

func (w *writer) init(conn net.Conn) {
	w.conn = conn
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			w.raw = raw
		}
	}
	w.try = func(fd uintptr) bool {
		w.written, w.failed = unix.Writev(int(fd), w.iov)
		return true
	}
}

// send writes a message, or queues it.
func (w *writer) send(h *Header, parts [][]byte, p *Pending) {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		p.fail(w.err)
		return
	}
	head := w.buf[:HeaderSize]
	h.Put(head)
	w.iov = append(w.iov[:0], head)
	if n <= len(w.buf)-HeaderSize { // one piece of memory for the kernel to copy
		at := HeaderSize
		for _, part := range parts {
			at += copy(w.buf[at:], part)
		}
		w.iov[0] = w.buf[:at]
	} else {
		w.iov = append(w.iov, parts...)
	}
	if n <= inline {
		if w.small(); w.err != nil {
			p.fail(w.err)
		}
		return
	}
	it := item{parts: append([][]byte{append([]byte(nil), head...)}, parts...), done: p}
	p.Add()
	w.enqueue(it)
}

// small writes iov, or queues a copy of what the socket does not take.
func (w *writer) small() {
	n := 0
	if w.raw != nil && !w.running {
		w.written, w.failed = 0, nil
		if err := w.raw.Write(w.try); err != nil {
			w.err = err
			return
		}
		if w.failed != nil && w.failed != unix.EAGAIN && w.failed != unix.EINTR {
			w.err = w.failed
			return
		}
		n = max(w.written, 0)
	}
	var rest []byte
	for _, b := range w.iov {
		k := min(n, len(b))
		n -= k
		rest = append(rest, b[k:]...)
	}
	if len(rest) > 0 {
		w.enqueue(item{parts: [][]byte{rest}})
	}
}

func (w *writer) enqueue(it item) {
	w.queue = append(w.queue, it)
	if !w.running {
		w.running, w.idle = true, make(chan struct{})
		go w.run()
	}
}

// run writes what is queued.
func (w *writer) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 {
		it := w.queue[0]
		w.queue[0] = item{}
		w.queue = w.queue[1:]
		err := w.err
		if err == nil {
			w.mu.Unlock()
			buffers := net.Buffers(it.parts)
			_, err = buffers.WriteTo(w.conn)
			w.mu.Lock()
			if err != nil && w.err == nil {
				w.err = err
			}
		}
		if it.done != nil {
			it.done.Done(err)
		}
	}
	w.queue, w.running = nil, false
	close(w.idle)
}

// flush waits until nothing is queued.
func (w *writer) flush(most time.Duration) {
	w.mu.Lock()
	running, idle := w.running, w.idle
	w.mu.Unlock()
	if !running {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// close makes all sends fail. The connection is closed by the caller, which ends a write that is under way.
func (w *writer) close(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
}
