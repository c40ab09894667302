package afpacket

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
)

// A ring says nothing when its interface goes down or away: an idle queue asks, but not more often
// than this.
const linkEvery = 10 * time.Millisecond

// link is what a queue knows of its interface.
type link struct {
	name  string
	index int
	err   error      // what the last question brought: nil, ENETDOWN or ENODEV
	next  clock.Time // when to ask again
}

// check returns ENETDOWN or ENODEV while the interface is down or gone.
func (l *link) check(fd int, now clock.Time) error {
	if now < l.next && l.next < now.Add(2*linkEvery) {
		return l.err
	}
	l.next = now.Add(linkEvery)
	if l.err = state(fd, l.name, l.index); l.err == nil {
		// The socket keeps the ENETDOWN of a link that has been down until somebody asks for it;
		// with it poll(2) would return at once for ever.
		_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	return l.err
}

// state asks the kernel, in the namespace of the socket. An interface of the same name with another
// index is another interface.
func state(fd int, name string, index int) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, r); err != nil || int(r.Uint32()) != index {
		return unix.ENODEV
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return unix.ENODEV
	}
	if r.Uint16()&unix.IFF_UP == 0 {
		return unix.ENETDOWN
	}
	return nil
}
