package shim

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookupTime is how long a host name may take: the library waits for 30 s.
const lookupTime = 20 * time.Second

// maxHostName is the longest name of DNS in text form (RFC 1035 2.3.4).
const maxHostName = 253

// resolve answers RESOLVE. It holds up the channel, of which a process has more, and nothing else.
func (c *channel) resolve(q *request, r *reply) error {
	host := text(q.value)
	switch {
	case c.s.cfg.Lookup == nil:
		return syscall.ENOSYS
	case q.arg != 0 && q.arg != unix.AF_INET && q.arg != unix.AF_INET6:
		return syscall.EAFNOSUPPORT
	case host == "" || len(host) > maxHostName+1: // it may end in a dot
		return syscall.ENOENT
	case !c.user.take(&c.user.lookups, c.s.cfg.Limits.Lookups):
		c.user.limited.Add(1)
		return syscall.EAGAIN
	}
	defer c.user.giveBack(&c.user.lookups)
	ctx, cancel := context.WithTimeout(c.s.ctx, lookupTime)
	defer cancel()
	list, err := c.s.cfg.Lookup(ctx, host)
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsNotFound:
		return syscall.ENOENT
	case err != nil:
		return syscall.EAGAIN
	}
	r.value = appendAddrs(nil, list, int(q.arg))
	return nil
}

// appendAddrs appends the addresses of a family, or of both for 0, as many as a reply has space for.
func appendAddrs(b []byte, list []netip.Addr, family int) []byte {
	for _, a := range list {
		a = a.Unmap()
		if len(b)+addrSize > maxReplyValue {
			break
		}
		if family == 0 || a.Is4() == (family == unix.AF_INET) {
			b = append(b, make([]byte, addrSize)...)
			encodeAddr(b[len(b)-addrSize:], netip.AddrPortFrom(a, 0))
		}
	}
	return b
}
