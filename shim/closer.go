package shim

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// closer closes descriptors that a program has passed, one after the other. The last close of a file may take as long as who
// serves it likes (FUSE, a network file system), and takes a thread meanwhile: each user has one closer.
type closer struct {
	mu      sync.Mutex
	waiting []func()
	running bool
}

// close closes a descriptor later, and calls then.
func (c *closer) close(fd int, then func()) {
	c.do(func() {
		unix.Close(fd)
		then()
	})
}

// do calls a function later, which closes something.
func (c *closer) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, f)
	if !c.running {
		c.running = true
		go c.run()
	}
}

func (c *closer) run() {
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.running, c.waiting = false, nil
			c.mu.Unlock()
			return
		}
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		next()
	}
}

// closeAll closes descriptors and waits for that, unless ctx ends.
func (c *closer) closeAll(ctx context.Context, fds []int) {
	if len(fds) == 0 {
		return
	}
	done := make(chan struct{}, len(fds))
	for _, fd := range fds {
		c.close(fd, func() { done <- struct{}{} })
	}
	for range fds {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// mostMessages is more than may wait in a socket: net.unix.max_dgram_qlen is 512 at most unless it was changed.
const mostMessages = 600

// holdsRights reports whether messages with descriptors wait in a socket that the caller closes next, and takes those before
// them. The other end cannot send any more.
func holdsRights(fd int) bool {
	_ = unix.Shutdown(fd, unix.SHUT_RD)
	var first [1]byte
	for empty := 0; empty < mostMessages; { // an empty message looks like the end
		n, _, flags, _, err := unix.Recvmsg(fd, first[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != nil || flags&unix.MSG_CTRUNC != 0 {
			return err == nil
		}
		if n == 0 {
			empty++
		}
		_, _, _ = unix.Recvfrom(fd, first[:], unix.MSG_DONTWAIT)
	}
	return false
}
