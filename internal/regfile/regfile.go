// Package regfile opens files that a daemon reads while it serves. The open of a FIFO waits for a writer,
// that of a device may wait for anything: a reload that is given one must fail and not hang, so only regular
// files are read.
package regfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is wrapped by the errors of what is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file, or a link to one, for reading. It never waits. Errors are a *fs.PathError.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) { // a socket, which cannot be opened
		return nil, notRegular(path, fs.ModeSocket)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // of what is open: the path may lead elsewhere by now
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path, info.Mode().Type())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns the first limit bytes of a regular file.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func notRegular(path string, mode fs.FileMode) error {
	kind := "something else"
	switch {
	case mode&fs.ModeDir != 0:
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but %s", ErrNotRegular, kind)}
}
