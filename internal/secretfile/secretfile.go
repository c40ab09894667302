// Package secretfile reads and writes files that have keys.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrPermissions reports that a file can be read by everybody.
var ErrPermissions = errors.New("everybody may read this secret")

// maxSize bounds a file, in bytes.
const maxSize = 1 << 20

// Read returns the content of a file of at most 1 MiB. One that others than its owner and group may
// read is refused.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return nil, fmt.Errorf("%w (mode %#o): chmod o= %s", ErrPermissions, mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(b) > maxSize {
		err = fmt.Errorf("more than %d bytes", maxSize)
	}
	return b, err
}

// Write writes a file that only its owner may read, whole or not at all: readers see the old content
// or the new, and so does a machine that lost power.
func Write(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
