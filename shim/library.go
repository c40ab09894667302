package shim

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/packed"
)

//go:embed preload/build
var built embed.FS

// ErrNoLibrary is that the program was built without the library.
var ErrNoLibrary = errors.New("shim: this build has no preloaded library: a C compiler was missing (install gcc or clang, and run `make build`)")

// Library returns the preloaded library, an ELF file.
func Library() ([]byte, error) {
	b, err := packed.Read(built, "preload/build/libmillrace.so")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoLibrary
	}
	return b, err
}

// Unpack writes the library into a folder that only this user can write to, and returns its path. Programs load it from there,
// also after they have changed their user; so others may read it. Its name has its hash: a file that is there
// already is the same.
func Unpack() (string, error) {
	lib, err := Library()
	if err != nil {
		return "", err
	}
	dir, err := ownFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("libmillrace-%x.so", sha256.Sum256(lib)))
	return path, place(path, lib)
}

// UnpackFolder writes files into a folder of that name, which only this user can write to, and returns its path. The name has
// to change with the files.
func UnpackFolder(name string, files map[string][]byte) (string, error) {
	dir, err := ownFolder()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for name, b := range files {
		if err := place(filepath.Join(dir, name), b); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// place writes a library, unless it is there already. Programs that have loaded another one keep it.
func place(path string, lib []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, lib) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(lib)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// tempFolder is os.TempDir, but where the loader would take that for several names: it splits LD_PRELOAD at colons and spaces.
func tempFolder() string {
	if dir := os.TempDir(); !strings.ContainsAny(dir, ": \t\n") {
		return dir
	}
	return "/tmp"
}

// ownFolder returns a folder of this user. It refuses one that somebody else has made.
func ownFolder() (string, error) {
	dir := filepath.Join(tempFolder(), fmt.Sprintf("millrace-%d", os.Geteuid()))
	if os.Geteuid() == 0 {
		dir = "/run/millrace"
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of this user alone: remove it, or set TMPDIR", dir)
	}
	return dir, nil
}
