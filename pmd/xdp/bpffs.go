package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked reports that another process is changing XDP programs and does not come to an end.
var ErrLocked = errors.New("another process holds the lock of XDP programs")

// lockWait is the time that a change waits for that of another process. xdp-loader holds the lock for milliseconds.
const lockWait = 20 * time.Second

// FS is a BPF file system, where programs, links and maps are pinned.
type FS struct {
	root string

	// Mounted is true where OpenFS has mounted the file system.
	Mounted bool
	// Private is true where it is visible in the mount namespace of this process alone, as under `ip netns exec`: pins, and
	// with them what they hold, then end with the namespace.
	Private bool
}

// DefaultFS returns where the BPF file system is: the value of LIBXDP_BPFFS, which libxdp reads too, or /sys/fs/bpf.
func DefaultFS() string {
	if dir := os.Getenv("LIBXDP_BPFFS"); dir != "" {
		return dir
	}
	return "/sys/fs/bpf"
}

// OpenFS returns the BPF file system at a folder, which must exist. It mounts one there where there is none.
func OpenFS(root string) (*FS, error) {
	f := &FS{root: filepath.Clean(root)}
	var st unix.Statfs_t
	if err := unix.Statfs(f.root, &st); err != nil {
		return nil, fmt.Errorf("BPF file system: %s: %w", f.root, err)
	}
	if st.Type != unix.BPF_FS_MAGIC {
		if err := unix.Mount("bpf", f.root, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
			return nil, fmt.Errorf("mount the BPF file system at %s: %w", f.root, err)
		}
		f.Mounted = true
	}
	own, err1 := os.Readlink("/proc/self/ns/mnt")
	first, err2 := os.Readlink("/proc/1/ns/mnt")
	f.Private = err1 == nil && err2 == nil && own != first
	return f, nil
}

// Root returns the folder of the file system.
func (f *FS) Root() string { return f.root }

func (f *FS) dispatchers() string { return filepath.Join(f.root, "xdp") }
func (f *FS) records() string     { return filepath.Join(f.root, "millrace", "dispatchers") }

// folder returns the folder of the pins of a dispatcher.
func (f *FS) folder(ifindex int, id uint32) string {
	return filepath.Join(f.dispatchers(), fmt.Sprintf("dispatch-%d-%d", ifindex, id))
}

// record returns the folder that says in which network namespace a dispatcher is or was.
func (f *FS) record(cookie uint64, ifindex int, id uint32) string {
	return filepath.Join(f.records(), fmt.Sprintf("%x-%d-%d", cookie, ifindex, id))
}

// Lock takes the lock of the protocol, flock(2) on the folder of the dispatchers, and returns what releases it. The lock
// ends with the process.
func (f *FS) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(f.dispatchers(), 0o700); err != nil {
		return nil, err
	}
	return LockFolder(f.dispatchers())
}

// LockFolder takes an exclusive flock(2) on a folder, for which it waits 20 s at most, and returns what releases it.
func LockFolder(path string) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			break
		}
	}
	defer dir.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w (%s)%s", ErrLocked, path, lockHolder(dir))
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// lockHolder returns ", held by NAME (pid N)" from proc_locks(5), or "".
func lockHolder(dir *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) != nil {
		return ""
	}
	text, _ := os.ReadFile("/proc/locks")
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == want {
			name, _ := os.ReadFile("/proc/" + fields[4] + "/comm")
			return fmt.Sprintf(", held by %s (pid %s)", strings.TrimSpace(string(name)), fields[4])
		}
	}
	return ""
}

// removePins removes a folder of pins. What is not there is removed already.
func removePins(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(err, os.Remove(dir))
}
