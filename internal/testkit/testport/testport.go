// Package testport holds ports of the loopback for servers that a test starts later, by themselves or as programs.
package testport

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Hold returns an address of 127.0.0.1 with a port that is free for TCP and UDP. A TCP socket that does not listen has the port
// until the test ends: servers with SO_REUSEADDR or SO_REUSEPORT bind it all the same, and no other test, also of another process,
// is given it meanwhile. A port that is only closed again may be given to two servers with SO_REUSEPORT, and the kernel
// spreads connections over both.
func Hold(t testing.TB) netip.AddrPort {
	t.Helper()
	for range 100 {
		fd, a, err := bind()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.ListenPacket("udp", a.String()); err == nil {
			_ = c.Close()
			t.Cleanup(func() { _ = unix.Close(fd) })
			return a
		}
		_ = unix.Close(fd)
	}
	t.Fatal("no port is free for TCP and UDP")
	return netip.AddrPort{}
}

// bind binds a TCP socket to a port that the kernel chooses.
func bind() (fd int, a netip.AddrPort, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, a, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	for _, option := range []int{unix.SO_REUSEPORT, unix.SO_REUSEADDR} {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return -1, a, err
		}
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, a, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return -1, a, err
	}
	in := name.(*unix.SockaddrInet4)
	return fd, netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)), nil
}
