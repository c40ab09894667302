package testnet

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// ErrInUse says that a process that is alive has a network with the same prefix.
var ErrInUse = errors.New("test network is in use")

// lock makes the prefix this process's own, until Close of what it returns or the process's death.
// It is a Unix socket with an abstract name (unix(7)): nothing of it can be left behind, and it
// tells who has it. Namespaces of a prefix that nobody has were left by a killed run.
func lock(prefix string) (net.Listener, error) {
	name := "@millrace-testnet-" + prefix
	l, err := net.Listen("unix", name)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: namespaces %s-* belong to %s", ErrInUse, prefix, owner(name))
	}
	return l, err
}

// owner names the process that listens on a socket.
func owner(name string) string {
	const unknown = "another process"
	c, err := net.Dial("unix", name)
	if err != nil {
		return unknown
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return unknown
	}
	who := unknown
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = fmt.Sprintf("process %d", cred.Pid)
		}
	})
	return who
}
