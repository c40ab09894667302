package shim

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is the kind of a program's descriptor.
type Kind uint8

// The kinds of sockets that the node serves. NotServed is the zero Kind: the kernel serves the socket alone.
const (
	NotServed Kind = iota
	Stream
	Datagram
)

// Mark defines what a socket of a program stands for.
type Mark struct {
	Kind      Kind
	V6        bool
	Connected bool // or, of a Stream, on its way
}

// marks are the meanings of SO_PRIORITY values of an AF_UNIX socket.
var marks = [...]Mark{
	markTCP4Connected: {Kind: Stream, Connected: true}, markTCP6Connected: {Kind: Stream, V6: true, Connected: true},
	markUDP4Connected: {Kind: Datagram, Connected: true}, markUDP6Connected: {Kind: Datagram, V6: true, Connected: true},
	markInet: {Kind: Stream}, markInet6: {Kind: Stream, V6: true},
}

// ReadMark reads the mark of a socket.
func ReadMark(fd int) Mark {
	priority, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY)
	if err != nil || priority <= 0 || priority >= len(marks) {
		return Mark{}
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		return Mark{}
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return Mark{}
	}
	m := marks[priority]
	if kind == unix.SOCK_SEQPACKET {
		m.Kind = Datagram
	}
	return m
}

// Form is the layout of the datagrams that a supervisor's program gets.
type Form struct {
	Headed  bool // each has a Header
	Control bool // the program asks for control messages, which a Header has
	Joins   bool // what is sent may join others: More comes before
}

// ReadForm returns the form of a socket of datagrams.
func ReadForm(fd int) Form {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
	if err != nil || v&formMask != formValue {
		return Form{}
	}
	return Form{Headed: v&formHeaded != 0, Control: v&formControl != 0, Joins: v&formJoins != 0}
}

// NewSocket returns the descriptor that stands for a socket of the stack: the program's socket(2). flags are
// SOCK_NONBLOCK and SOCK_CLOEXEC. The caller closes it.
func NewSocket(kind Kind, v6 bool, flags int) (int, error) {
	base, mark := unix.SOCK_STREAM, markInet
	if kind == Datagram {
		base = unix.SOCK_SEQPACKET
	}
	if v6 {
		mark = markInet6
	}
	fd, err := unix.Socket(unix.AF_UNIX, base|flags, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, mark); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// OwnName returns the addresses in the name that the node has given a socket; those of a listener have no remote one.
// False: it has no such name.
func OwnName(fd int) (local, remote netip.AddrPort, ok bool) { return nameOf(unix.SYS_GETSOCKNAME, fd) }

// OwnInstance is OwnName with the number of the run of the node that has given the name.
func OwnInstance(fd int) (local, remote netip.AddrPort, instance uint32, ok bool) {
	n, ok := readName(unix.SYS_GETSOCKNAME, fd)
	return n.local, n.remote, n.process, ok
}

// PeerName is OwnName of the socket's other end: local is the address of the peer in the connection.
func PeerName(fd int) (local, remote netip.AddrPort, ok bool) {
	return nameOf(unix.SYS_GETPEERNAME, fd)
}

func nameOf(call uintptr, fd int) (local, remote netip.AddrPort, ok bool) {
	n, ok := readName(call, fd)
	return n.local, n.remote, ok
}

// readName makes the call itself: package unix ends abstract names at a zero byte.
func readName(call uintptr, fd int) (n name, ok bool) {
	var un unix.RawSockaddrUnix
	size := uint32(unsafe.Sizeof(un))
	_, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&un)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 || un.Family != unix.AF_UNIX || int(size) != int(unsafe.Offsetof(un.Path))+1+nameSize || un.Path[0] != 0 {
		return n, false
	}
	n, err := decodeName(unsafe.Slice((*byte)(unsafe.Pointer(&un.Path[1])), nameSize))
	return n, err == nil
}

// AcceptedSize is the size of the record of an accepted connection, in bytes.
const AcceptedSize = acceptedSize

// DecodeAccepted reads the record of an accepted connection, of AcceptedSize bytes.
func DecodeAccepted(b []byte) (local, remote netip.AddrPort, err error) {
	if len(b) != acceptedSize {
		return local, remote, errProtocol
	}
	if local, _, err = decodeAddr(b); err == nil {
		remote, _, err = decodeAddr(b[acceptedRemoteAt:])
	}
	return local, remote, err
}
