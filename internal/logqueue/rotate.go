package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Rotation bounds a file. One that would grow beyond Size is renamed to its path with ".1" behind it, the one that has that name to
// ".2", and so on; of these Keep are there.
type Rotation struct {
	Size int64 // bytes; 0: the file is not bounded
	Keep int   // at least 1
}

// rotating is the state of a File's rotation.
type rotating struct {
	Rotation
	path   string
	size   int64       // of the file
	report func(error) // see Rotate
}

// Rotate bounds the file from then on. report is called, from the goroutine that writes, with the errors of rotations: lines go on
// in the same file then, and the next attempt is after as many bytes again. Only regular files are rotated.
func (f *File) Rotate(r Rotation, report func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn.Rotation, f.turn.report = r, report
}

// Rotation returns the bound of the file.
func (f *File) Rotation() Rotation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turn.Rotation
}

// fitting returns how many bytes of p, in whole lines, the file may have before it is rotated; all where it is not bounded. A line
// that is longer than the bound has a file of its own.
func (f *File) fitting(p []byte) int {
	room := f.turn.Size - f.turn.size
	if f.turn.Size == 0 || !f.cuts || int64(len(p)) <= room {
		return len(p)
	}
	whole := bytes.LastIndexByte(p[:max(room, 0)], '\n') + 1
	if whole > 0 || f.turn.size > 0 {
		return whole
	}
	if first := bytes.IndexByte(p, '\n') + 1; first > 0 {
		return first
	}
	return len(p)
}

// rotate puts an empty file in the place of the one that is full.
func (f *File) rotate() {
	t := &f.turn
	t.size = 0 // also after an error: the next attempt is after as many bytes again
	err := f.shift()
	if err == nil {
		err = f.replace()
	}
	if err != nil && t.report != nil {
		t.report(fmt.Errorf("rotate %s: %w", t.path, err))
	}
}

// shift renames the files. One that something else has renamed already is not there to be renamed: another may have its name.
func (f *File) shift() error {
	t := &f.turn
	at, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if own, err := f.to.Stat(); err != nil || !os.SameFile(own, at) {
		return err
	}
	name := func(n int) string {
		if n == 0 {
			return t.path
		}
		return fmt.Sprintf("%s.%d", t.path, n)
	}
	for n := t.Keep - 1; n >= 0; n-- {
		if err := os.Rename(name(n), name(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// replace opens the file of the path. With an error lines go on in the one that was renamed.
func (f *File) replace() error {
	next, err := Open(f.turn.path)
	if err != nil {
		return err
	}
	f.forget()
	old := f.to
	f.to, f.was, f.torn, f.turn.size = next.to, next.was, false, next.turn.size
	return old.Close()
}
