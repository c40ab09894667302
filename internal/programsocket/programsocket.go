// Package programsocket has what control sockets of unmodified programs have in common: any user may open them, and the
// node decides by the process at the other end, as the kernel knows it.
package programsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Listen makes a control socket, and its folder. It replaces a socket that a killed process has left. The error where another node
// listens names the programs that it serves.
func Listen(path, programs string) (*net.UnixListener, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if c, err := net.DialUnix("unixpacket", nil, addr); err == nil {
		c.Close()
		return nil, fmt.Errorf("a node serves %s at %s already (give this one another path)", programs, path)
	} else if info, e := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && e == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		return nil, err
	}
	if err = os.Chmod(path, 0o666); err != nil { // opening it permits nothing yet
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// acceptPause is the time that a control socket waits when the process has no descriptors left.
const acceptPause = 50 * time.Millisecond

// Accept calls f with each connection, which f owns, until the listener is closed.
func Accept(l *net.UnixListener, f func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // EMFILE: something has to be closed first
			time.Sleep(acceptPause)
			continue
		}
		f(c)
	}
}

// Credentials returns the process that connected, and its user and group (SO_PEERCRED).
func Credentials(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return nil, e
	}
	return cred, err
}

// Groups returns the group of the process that connected, and its supplementary ones (SO_PEERGROUPS).
func Groups(conn *net.UnixConn) []uint32 {
	cred, err := Credentials(conn)
	if err != nil {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	groups := make([]uint32, 1<<16) // NGROUPS_MAX
	size := uint32(len(groups) * 4)
	_ = raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			size = 0
		}
	})
	return append(groups[:size/4], cred.Gid)
}
