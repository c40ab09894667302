package testnet

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process, which is alive, has a network with the same prefix.
var ErrInUse = errors.New("test network is in use")

// errTwice says that nobody but this process itself is in the way: waiting would not help.
var errTwice = errors.New("this process has a test network with the same prefix: close it first")

// lock makes the prefix this process's own, until Close of what it returns or the process's death.
// It is a Unix socket with an abstract name (unix(7)): nothing of it can be left behind, and it
// tells who has it. Namespaces of a prefix that nobody has were left by a killed run.
func lock(prefix string) (net.Listener, error) {
	name := "@millrace-testnet-" + prefix
	l, err := net.Listen("unix", name)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	pid := owner(name)
	if pid == os.Getpid() {
		return nil, fmt.Errorf("%w: %s", errTwice, prefix)
	}
	return nil, fmt.Errorf("%w: namespaces %s-* belong to process %d", ErrInUse, prefix, pid)
}

// owner returns the process that listens on a socket, 0 where it is gone by now.
func owner(name string) (pid int) {
	c, err := net.Dial("unix", name)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
