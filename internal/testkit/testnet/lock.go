package testnet

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInUse reports that another process, which is alive, has a network with the same prefix.
var ErrInUse = errors.New("test network is in use")

// current holds the network of each prefix that this process has.
var current = struct {
	sync.Mutex
	nets map[string]*Net
}{nets: map[string]*Net{}}

// claim makes the prefix n's. A network of this process that had it is replaced.
func (n *Net) claim() (err error) {
	current.Lock()
	defer current.Unlock()
	if before := current.nets[n.prefix]; before != nil {
		n.lock, before.lock = before.lock, nil
	} else if n.lock, err = lock(n.prefix); err != nil {
		return err
	}
	current.nets[n.prefix] = n
	return nil
}

// yield gives the prefix up, if it still is n's.
func (n *Net) yield() error {
	current.Lock()
	defer current.Unlock()
	if n.lock == nil {
		return nil
	}
	delete(current.nets, n.prefix)
	l := n.lock
	n.lock = nil
	return l.Close()
}

// lock makes the prefix this process's own, until Close of what it returns or the process's death.
// It is a Unix socket with an abstract name (unix(7)): nothing of it can be left behind, and it
// tells who has it. Namespaces of a prefix that nobody has were left by a killed run.
func lock(prefix string) (net.Listener, error) {
	name := "@millrace-testnet-" + prefix
	l, err := net.Listen("unix", name)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	return nil, fmt.Errorf("%w: namespaces %s-* belong to process %d", ErrInUse, prefix, owner(name))
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
