package transport

import (
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Sockets holds listening sockets that another process has opened, for the loops of this one. A socket that is closed loses the
// handshakes in its queue: so a process that replaces another takes each of them, and opens none beside them.
type Sockets struct {
	mu     sync.Mutex
	loops  int // that will listen at each address
	shares map[netip.AddrPort]*share
}

// share is the sockets of an address.
type share struct {
	fds    []int
	takers int // loops that have had their part
}

// NewSockets returns no sockets, for so many loops.
func NewSockets(loops int) *Sockets {
	return &Sockets{loops: loops, shares: map[netip.AddrPort]*share{}}
}

// Add takes a listening socket. After an error fd is the caller's.
func (s *Sockets) Add(fd int) error {
	if getInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN) == 0 {
		return fmt.Errorf("transport: descriptor %d is no listening socket", fd)
	}
	a := localAddr(fd)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shares[a] == nil {
		s.shares[a] = &share{}
	}
	s.shares[a].fds = append(s.shares[a].fds, fd)
	return nil
}

// take returns the sockets of an address that one more loop listens on: several where there are more sockets than loops, none
// where there are fewer. s may be nil.
func (s *Sockets) take(a netip.AddrPort) []int {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shares[a]
	if sh == nil {
		return nil
	}
	others := max(s.loops-sh.takers-1, 0)
	sh.takers++
	n := (len(sh.fds) + others) / (others + 1)
	taken := sh.fds[:n:n]
	sh.fds = sh.fds[n:]
	return taken
}

// Close closes the sockets that no loop has taken: of addresses that the configuration does not have.
func (s *Sockets) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shares {
		for _, fd := range sh.fds {
			closeFD(fd)
		}
	}
	clear(s.shares)
}

// Listening returns duplicates of the loop's listening sockets. It is called on the loop.
func (l *EpollLoop) Listening() (fds []int, err error) {
	for _, li := range l.listeners {
		fd, e := unix.FcntlInt(uintptr(li.fd), unix.F_DUPFD_CLOEXEC, 0)
		if e != nil {
			for _, fd := range fds {
				closeFD(fd)
			}
			return nil, fmt.Errorf("transport: dup: %w", e)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// HoldAccept stops accepting, or goes on. What connects meanwhile waits in the kernel, for this process or another one that has the
// sockets. It is called on the loop.
func (l *EpollLoop) HoldAccept(hold bool) {
	l.held = hold
	for _, li := range l.listeners {
		if hold {
			li.modify(0)
		} else {
			li.modify(unix.EPOLLIN)
		}
	}
}
