package notify

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reports has what has been reported: each line comes once.
type reports struct {
	mu      sync.Mutex
	done    map[string]bool
	writing sync.WaitGroup
}

// finish waits for lines that are being written, since the process ends then. It does not wait long, as a pipe that nobody reads takes
// none.
func (r *reports) finish() {
	written := make(chan struct{})
	go func() {
		r.writing.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(finishTime):
	}
}

// finishTime bounds finish.
var finishTime = 2 * time.Second

func (r *reports) first(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[text] {
		return false
	}
	if r.done == nil {
		r.done = map[string]bool{}
	}
	r.done[text] = true
	return true
}

// report writes a line to the program's standard error: the Supervisor has none, as one that it held open would be
// waited for by whoever reads it.
func (c *call) report(text string) {
	if !c.s.reported.first(text) {
		return
	}
	fd, err := c.file(int32(unix.Stderr))
	if err != nil {
		return // there is no other place for it
	}
	c.s.reported.writing.Go(func() { // it may be a pipe that is full
		_, _ = unix.Write(fd, []byte("millrace: "+text+"\n"))
		unix.Close(fd)
	})
}
