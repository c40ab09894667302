package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
)

// Version is the version of the protocol. Both sides compare it with each request and reply.
const Version = 5

// Marks of sockets, which are the SO_PRIORITY of the AF_UNIX socket.
const (
	markTCP4Connected = 1
	markTCP6Connected = 2
	markUDP4Connected = 3
	markInet          = 4
	markUDP6Connected = 5
	markInet6         = 6
)

// Options that a program has set before the first request of a socket, in SO_INCOMING_CPU of the AF_UNIX socket.
const (
	earlyMask      = 0x7fff0000
	earlyOptions   = 0x4d520000 // the upper half of the value
	earlyNoDelay   = 0          // where the two bits of an option are: it was set; to what
	earlyKeepAlive = 2
)

// op says what a request asks.
type op uint16

const (
	opHello op = iota + 1
	opBind
	opConnect
	opListen
	opNames
	opSetOption
	opGetOption
	opResolve
	opMove
	opInterfaces
	opRenew
	opHeaders
	opErrors
	opPending
	opMore
	opRelease
)

// Bits of MORE's arg, behind the size of the datagram.
const (
	moreSize     = 0xffff
	morePiece    = 0x10000
	moreNameless = 0x20000
	moreFailed   = 0x40000
)

// maxDatagram bounds the bytes of a program in one datagram (RFC 768, over IPv4).
const maxDatagram = 65507

// Sizes of protocol.h, in bytes. TestLayout compares them, and the offsets below, with what a C compiler says.
const (
	addrSize         = 24
	requestSize      = 320
	replySize        = 320
	acceptedSize     = 64
	datagramSize     = 64
	nameSize         = 72
	maxRequestValue  = 264
	maxReplyValue    = 256
	requestProcessAt = 48
	requestValueAt   = 56
	replyValueAt     = 64
	datagramTOSAt    = 52
	datagramFlagsAt  = 54
	datagramTimeAt   = 56
	datagramLostAt   = addrSize + 4 // the scope of local, which is an address of this host
	nameLocalAt      = 24
	nameRemoteAt     = 48
	nameMagic        = "millrace"
	acceptedRemoteAt = addrSize
	acceptedMemoryAt = 2 * addrSize
	memorySize       = 8
)

// datagramFlags say which control messages the program has asked for: the library makes them of the header.
type datagramFlags uint16

const (
	wantPktInfo  datagramFlags = 1 << iota // IP_PKTINFO, IPV6_RECVPKTINFO
	wantTOS                                // IP_RECVTOS, IPV6_RECVTCLASS
	wantHopLimit                           // IP_RECVTTL, IPV6_RECVHOPLIMIT
	wantMapped                             // IPV6_RECVPKTINFO of a datagram of IPv4: its address is mapped
	wantTime                               // SO_TIMESTAMP
	wantTimeNS                             // SO_TIMESTAMPNS
	wantStamping                           // SO_TIMESTAMPING
	wantOriginal                           // IP_RECVORIGDSTADDR, IPV6_RECVORIGDSTADDR

	wantOverflow datagramFlags = 1 << 12 // SO_RXQ_OVFL: of6 of a time, which has no other form for IPv6
)

const (
	wantsOfFamily = wantPktInfo | wantTOS | wantHopLimit | wantOriginal
	wantsOfAll    = wantTime | wantTimeNS | wantStamping | wantOverflow
)

// of6 is the flag of an option of IPv6, beside that of IPv4: a socket may have both.
func of6(f datagramFlags) datagramFlags { return f << 8 }

// with returns the flags of a datagram of IPv4 or IPv6, of those of both. An IPv6 socket has the options of IPv4 for datagrams of
// IPv4, but for the destination, of which it has both forms (ipv6(7)).
func (f datagramFlags) with(v4 bool) datagramFlags {
	all := f & wantsOfAll
	own := f&wantsOfFamily | all
	switch {
	case !v4:
		return f>>8&wantsOfFamily | all
	case f&of6(wantPktInfo) != 0:
		return own | wantMapped
	}
	return own
}

// frontSeccomp is the name of a HELLO of a supervisor (package notify). That of the library is 0.
const frontSeccomp = 1

// order is the host's: both ends run on one machine.
var order = binary.NativeEndian

