// Package vnet sends packets through packet sockets, with a virtio_net_hdr where some are large: the
// device, or the kernel for it, segments those and fills in their checksums (packet.FlagOffload).
//
// It is a part of drivers: pmd/afpacket sends all its packets by it, pmd/afxdp the large ones in copy mode.
package vnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
)

// Sender is a packet socket that only sends. It belongs to one loop. Between Fill and Send it borrows the frames
// of the packets; when Send returns, the kernel has copied them.
//
// A transmit ring (PACKET_TX_RING) would save the kernel nothing: the packet has to be copied into it
// first. Measured on a veth, CPU time of the sender for 64 bytes: sendmmsg 310-360 ns (255-320 with
// PACKET_QDISC_BYPASS), ring 390-440 (360-410).
type Sender struct {
	fd     int // -1 once closed
	msgs   [128]mmsghdr
	pieces [MaxPieces]unix.Iovec

	// With offload each packet has a virtio_net_hdr in front, of zeros where nothing is left to do: PACKET_VNET_HDR is an
	// option of the socket, not of a packet.
	offload bool
	headers [128][packet.OffloadLen]byte
}

// MaxPieces is the number of descriptors that a packet has at most, one for its virtio_net_hdr and one for external payload.
const MaxPieces = 1024

// mmsghdr is struct mmsghdr of <sys/socket.h>.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes sent
	_   [4]byte
}

// Open opens a socket that sends through the interface with the index. With bypass its packets go past the queueing
// discipline, with offload they may be large.
func Open(index int, bypass, offload bool) (*Sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, integer(offload)),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, integer(bypass)),
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}), // protocol 0 only sends
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	// A batch waits in the socket's buffer until the device has sent it. SO_SNDBUFFORCE exceeds net.core.wmem_max and
	// needs CAP_NET_ADMIN; without it the default size has to do.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	return &Sender{fd: fd, offload: offload}, nil
}

func integer(on bool) int {
	if on {
		return 1
	}
	return 0
}

// SegmentsUDP reports whether the kernel takes large packets of datagrams (packet.GSOUDP): since Linux 6.2 a virtio_net_hdr
// can describe them. Older ones reject such a packet, which would be lost each time that it is sent.
var SegmentsUDP = sync.OnceValue(func() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	return takesUDP(unix.ByteSliceToString(name.Release[:]))
})

// takesUDP is SegmentsUDP of a kernel's release, such as "6.1.0-32-amd64".
func takesUDP(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major > 6 || major == 6 && minor >= 2)
}

// Close closes the socket.
func (s *Sender) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// Fill describes whole packets of d, as many as fit, and returns how many packets and descriptors those are. A chain that
// is not complete in d is left for the next Tx.
func (s *Sender) Fill(arena *packet.Arena, d []packet.Desc) (packets, used int) {
	at := 0 // of pieces
	for packets < len(s.msgs) {
		n := packet.Chain(d[used:])
		if n == 0 || at+n+2 > len(s.pieces) {
			break
		}
		first := at
		if s.offload {
			s.pieces[at].Base = s.header(packets, arena, &d[used])
			s.pieces[at].SetLen(packet.OffloadLen)
			at++
		}
		for i := used; i < used+n; i++ {
			s.pieces[at].Base = unsafe.SliceData(arena.Bytes(&d[i]))
			s.pieces[at].SetLen(int(d[i].Len))
			at++
		}
		if s.offload && d[used].Flags.Has(packet.FlagOffload) {
			at += s.external(at, arena, &d[used])
		}
		m := &s.msgs[packets].hdr
		m.Iov = &s.pieces[first]
		m.SetIovlen(at - first)
		packets++
		used += n
	}
	return packets, used
}

// external appends the payload that the packet of d has outside of the arena, and returns the number of pieces: 0 or 1.
func (s *Sender) external(at int, arena *packet.Arena, d *packet.Desc) int {
	rest := arena.External(d)
	if rest == nil {
		return 0
	}
	s.pieces[at].Base = unsafe.SliceData(rest)
	s.pieces[at].SetLen(len(rest))
	return 1
}

// header makes the virtio_net_hdr of message i, whose packet starts with d. Its offsets count from the packet's first byte,
// those of an Offload from the frame's. A header of zeros says that the packet is complete. The result is borrowed until
// the next Fill.
func (s *Sender) header(i int, arena *packet.Arena, d *packet.Desc) *byte {
	h := &s.headers[i]
	*h = [packet.OffloadLen]byte{}
	if d.Flags.Has(packet.FlagOffload) {
		v, start := arena.Offload(d), uint16(arena.Headroom(d))
		h[0], h[1] = v.Flags&packet.OffloadNeedsChecksum, v.GSO
		binary.NativeEndian.PutUint16(h[2:], v.HeadersEnd-start)
		binary.NativeEndian.PutUint16(h[4:], v.SegmentSize)
		binary.NativeEndian.PutUint16(h[6:], v.ChecksumFrom-start)
		binary.NativeEndian.PutUint16(h[8:], v.ChecksumAt)
	}
	return &h[0]
}

// Send passes the first n messages that Fill described to the kernel, and returns how many it took, with how many
// system calls, and the error that stopped it. sendmmsg reports an error only where the first message fails, so it is called
// again for the rest. MSG_DONTWAIT: a full socket buffer is an error and never blocks the loop.
//
// The call may take longer than 20 us, because on a veth the peer receives in it. RawSyscall6 keeps that from the runtime's
// monitor: with one processor of Go that takes the processor away after 20 us and looks again every 20 us, all the time.
func (s *Sender) Send(n int) (sent, calls int, errno unix.Errno) {
	for {
		calls++
		r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs[sent])),
			uintptr(n-sent), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return sent, calls, errno
		default:
			sent += int(r)
		}
		if sent == n {
			return n, calls, 0
		}
	}
}

// Rejected reports whether the kernel rejects this packet only: longer than the MTU (EMSGSIZE), or shorter than a header or
// with an invalid virtio_net_hdr (EINVAL). Offering it again would block the packets behind it for ever.
func Rejected(e unix.Errno) bool { return e == unix.EMSGSIZE || e == unix.EINVAL }
