package transport

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of kernel sockets. None of them blocks, so all are raw, see EpollLoop.

// newSocket returns a non-blocking TCP socket for addresses of the version of a, or -1.
func newSocket(a netip.Addr) (int, unix.Errno) {
	family := unix.AF_INET6
	switch {
	case !a.IsValid():
		return -1, unix.EINVAL
	case a.Is4():
		family = unix.AF_INET
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), 0
}

func closeFD(fd int) {
	if fd >= 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	}
}

func setInt(fd, level, option, value int) unix.Errno {
	v := int32(value)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&v)), 4, 0)
	return errno
}

// socketOption is one of a socket with its value.
type socketOption struct{ level, name, value int }

// streamOptions are those of all connections. Accepted ones inherit them from the listener. The urgent byte stays in the
// stream (RFC 6093 4): what a proxy leaves out, someone behind it may have counted.
var streamOptions = []socketOption{{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_OOBINLINE, 1}}

func setAll(fd int, options []socketOption) unix.Errno {
	for _, o := range options {
		if errno := setInt(fd, o.level, o.name, o.value); errno != 0 {
			return errno
		}
	}
	return 0
}

// getInt returns the value of a socket option, or 0.
func getInt(fd, level, option int) int {
	var v int32
	size := uint32(4)
	_, _, _ = unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	return int(v)
}

// unread returns how many bytes of the input of a socket wait, or 0.
func unread(fd int) int {
	var n int32
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}

// localAddr returns the local address of a socket, the zero value if it has none.
func localAddr(fd int) netip.AddrPort {
	var sa unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(sa))
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return netip.AddrPort{}
	}
	return decodeAddr(&sa)
}

// unmap makes an IPv4-mapped address one of IPv4.
func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// encodeAddr writes a as the kernel has it and returns its length. sockaddr_in has 16 bytes: family, port, address.
// sockaddr_in6 has 28: family, port, flow label, address, scope. Ports and addresses are in network byte order.
func encodeAddr(sa *unix.RawSockaddrInet6, a netip.AddrPort) (int, unix.Errno) {
	*sa = unix.RawSockaddrInet6{}
	setPort(&sa.Port, a.Port())
	if a.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		v4.Family, v4.Addr = unix.AF_INET, a.Addr().As4()
		return unix.SizeofSockaddrInet4, 0
	}
	sa.Family, sa.Addr = unix.AF_INET6, a.Addr().As16()
	if zone := a.Addr().Zone(); zone != "" {
		iface, err := net.InterfaceByName(zone)
		if err != nil {
			return 0, unix.ENODEV
		}
		sa.Scope_id = uint32(iface.Index)
	}
	return unix.SizeofSockaddrInet6, 0
}

// decodeAddr is the inverse of encodeAddr, without zones.
func decodeAddr(sa *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), port)
}

func setPort(p *uint16, port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], port)
}
