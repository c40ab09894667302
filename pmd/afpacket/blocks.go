package afpacket

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rxRing is the memory that the kernel receives into: blocks, or slots.
type rxRing interface {
	// peek describes the next packet, until next; false means that none is there.
	peek(*received) bool

	// next skips that packet and returns its memory to the kernel.
	next()

	// unmap removes the mapping. Packets that wait in it are lost.
	unmap()

	// String describes the ring for people.
	String() string
}

// blocks is the ring that the kernel receives into (TPACKET_V3, Documentation/networking/packet_mmap.rst):
// blocks of many packets. The status of a block says who owns it, TP_STATUS_KERNEL or TP_STATUS_USER, and
// its store and load order the bytes of the packets.
//
//	block:  version, private offset, STATUS, packets, offset of the first, length, ...
//	packet: tpacket3_hdr ... virtio_net_hdr | Ethernet header, payload
//	        next -> next packet            mac ->
type blocks struct {
	mem  []byte
	at   int    // the block that is read, or waited for
	left uint32 // packets of it that are not read
	off  uint32 // offset of the first of them in the block
}

// Offsets in a tpacket_block_desc (linux/if_packet.h).
const (
	blockStatus = 8
	blockCount  = 12
	blockFirst  = 16
)

// vnetHeader is the length of a virtio_net_hdr in bytes, without the count of buffers that VIRTIO_NET_F_MRG_RXBUF adds.
const vnetHeader = 10

// mapBlocks makes a ring of at least size bytes. The kernel fills one block while the driver reads another, so
// there are at least two. The memory belongs to the kernel and is no arena: packets have to be copied into frames.
func mapBlocks(fd, size int) (*blocks, error) {
	n := max(2, (size+blockSize-1)/blockSize)
	req := unix.TpacketReq3{
		Block_size: blockSize, Block_nr: uint32(n),
		// Frames have no fixed size in V3; the kernel only checks that they fill the blocks.
		Frame_size: blockSize, Frame_nr: uint32(n),
		Retire_blk_tov: blockTimeout,
	}
	if err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, n*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &blocks{mem: mem}, nil
}

func (r *blocks) String() string {
	return fmt.Sprintf("TPACKET_V3, %d blocks of %d KiB", len(r.mem)/blockSize, blockSize>>10)
}

func (r *blocks) unmap() {
	_ = unix.Munmap(r.mem)
	r.mem = nil
}

// block returns the block that is read, or waited for.
func (r *blocks) block() []byte { return r.mem[r.at*blockSize:][:blockSize] }

// status returns the field of the block that passes its ownership. It is only accessed atomically: the load of
// TP_STATUS_USER acquires what the kernel wrote, the store of TP_STATUS_KERNEL releases the block after the last read.
func (r *blocks) status() *uint32 {
	return (*uint32)(unsafe.Pointer(&r.block()[blockStatus]))
}

// peek describes the next packet; false means that no block is ready. A block that its timer has passed on without a packet
// goes back at once.
func (r *blocks) peek(p *received) bool {
	for r.left == 0 {
		if atomic.LoadUint32(r.status())&unix.TP_STATUS_USER == 0 {
			return false
		}
		b := r.block()
		r.left, r.off = binary.NativeEndian.Uint32(b[blockCount:]), binary.NativeEndian.Uint32(b[blockFirst:])
		if r.left == 0 {
			r.release()
		}
	}
	r.read(p)
	return true
}

// read describes the packet at off. With PACKET_VNET_HDR a virtio_net_hdr lies in front of the Ethernet header.
func (r *blocks) read(p *received) {
	raw := r.block()[r.off:]
	h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&raw[0]))
	p.read(raw[h.Mac-vnetHeader : h.Mac])
	p.data, p.size = raw[h.Mac:][:h.Snaplen], int(h.Len)
	p.tag(h.Status, uint16(h.Hv1.Vlan_tci), h.Hv1.Vlan_tpid)
}

// next skips the packet that peek described, and returns the block to the kernel after its last one: ownership passes by
// block, so one packet that is not read keeps up to blockSize bytes from the kernel.
func (r *blocks) next() {
	h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&r.block()[r.off]))
	r.off += h.Next_offset
	if r.left--; r.left == 0 {
		r.release()
	}
}

// release returns the block to the kernel, which may overwrite it from now on, and goes to the next one: the
// kernel fills them in turn.
func (r *blocks) release() {
	atomic.StoreUint32(r.status(), unix.TP_STATUS_KERNEL)
	r.at++
	if (r.at+1)*blockSize > len(r.mem) {
		r.at = 0
	}
}

// received is a packet in a ring, with the findings of the kernel about it. It borrows the ring's memory until next.
type received struct {
	data       []byte // from the Ethernet header on, without the tag; the first bytes of a queued packet
	size       int    // bytes of all of the packet
	queued     bool   // all of it waits in the receive queue of the socket (slots)
	tagged     bool   // the kernel removed a VLAN tag
	tci, tpid  uint16
	partial    bool // the checksum at csumStart+csumOffset holds the sum of the pseudo header only
	csumStart  int
	csumOffset int
	gso        uint8 // what kind of large packet it is
	kind       uint8 // the same, and with packet.GSOECN
	headers    int   // bytes that each segment repeats, a hint of the kernel
	mss        int   // bytes of payload of each segment but the last
}
