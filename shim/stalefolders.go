package shim

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// folderPrefix begins the names of registrars' folders in the temporary folder.
const folderPrefix = "millrace-shim-"

// makeFolder makes the folder of a registrar, and removes those that killed nodes of this user have left. The file that it returns holds it
// until the process ends.
func makeFolder(in string) (dir string, held *os.File, err error) {
	removeStale(in)
	if dir, err = os.MkdirTemp(in, folderPrefix); err != nil { // mode 0700
		return "", nil, err
	}
	if held, err = os.Open(dir); err == nil {
		err = lockFolder(int(held.Fd()))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, held, nil
}

// lockFolder locks a folder. It waits: another node that starts at the same time locks each folder for as long as it looks whether sockets are in it.
func lockFolder(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// removeStale removes folders of this user with sockets of a registrar that no process holds. One without sockets may be in the making.
func removeStale(in string) {
	paths, _ := filepath.Glob(filepath.Join(in, folderPrefix+"*")) // the pattern is right
	bound, _ := os.ReadFile("/proc/net/unix")                      // nodes of before did not hold their folder
	for _, dir := range paths {
		if _, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(dir), folderPrefix), 10, 64); err != nil {
			continue
		}
		if !bytes.Contains(bound, []byte(" "+dir+"/")) {
			removeUnheld(dir)
		}
	}
}

// removeUnheld removes a folder if it is this user's alone, nothing but sockets is in it, and no process holds it.
func removeUnheld(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm() != 0o700 || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	entries, err := f.ReadDir(-1)
	if err != nil || len(entries) == 0 {
		return
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			return
		}
	}
	for _, e := range entries {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
	_ = os.Remove(dir)
}