// errProtocol reports that what came on a channel is no request of this version: it is closed.
var errProtocol = errors.New("shim: no request of this version of the protocol")

// request is a struct shim_request.
type request struct {
	op    op
	id    uint32
	addr  netip.AddrPort // invalid: family 0
	scope uint32
	level int32
	name  int32
	arg   int32
	value []byte // of the buffer that was decoded

	process uint32 // thread that it is for, 0 is one of the sender's
}

// decodeRequest reads a request, which borrows b. An address of an unknown family is EAFNOSUPPORT; everything else
// that is wrong with a request means that the sender speaks another language.
func decodeRequest(b []byte) (r request, err error) {
	if len(b) != requestSize {
		return r, fmt.Errorf("%w: %d bytes", errProtocol, len(b))
	}
	r = request{
		op: op(order.Uint16(b)), id: order.Uint32(b[4:]),
		level: int32(order.Uint32(b[32:])), name: int32(order.Uint32(b[36:])), arg: int32(order.Uint32(b[40:])),
		process: order.Uint32(b[requestProcessAt:]),
	}
	n := order.Uint32(b[44:])
	if v := order.Uint16(b[2:]); v != Version || r.op < opHello || r.op > opRelease || n > maxRequestValue {
		return r, fmt.Errorf("%w: version %d, operation %d, %d bytes of value", errProtocol, v, r.op, n)
	}
	r.value = b[requestValueAt : requestValueAt+int(n)]
	if r.op == opGetOption { // len is the most that the program takes
		r.value = b[requestValueAt:]
		r.arg = int32(n)
	}
	r.addr, r.scope, err = decodeAddr(b[8:])
	return r, err
}

// encode writes the request, for programs that speak the protocol without the library.
func (r *request) encode(b []byte) {
	clear(b[:requestSize])
	order.PutUint16(b, uint16(r.op))
	order.PutUint16(b[2:], Version)
	order.PutUint32(b[4:], r.id)
	encodeAddr(b[8:], r.addr)
	order.PutUint32(b[12:], r.scope)
	order.PutUint32(b[32:], uint32(r.level))
	order.PutUint32(b[36:], uint32(r.name))
	order.PutUint32(b[40:], uint32(r.arg))
	order.PutUint32(b[requestProcessAt:], r.process)
	n := copy(b[requestValueAt:requestSize], r.value)
	if r.op == opGetOption {
		n = int(r.arg)
	}
	order.PutUint32(b[44:], uint32(n))
}

// reply is a struct shim_reply.
type reply struct {
	op            op
	id            uint32
	errno         syscall.Errno
	local, remote netip.AddrPort
	value         []byte // at most maxReplyValue bytes
	memory        memory
}

func (r *reply) encode(b []byte) {
	clear(b[:replySize])
	order.PutUint16(b, uint16(r.op))
	order.PutUint16(b[2:], Version)
	order.PutUint32(b[4:], r.id)
	order.PutUint32(b[8:], uint32(r.errno))
	encodeAddr(b[16:], r.local)
	encodeAddr(b[40:], r.remote)
	value := r.value
	if r.memory.fd != 0 {
		value = r.memory.describe()
	}
	order.PutUint32(b[12:], uint32(copy(b[replyValueAt:replySize], value)))
}

// memory is memory of rings for a program: its descriptor goes with a message, and is closed then; 0 is none. ends is what the
// program cannot learn from the memory itself, which another program may write to.
type memory struct {
	fd   int
	ends ring.Ends
}

// describe is a struct shim_memory.
func (m *memory) describe() []byte {
	return order.AppendUint32(order.AppendUint32(nil, ring.DefaultSize), uint32(m.ends))
}

// close closes the descriptor, if there is one.
func (m *memory) close() {
	if m.fd != 0 {
		unix.Close(m.fd)
	}
	m.fd = 0
}

// decodeReply reads a reply, which borrows b.
func decodeReply(b []byte) (r reply, err error) {
	if len(b) != replySize || order.Uint16(b[2:]) != Version || order.Uint32(b[12:]) > maxReplyValue {
		return r, errProtocol
	}
	r = reply{op: op(order.Uint16(b)), id: order.Uint32(b[4:]), errno: syscall.Errno(order.Uint32(b[8:]))}
	r.value = b[replyValueAt:][:order.Uint32(b[12:])]
	if r.local, _, err = decodeAddr(b[16:]); err == nil {
		r.remote, _, err = decodeAddr(b[40:])
	}
	return r, err
}

