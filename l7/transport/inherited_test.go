package transport

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// inherit returns loops that share what the listeners of others have.
func inherit(t *testing.T, from []*EpollLoop, loops int) []*EpollLoop {
	t.Helper()
	s := NewSockets(loops)
	for _, l := range from {
		fds, err := l.Listening()
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if err := s.Add(fd); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []*EpollLoop
	for range loops {
		l := newLoop(t)
		l.Inherited = s
		all = append(all, l)
	}
	return all
}

// TestListenersTakeInheritedSockets gives the sockets of some loops to fewer and to more: each is taken once, and a loop without one
// opens its own.
func TestListenersTakeInheritedSockets(t *testing.T) {
	for _, c := range []struct{ from, to, opened int }{{1, 1, 0}, {3, 2, 0}, {3, 1, 0}, {5, 3, 0}, {2, 3, 1}, {1, 4, 3}} {
		var from []*EpollLoop
		at := netip.MustParseAddrPort("127.0.0.1:0")
		for range c.from {
			l := newLoop(t)
			li, err := l.Listen(at, nil)
			if err != nil {
				t.Fatal(err)
			}
			at = li.Addr()
			from = append(from, l)
		}
		inodes, taken, opened := map[uint64]bool{}, 0, 0
		for _, l := range from {
			inodes[inode(t, l.listeners[0].fd)] = true
		}
		for _, l := range inherit(t, from, c.to) {
			li, err := l.Listen(at, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, li := range l.listeners {
				if i := inode(t, li.fd); inodes[i] {
					delete(inodes, i)
					taken++
				} else {
					opened++
				}
			}
			if li.Close(); len(l.listeners) != 0 {
				t.Errorf("%+v: %d sockets are left after Close", c, len(l.listeners))
			}
		}
		if taken != c.from || opened != c.opened {
			t.Errorf("%+v: %d were taken and %d opened", c, taken, opened)
		}
	}
}

// inode returns the number of a socket.
func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestHeldConnectionsWaitForTheOtherProcess holds a listener whose socket another loop has: what connects is the other's, also when the
// first closes, and no event of the closed socket comes to the first.
func TestHeldConnectionsWaitForTheOtherProcess(t *testing.T) {
	old := newLoop(t)
	accepted := map[string]int{}
	count := func(who string) func(Conn) Handler {
		return func(c Conn) Handler { accepted[who]++; return handlerFunc(func(Conn, Events) {}) }
	}
	li := listenLocal(t, old, count("old"))
	successor := inherit(t, []*EpollLoop{old}, 1)[0]

	old.HoldAccept(true)
	dialLocal(t, li.addr)
	for range 3 {
		old.Do(func() {})
		old.iterate()
	}
	if accepted["old"] != 0 {
		t.Error("a loop that is held has accepted")
	}
	old.HoldAccept(false)
	iterateUntil(t, old, "the connection", func() bool { return accepted["old"] == 1 })

	old.HoldAccept(true)
	dialLocal(t, li.addr)
	if _, err := successor.Listen(li.addr, count("new")); err != nil {
		t.Fatal(err)
	}
	li.Close()
	iterateUntil(t, successor, "the connection", func() bool { return accepted["new"] == 1 })
	if accepted["old"] != 1 {
		t.Errorf("accepted %v", accepted)
	}
}

// TestAClosedSocketHasNoEvents closes a socket that another loop has as well: the kernel reports it to the first as long as it is
// registered.
func TestAClosedSocketHasNoEvents(t *testing.T) {
	old := newLoop(t)
	li := listenLocal(t, old, nil)
	other := inherit(t, []*EpollLoop{old}, 1)[0]
	if _, err := other.Listen(li.addr, nil); err != nil {
		t.Fatal(err)
	}
	fd := li.fd
	li.Close()
	dialLocal(t, li.addr)
	n, errno := old.poll(unix.Syscall6, 50)
	for _, e := range old.events[:n] {
		if int(e.Fd) == fd {
			t.Error("an event of a socket that was closed")
		}
	}
	if errno != 0 {
		t.Error(errno)
	}
}

// TestSocketsOfNoListenerAreClosed takes nothing of an address: nothing listens there when Close has closed it.
func TestSocketsOfNoListenerAreClosed(t *testing.T) {
	old := newLoop(t)
	li := listenLocal(t, old, nil)
	l := inherit(t, []*EpollLoop{old}, 1)[0]
	li.Close()
	l.Inherited.Close()
	if c, err := net.Dial("tcp", li.addr.String()); err == nil {
		c.Close()
		t.Error("something listens")
	}
	s := NewSockets(1)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := s.Add(fd); err == nil {
		t.Error("a socket that does not listen was taken")
	}
}
