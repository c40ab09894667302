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
	waiting []closing
	running bool
}

// closing is a descriptor, and what is called once it is closed.
type closing struct {
	fd   int
	then func()
}

// close closes a descriptor later.
func (c *closer) close(fd int, then func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, closing{fd, then})
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
		unix.Close(next.fd)
		next.then()
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
