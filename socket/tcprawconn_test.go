package socket

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// TestOptionsByFileDescriptor sets options as programs over the kernel do.
func TestOptionsByFileDescriptor(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	if err := ipv4.NewConn(c).SetTOS(0x28); err != nil {
		t.Error(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := func(level, name, v int) (read int) {
		t.Helper()
		err := raw.Control(func(fd uintptr) {
			read, _ = unix.GetsockoptInt(int(fd), level, name)
			if err := unix.SetsockoptInt(int(fd), level, name, v); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		return read
	}
	if set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 0) != 1 || set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 0) != 0 {
		t.Error("getsockopt does not return what the connection has")
	}
	set(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30000)
	set(unix.SOL_SOCKET, unix.SO_RCVBUF, 100000)
	if n := set(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77); n != 15 {
		t.Errorf("TCP_KEEPIDLE is %d, want 15 as in package net", n)
	}
	set(unix.IPPROTO_IP, unix.IP_TTL, 9)
	o := options(t, c)
	if o.TOS != 0x28 || o.NoDelay || o.UserTimeout != 30*time.Second || o.ReceiveBuffer != 100000 || o.TTL != 9 ||
		o.KeepAlive.Idle != 77*time.Second || o.SendBuffer != 0 {
		t.Errorf("%+v", o)
	}
	set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	if o := options(t, c); o.KeepAlive.Idle != 0 || o.TOS != 0x28 {
		t.Errorf("%+v", o)
	}
	if err := raw.Read(func(uintptr) bool { return true }); !errors.Is(err, syscall.ENOTSUP) {
		t.Error(err)
	}
	if err := raw.Write(func(uintptr) bool { return true }); !errors.Is(err, syscall.ENOTSUP) {
		t.Error(err)
	}
	if _, ok := any(c).(interface{ File() }); ok {
		t.Error("a connection has a method File, which no descriptor can serve")
	}
	_ = c.Close()
	if _, err := c.SyscallConn(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := raw.Control(func(uintptr) { t.Error("called for a closed connection") }); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestListenerOptionsByFileDescriptor sets an option of the connections that will be accepted.
func TestListenerOptionsByFileDescriptor(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	l, err := x.b.ListenWith(t.Context(), &ListenConfig{}, "tcp6", ":80")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 0x48); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := x.a.Dial("tcp", net.JoinHostPort(addrB6, "80"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := ipv6.NewConn(c).SetTrafficClass(0x20); err != nil {
		t.Error(err)
	}
	if o := options(t, c.(*TCPConn)); o.TOS != 0x20 {
		t.Errorf("traffic class %#x", o.TOS)
	}
	s, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if o := options(t, s); o.TOS != 0x48 {
		t.Errorf("an accepted connection has the traffic class %#x", o.TOS)
	}
}
