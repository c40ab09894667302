package xdp

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// remember records that a dispatcher is, or is about to be, on an interface of this network namespace.
func (f *FS) remember(ifindex int, id uint32) error {
	cookie, err := Namespace()
	if err != nil {
		return err
	}
	return os.MkdirAll(f.record(cookie, ifindex, id), 0o700)
}

// unpin removes the pins of a dispatcher and then its record; id 0 is none.
func (f *FS) unpin(ifindex int, id uint32) error {
	if id == 0 {
		return nil
	}
	if err := removePins(f.folder(ifindex, id)); err != nil {
		return fmt.Errorf("unpin XDP dispatcher %d: %w", id, err)
	}
	step("unpinned")
	cookie, err := Namespace()
	if err != nil {
		return err
	}
	return removePins(f.record(cookie, ifindex, id))
}

// sweep removes what killed processes left: the pins of dispatchers of this network namespace that are on no interface. The
// caller holds the lock, so that no process is about to attach one of them.
func (f *FS) sweep() error {
	cookie, err := Namespace()
	if err != nil {
		return err
	}
	records, err := os.ReadDir(f.records())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range records {
		var c uint64
		var ifindex int
		var id uint32
		if n, _ := fmt.Sscanf(e.Name(), "%x-%d-%d", &c, &ifindex, &id); n != 3 || c != cookie {
			continue
		}
		now, _, err := attached(ifindex)
		if gone := errors.As(err, new(netlink.LinkNotFoundError)); err != nil && !gone {
			return err
		} else if !gone && now == id {
			continue
		}
		if err := f.unpin(ifindex, id); err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes what killed processes have left of dispatchers of this network namespace. Update does so by itself.
func (f *FS) Sweep() error {
	unlock, err := f.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f.sweep()
}

// Namespace returns the cookie of the calling thread's network namespace: unlike an inode it is never used again.
func Namespace() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil { // before Linux 5.14
		var st unix.Stat_t
		err = unix.Stat("/proc/thread-self/ns/net", &st)
		cookie = st.Ino
	}
	return cookie, err
}
