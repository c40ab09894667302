package inspection

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/logqueue"
)

// output is a file that a goroutine of its own writes from a bounded queue.
type output struct {
	path  string
	queue *logqueue.Writer
	file  *file
}

// file can be opened again under its name, after a rotation. It counts what could not be written.
type file struct {
	mu     sync.Mutex
	to     io.WriteCloser
	failed atomic.Uint64
}

// kept is a file that stays open: the standard output.
type kept struct{ io.Writer }

func (kept) Close() error { return nil }

// openFile opens a file to append to; "-" is the standard output.
func openFile(path string) (io.WriteCloser, error) {
	if path == "-" {
		return kept{os.Stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NONBLOCK, 0o640) // a pipe without a reader would wait for one
	switch {
	case errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("%s is a pipe that nothing reads: start its reader first: %w", path, err)
	case err != nil:
		return nil, err
	}
	return f, nil
}

// openLines is openFile for a file of lines, which stay whole on a full disk.
func openLines(path string) (io.WriteCloser, error) {
	f, err := logqueue.Open(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// newOutput returns the output to an open file, of which at most limit bytes wait.
func newOutput(path string, to io.WriteCloser, limit int) *output {
	o := &output{path: path, file: &file{to: to}}
	o.queue = logqueue.New(o.file, limit, nil)
	return o
}

// Write implements io.Writer. logqueue drops the error, so that it is counted here.
func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.to.Write(p)
	if err != nil {
		f.failed.Add(1)
	}
	return n, err
}

// swap replaces the file, and closes the one before.
func (f *file) swap(to io.WriteCloser) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.to
	f.to = to
	return old.Close()
}

// closeLimit bounds how long the end waits for a slow disk.
const closeLimit = 2 * time.Second

// errUnwritten reports that a file did not take all in time.
var errUnwritten = errors.New("not all alerts were written")

func (o *output) close() error {
	var err error
	if !o.queue.Close(closeLimit) {
		err = errUnwritten
	}
	return errors.Join(err, o.file.swap(kept{io.Discard}))
}

// counts returns how many records did not fit the queue, and how many writes failed.
func (o *output) counts() (dropped, failed uint64) {
	if o == nil {
		return 0, 0
	}
	return o.queue.Dropped(), o.file.failed.Load()
}
