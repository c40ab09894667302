package collective

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/collective/link"
)

// endSilentRail makes the kernel end a connection whose peer acknowledges nothing for a time (TCP_USER_TIMEOUT, RFC 5482), so that
// a rail that swallows packets fails before the operation does. Other connections end by their own rules.
func endSilentRail(c net.Conn, after time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // without it the time-out of operations ends the connection
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
		})
	}
}

// Rails returns how many connections to a rank have not failed.
func (c *Comm) Rails(rank int) int {
	switch l := c.link(rank).(type) {
	case *link.Striped:
		return l.Alive()
	case *link.Single:
		return 1
	}
	return 0 // itself
}
