package netpeer

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() { openers = append(openers, opener{"kernel", openKernel}) }

// kernel is the kernel's stack.
type kernel struct {
	addr netip.Addr
	cc   string
}

func openKernel(c Config) (Net, error) { return &kernel{c.Addr.Addr(), c.CC}, nil }

func (k *kernel) control(_, _ string, c syscall.RawConn) error {
	if k.cc == "" {
		return nil
	}
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, k.cc)
	}); e != nil {
		return e
	}
	return err
}

func (k *kernel) Listen(port uint16) (net.Listener, error) {
	l := net.ListenConfig{Control: k.control}
	return l.Listen(context.Background(), "tcp", netip.AddrPortFrom(k.addr, port).String())
}

func (k *kernel) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Control: k.control}
	return d.DialContext(ctx, "tcp", to.String())
}

func (k *kernel) Close() error { return nil }