// encodeAddr writes a struct shim_addr. The invalid address has family 0, and the rest of b is zero before.
func encodeAddr(b []byte, a netip.AddrPort) {
	switch ip := a.Addr(); {
	case !ip.IsValid():
	case ip.Is4():
		v := ip.As4()
		order.PutUint16(b, unix.AF_INET)
		order.PutUint16(b[2:], a.Port())
		copy(b[8:], v[:])
	default:
		v := ip.As16()
		order.PutUint16(b, unix.AF_INET6)
		order.PutUint16(b[2:], a.Port())
		copy(b[8:], v[:])
	}
}

// decodeAddr reads a struct shim_addr. An IPv4-mapped IPv6 address stays one.
func decodeAddr(b []byte) (a netip.AddrPort, scope uint32, err error) {
	port := order.Uint16(b[2:])
	switch order.Uint16(b) {
	case 0:
		return a, 0, nil
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[8:12])), port), 0, nil
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port), order.Uint32(b[4:]), nil
	}
	return a, 0, syscall.EAFNOSUPPORT
}

// encodeAccepted writes a struct shim_accepted.
func encodeAccepted(b []byte, local, remote netip.AddrPort, m *memory) {
	clear(b[:acceptedSize])
	encodeAddr(b, local)
	encodeAddr(b[acceptedRemoteAt:], remote)
	if m.fd != 0 {
		copy(b[acceptedMemoryAt:], m.describe())
	}
}

// datagram is a struct shim_datagram.
type datagram struct {
	remote, local netip.AddrPort
	iface         uint32
	tos, hopLimit uint8
	flags         datagramFlags
	at            int64  // of arrival, ns of the wall clock
	lost          uint32 // datagrams that the socket had no space for by then
}

func (d *datagram) encode(b []byte) {
	clear(b[:datagramSize])
	encodeAddr(b, d.remote)
	encodeAddr(b[addrSize:], d.local)
	order.PutUint32(b[2*addrSize:], d.iface)
	b[datagramTOSAt], b[datagramTOSAt+1] = d.tos, d.hopLimit
	order.PutUint16(b[datagramFlagsAt:], uint16(d.flags))
	order.PutUint64(b[datagramTimeAt:], uint64(d.at))
	order.PutUint32(b[datagramLostAt:], d.lost)
}

func decodeDatagram(b []byte) (d datagram, err error) {
	if len(b) < datagramSize {
		return d, errProtocol
	}
	if d.remote, _, err = decodeAddr(b); err == nil {
		d.local, _, err = decodeAddr(b[addrSize:])
	}
	d.iface, d.tos, d.hopLimit = order.Uint32(b[2*addrSize:]), b[datagramTOSAt], b[datagramTOSAt+1]
	d.flags = datagramFlags(order.Uint16(b[datagramFlagsAt:]))
	return d, err
}

// name is a struct shim_name: the abstract name of the program's end of a connection.
type name struct {
	process       uint32 // of the node
	unique        uint64
	local, remote netip.AddrPort
}

func (n *name) encode(b []byte) {
	clear(b[:nameSize])
	copy(b, nameMagic)
	order.PutUint16(b[8:], Version)
	order.PutUint32(b[12:], n.process)
	order.PutUint64(b[16:], n.unique)
	encodeAddr(b[nameLocalAt:], n.local)
	encodeAddr(b[nameRemoteAt:], n.remote)
}

// decodeName reads an abstract name, without the zero byte that is its first.
func decodeName(b []byte) (n name, err error) {
	if len(b) != nameSize || string(b[:8]) != nameMagic || order.Uint16(b[8:]) != Version {
		return n, errProtocol
	}
	n.process, n.unique = order.Uint32(b[12:]), order.Uint64(b[16:])
	if n.local, _, err = decodeAddr(b[nameLocalAt:]); err == nil {
		n.remote, _, err = decodeAddr(b[nameRemoteAt:])
	}
	return n, err
}

// text returns a value that is a string, up to its zero byte if it has one.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
