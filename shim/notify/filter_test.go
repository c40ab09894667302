package notify

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// seccompData is a struct seccomp_data as package bpf reads it: its machine has the byte order of the network.
func seccompData(arch uint32, number int, args ...uint64) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(number))
	b = binary.BigEndian.AppendUint32(b, arch)
	b = append(b, make([]byte, 8)...)
	for i := range 6 {
		var v uint64
		if i < len(args) {
			v = args[i]
		}
		b = binary.BigEndian.AppendUint32(b, uint32(v)) // the lower half comes first
		b = binary.BigEndian.AppendUint32(b, uint32(v>>32))
	}
	return b
}

// TestConfinement: no family that reaches a network, by no ABI.
func TestConfinement(t *testing.T) {
	vm, err := bpf.NewVM(confinement())
	if err != nil {
		t.Fatal(err)
	}
	const kernel, errno = uint32(unix.SECCOMP_RET_ALLOW), uint32(unix.SECCOMP_RET_ERRNO)
	own := archs[runtime.GOARCH]
	refused := errno | uint32(unix.EACCES)
	for _, tc := range []struct {
		what   string
		arch   uint32
		number int
		arg    uint64
		want   uint32
	}{
		{"AF_INET", own, unix.SYS_SOCKET, unix.AF_INET, refused},
		{"AF_INET, dirty upper half", own, unix.SYS_SOCKET, 1<<32 | unix.AF_INET, refused},
		{"AF_INET6", own, unix.SYS_SOCKET, unix.AF_INET6, refused},
		{"AF_PACKET", own, unix.SYS_SOCKET, unix.AF_PACKET, refused},
		{"AF_XDP", own, unix.SYS_SOCKET, unix.AF_XDP, refused},
		{"AF_KEY", own, unix.SYS_SOCKET, unix.AF_KEY, refused},
		{"AF_UNIX", own, unix.SYS_SOCKET, unix.AF_UNIX, kernel},
		{"AF_NETLINK", own, unix.SYS_SOCKET, unix.AF_NETLINK, kernel},
		{"another call", own, unix.SYS_CONNECT, unix.AF_INET, kernel},
		{"io_uring_setup", own, unix.SYS_IO_URING_SETUP, 0, errno | uint32(unix.ENOSYS)},
		{"another ABI: its socket", 0x40000003, int(foreignSockets[runtime.GOARCH][0]), unix.AF_UNIX, errno | uint32(unix.EAFNOSUPPORT)},
		{"another ABI: others", 0x40000003, unix.SYS_BIND, 0, kernel},
	} {
		if got, err := vm.Run(seccompData(tc.arch, tc.number, tc.arg)); err != nil || uint32(got) != tc.want {
			t.Errorf("%s: %#x, want %#x (%v)", tc.what, uint32(got), tc.want, err)
		}
	}
}

// TestFilter chooses calls by their numbers and arguments.
func TestFilter(t *testing.T) {
	vm, err := bpf.NewVM(filter())
	if err != nil {
		t.Fatal(err)
	}
	const (
		kernel     = unix.SECCOMP_RET_ALLOW
		supervisor = unix.SECCOMP_RET_USER_NOTIF
		errno      = unix.SECCOMP_RET_ERRNO
	)
	own := archs[runtime.GOARCH]
	for _, tc := range []struct {
		what   string
		arch   uint32
		number int
		args   []uint64
		want   uint32
	}{
		{"read", own, unix.SYS_READ, []uint64{3}, kernel},
		{"socket", own, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, supervisor},
		{"IPv6", own, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_RAW}, supervisor},
		{"dirty upper half", own, unix.SYS_SOCKET, []uint64{1<<32 | unix.AF_INET, unix.SOCK_RAW}, supervisor},
		{"AF_UNIX", own, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, kernel},
		{"AF_NETLINK", own, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, kernel},
		{"socketpair", own, unix.SYS_SOCKETPAIR, []uint64{unix.AF_INET}, kernel},
		{"bind", own, unix.SYS_BIND, nil, supervisor},
		{"connect", own, unix.SYS_CONNECT, nil, supervisor},
		{"listen", own, unix.SYS_LISTEN, nil, supervisor},
		{"accept", own, unix.SYS_ACCEPT, nil, supervisor},
		{"accept4", own, unix.SYS_ACCEPT4, nil, supervisor},
		{"getsockname", own, unix.SYS_GETSOCKNAME, nil, supervisor},
		{"getpeername", own, unix.SYS_GETPEERNAME, nil, supervisor},
		{"SO_ERROR", own, unix.SYS_GETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ERROR}, supervisor},
		{"SO_PRIORITY, the mark", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_PRIORITY}, supervisor},
		{"SO_RCVTIMEO", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVTIMEO_OLD}, kernel},
		{"SO_SNDTIMEO", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDTIMEO_NEW}, kernel},
		{"SO_PEERCRED", own, unix.SYS_GETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_PEERCRED}, kernel},
		{"IP", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_TOS}, supervisor},
		{"IPv6", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY}, supervisor},
		{"TCP", own, unix.SYS_GETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.SO_PEERCRED}, supervisor},
		{"UDP", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_UDP}, supervisor},
		{"netlink", own, unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_NETLINK}, kernel},
		{"send", own, unix.SYS_SENDTO, []uint64{3, 1, 1, 0, 0, 16}, kernel},
		{"sendto", own, unix.SYS_SENDTO, []uint64{3, 1, 1, 0, 0x1000, 16}, supervisor},
		{"sendto, an address with a lower half of 0", own, unix.SYS_SENDTO, []uint64{3, 1, 1, 0, 1 << 32, 16}, supervisor},
		{"recvfrom", own, unix.SYS_RECVFROM, []uint64{3, 1, 1, 0, 1, 1}, supervisor},
		{"recv", own, unix.SYS_RECVFROM, []uint64{3, 1, 1, 0, 0, 1}, kernel},
		{"sendmsg", own, unix.SYS_SENDMSG, []uint64{3, 1}, supervisor},
		{"sendmsg of the filter's descriptor", own, unix.SYS_SENDMSG, []uint64{3, 1, Unsupervised}, kernel},
		{"recvmsg", own, unix.SYS_RECVMSG, []uint64{3, 1}, supervisor},
		{"sendmmsg", own, unix.SYS_SENDMMSG, []uint64{3, 1}, supervisor},
		{"recvmmsg", own, unix.SYS_RECVMMSG, []uint64{3, 1}, supervisor},
		{"io_uring_setup", own, unix.SYS_IO_URING_SETUP, nil, errno | uint32(unix.ENOSYS)},
		{"another ABI: its socket", 0x40000003, int(foreignSockets[runtime.GOARCH][0]), nil, errno | uint32(unix.EAFNOSUPPORT)},
		{"another ABI: others", 0x40000003, unix.SYS_BIND, nil, kernel},
	} {
		got, err := vm.Run(seccompData(tc.arch, tc.number, tc.args...))
		if err != nil || uint32(got) != tc.want {
			t.Errorf("%s: %#x, want %#x (%v)", tc.what, uint32(got), tc.want, err)
		}
	}
	if runtime.GOARCH == "amd64" {
		if got, err := vm.Run(seccompData(own, x32|unix.SYS_SOCKET, unix.AF_INET)); err != nil || uint32(got) != errno|uint32(unix.ENOSYS) {
			t.Errorf("x32: %#x, %v", got, err)
		}
	}
}
