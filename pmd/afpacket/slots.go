package afpacket

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
)

// slots is the ring of a queue that receives large packets whole (TPACKET_V2): slots of one size, one packet each.
// A packet that is longer than its slot has only its first bytes there. The kernel keeps all of it, without a
// copy, in the receive queue of the socket (PACKET_COPY_THRESH), from where recvmsg copies it into frames. Slots and
// that queue have the same order, since the kernel adds to both under one lock.
//
//	slot: tpacket2_hdr ... virtio_net_hdr | Ethernet header, payload
//	      STATUS, lengths, mac ->
//
// Compared with blocks, the sender's processor does not copy large packets, and a packet is there as soon as
// the kernel has it: no block has to fill, and no timer to expire.
type slots struct {
	mem  []byte
	size int // of a slot, bytes
	at   int // offset of the slot that is read, or waited for
}

// slotOverhead is more than what lies in front of a packet in its slot: tpacket2_hdr and sockaddr_ll (52 bytes), the
// alignment of the network header to 16 bytes behind at least 16, and the virtio_net_hdr.
const slotOverhead = 96

// mostSlot is the largest slot in bytes. An interface with a larger MTU, such as lo, has its large packets received
// by recvmsg.
const mostSlot = 16 << 10

// slotSize returns the size of a slot, bytes: a power of two, so that slots fill blocks, for a packet of the MTU with its
// Ethernet header and two VLAN tags.
func slotSize(mtu int) int {
	n := slotOverhead + 14 + 2*vlanTag + mtu
	return min(max(2048, 1<<bits.Len(uint(n-1))), mostSlot)
}

const vlanTag = 4 // bytes

// mapSlots makes a ring of at least size bytes. The kernel allocates it by blocks, as that of mapBlocks.
func mapSlots(fd, size, slot int) (*slots, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_COPY_THRESH, 1); err != nil {
		return nil, err
	}
	n := max(1, (size+slotBlock-1)/slotBlock)
	req := unix.TpacketReq{
		Block_size: slotBlock, Block_nr: uint32(n),
		Frame_size: uint32(slot), Frame_nr: uint32(n * (slotBlock / slot)),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, n*slotBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &slots{mem: mem, size: slot}, nil
}

func (s *slots) String() string {
	return fmt.Sprintf("TPACKET_V2, %d slots of %d KiB, large packets by recvmsg", len(s.mem)/s.size, s.size>>10)
}

func (s *slots) unmap() {
	_ = unix.Munmap(s.mem)
	s.mem = nil
}

// slot returns the slot that is read, or waited for.
func (s *slots) slot() []byte { return s.mem[s.at:][:s.size] }

// status returns the field that passes the ownership of a slot, as blocks.status does for a block.
func (s *slots) status() *uint32 { return (*uint32)(unsafe.Pointer(&s.mem[s.at])) }

func (s *slots) peek(p *received) bool {
	status := atomic.LoadUint32(s.status())
	if status&unix.TP_STATUS_USER == 0 {
		return false
	}
	raw := s.slot()
	h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&raw[0]))
	p.read(raw[h.Mac-vnetHeader:][:vnetHeader])
	p.data, p.size = raw[h.Mac:][:h.Snaplen], int(h.Len)
	p.queued = status&unix.TP_STATUS_COPY != 0
	p.tag(status, h.Vlan_tci, h.Vlan_tpid)
	return true
}

// next skips the packet that peek described and returns its slot to the kernel. Where the packet is queued, the caller has
// taken it from the queue.
func (s *slots) next() {
	atomic.StoreUint32(s.status(), unix.TP_STATUS_KERNEL)
	s.at += s.size
	if s.at == len(s.mem) {
		s.at = 0
	}
}

// inbox is the argument of recvmsg: the virtio_net_hdr, which the slot has too, and the pieces of the packet.
type inbox struct {
	msg    unix.Msghdr
	header [vnetHeader]byte
	pieces [maxPieces]unix.Iovec
	n      int // of pieces
}

// maxPieces is the number of pieces of a packet that passes whole: the header, 64 KiB in frames of 2 KiB, one more for the
// headroom and one for a VLAN tag in the first.
const maxPieces = 1 + 32 + 1 + 1

// begin forgets the pieces of the packet before.
func (x *inbox) begin() {
	x.n = 0
	x.add(x.header[:])
}

// add appends the place of a piece; false is that there are too many.
func (x *inbox) add(b []byte) bool {
	if x.n == len(x.pieces) {
		return false
	}
	x.pieces[x.n].Base = unsafe.SliceData(b)
	x.pieces[x.n].SetLen(len(b))
	x.n++
	return true
}

// receive takes the next packet from the receive queue of the socket into the pieces. It returns the length of the packet,
// whether or not it has fit (MSG_TRUNC). An error of the socket, ENETDOWN of a link that has been down, is reported
// before a packet and cleared by that, so the call is repeated once.
func (x *inbox) receive(fd int) (int, unix.Errno) {
	x.msg = unix.Msghdr{Iov: &x.pieces[0]}
	x.msg.SetIovlen(x.n)
	for again := true; ; {
		// RawSyscall: it does not block, as in pmd/afxdp.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&x.msg)),
			unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0, 0)
		switch {
		case errno == 0:
			return int(n) - vnetHeader, 0
		case errno == unix.EINTR:
		case errno != unix.EAGAIN && again:
			again = false
		default:
			return 0, errno
		}
	}
}

// read takes what a virtio_net_hdr says (virtio 1.2, 5.1.6):
//
//	 0       1     2          4         6            8             10
//	+-------+-----+----------+---------+------------+-------------+----------------
//	| flags | GSO | headers' | segment | checksum's | checksum's  | Ethernet header
//	|       |     | length   | size    | first byte | offset in it|
func (p *received) read(v []byte) {
	*p = received{
		partial:    v[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0,
		gso:        v[1] &^ packet.GSOECN,
		kind:       v[1],
		headers:    int(binary.NativeEndian.Uint16(v[2:])),
		mss:        int(binary.NativeEndian.Uint16(v[4:])),
		csumStart:  int(binary.NativeEndian.Uint16(v[6:])),
		csumOffset: int(binary.NativeEndian.Uint16(v[8:])),
	}
}

// tag notes the VLAN tag that the kernel removed.
func (p *received) tag(status uint32, tci, tpid uint16) {
	p.tagged, p.tci, p.tpid = status&unix.TP_STATUS_VLAN_VALID != 0, tci, unix.ETH_P_8021Q
	if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		p.tpid = tpid
	}
}
