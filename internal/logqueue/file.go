package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// File is a file of lines that is appended to. It ends with a whole line whenever nothing is being written: the part of a line that
// a full disk has taken is taken back. Another file can take its place, after a rotation.
type File struct {
	mu   sync.Mutex
	to   *os.File
	was  *os.File // to read how what was in the file ends, until the first write; nil where it cannot be read
	torn bool     // what is in the file ends within a line
	cuts bool     // the file can be cut: it is a regular one, and this is who writes it
	ends bool     // Close closes it
	turn rotating
}

// Open opens a file to append to; "-" is the standard output. A line that a program before has not completed is ended by the
// first write: what follows does not join it. It is not looked for before, as the File whose place this one takes may be in the
// middle of a line.
func Open(path string) (*File, error) {
	if path == "-" {
		return &File{to: os.Stdout}, nil
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NONBLOCK, 0o640)
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is a pipe that nothing reads: start its reader first: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	st, err := to.Stat()
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	f := &File{to: to, ends: true, cuts: st.Mode().IsRegular(), turn: rotating{path: path, size: st.Size()}}
	if f.cuts {
		f.was, _ = os.Open(path) // one that cannot be read is taken for whole
	}
	return f, nil
}

// endsWithLine reports whether what is in the file ends with a newline, or is nothing.
func endsWithLine(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return true
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err != nil || last[0] == '\n'
}

// Write implements io.Writer. With an error n ends with a line, where the file can be cut.
func (f *File) Write(p []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) && err == nil {
		part := f.fitting(p[n:])
		if part == 0 {
			f.rotate()
			continue
		}
		var written int
		written, err = f.write(p[n : n+part])
		n += written
	}
	return n, err
}

// write writes to the file as it is now.
func (f *File) write(p []byte) (n int, err error) {
	defer func() { f.turn.size += int64(n) }()
	if f.was != nil {
		f.torn = !endsWithLine(f.was)
		f.forget()
	}
	if f.torn {
		if _, err := f.to.WriteString("\n"); err != nil {
			return 0, err
		}
		f.torn = false
	}
	n, err = f.to.Write(p)
	if err == nil || !f.cuts {
		return n, err
	}
	return f.cut(p[:n]), err
}

// cut takes the part of a line that was written last back, and returns how much of p is left in the file.
func (f *File) cut(p []byte) int {
	whole := bytes.LastIndexByte(p, '\n') + 1
	if whole == len(p) {
		return whole
	}
	if st, err := f.to.Stat(); err != nil || f.to.Truncate(st.Size()-int64(len(p)-whole)) != nil {
		f.torn = true
	}
	return whole
}

// Swap has next take the place of the file, which is closed. next is not used otherwise from then on.
func (f *File) Swap(next *File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := File{to: f.to, was: f.was, ends: f.ends}
	f.to, f.was, f.torn, f.cuts, f.ends, f.turn = next.to, next.was, next.torn, next.cuts, next.ends, next.turn
	return old.Close()
}

// forget closes what is read of the file.
func (f *File) forget() {
	if f.was != nil {
		_ = f.was.Close() // it was read
		f.was = nil
	}
}

// Close closes the file; the standard output stays open.
func (f *File) Close() error {
	f.forget()
	if !f.ends {
		return nil
	}
	return f.to.Close()
}

var _ io.WriteCloser = (*File)(nil)
