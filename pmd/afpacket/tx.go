package afpacket

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// outbox is the argument of sendmmsg: a message for each packet, a piece for each descriptor. A
// transmit ring (PACKET_TX_RING) would save the kernel nothing: the packet has to be copied into it
// first. Measured on a veth, CPU time of the sender for 64 bytes: sendmmsg 310-360 ns (255-320 with
// PACKET_QDISC_BYPASS), ring 390-440 (360-410).
type outbox struct {
	msgs   [128]mmsghdr
	pieces [1024]unix.Iovec

	// With offload each packet has a virtio_net_hdr in front, of zeros where nothing is left to do: PACKET_VNET_HDR is an
	// option of the socket, not of a packet.
	offload bool
	headers [128][packet.OffloadLen]byte
}

// mmsghdr is struct mmsghdr of <sys/socket.h>.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes sent
	_   [4]byte
}

// Tx implements pmd.Driver. The kernel copies the packets, so their frames are free when Tx
// returns. It takes no more when the socket's buffer or the interface's queue is full. A packet that the
// kernel rejects is counted as TxInvalid, and the packets behind it are sent.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if q.ring == nil {
		return 0, q.fail("tx", pmd.ErrClosed)
	}
	taken := 0
	for {
		packets, used := q.out.fill(b.Arena, b.D[taken:])
		if packets == 0 {
			n := packet.Chain(b.D[taken:])
			if n < len(q.out.pieces) {
				return taken, nil
			}
			taken += q.reject(b.D[taken:][:n])
			continue
		}
		sent, errno := q.send(packets)
		n := used
		if sent < packets {
			n = packet.Chains(b.D[taken:], uint64(sent))
		}
		q.release(b.D[taken:][:n])
		taken += n
		switch {
		case errno == 0:
		case rejected(errno):
			taken += q.reject(b.D[taken:][:packet.Chain(b.D[taken:])])
		case errno == unix.ENETDOWN, errno == unix.ENXIO, errno == unix.ENODEV:
			return taken, q.dev.explain("tx", q.id, errno)
		default:
			return taken, nil // EAGAIN, ENOBUFS: full
		}
	}
}

// fill describes whole packets of d, as many as fit, and returns how many packets and descriptors those are. A chain that
// is not complete in d is left for the next Tx.
func (o *outbox) fill(arena *packet.Arena, d []packet.Desc) (packets, used int) {
	at := 0 // of pieces
	for packets < len(o.msgs) {
		n := packet.Chain(d[used:])
		if n == 0 || at+n+1 > len(o.pieces) {
			break
		}
		first := at
		if o.offload {
			o.pieces[at].Base = o.header(packets, arena, &d[used])
			o.pieces[at].SetLen(packet.OffloadLen)
			at++
		}
		for i := used; i < used+n; i++ {
			o.pieces[at].Base = unsafe.SliceData(arena.Bytes(&d[i]))
			o.pieces[at].SetLen(int(d[i].Len))
			at++
		}
		m := &o.msgs[packets].hdr
		m.Iov = &o.pieces[first]
		m.SetIovlen(at - first)
		packets++
		used += n
	}
	return packets, used
}

// header makes the virtio_net_hdr of message i, whose packet starts with d. Its offsets count from the packet's first byte,
// those of an Offload from the frame's. A header of zeros says that the packet is complete. The result is borrowed until
// the next fill.
func (o *outbox) header(i int, arena *packet.Arena, d *packet.Desc) *byte {
	h := &o.headers[i]
	*h = [packet.OffloadLen]byte{}
	if d.Flags.Has(packet.FlagOffload) {
		v, start := arena.Offload(d), uint16(arena.Headroom(d))
		h[0], h[1] = v.Flags, v.GSO
		binary.NativeEndian.PutUint16(h[2:], v.HeadersEnd-start)
		binary.NativeEndian.PutUint16(h[4:], v.SegmentSize)
		binary.NativeEndian.PutUint16(h[6:], v.ChecksumFrom-start)
		binary.NativeEndian.PutUint16(h[8:], v.ChecksumAt)
	}
	return &h[0]
}

// send passes the first n messages to the kernel, and returns how many it took and the error that stopped it.
// sendmmsg reports an error only where the first message fails, so it is called again for the rest. MSG_DONTWAIT: a full
// socket buffer is an error and never blocks the loop.
func (q *Queue) send(n int) (int, unix.Errno) {
	for sent := 0; ; {
		q.count.Wakeups.Add(1)
		r, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(q.tx), uintptr(unsafe.Pointer(&q.out.msgs[sent])),
			uintptr(n-sent), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return sent, errno
		default:
			sent += int(r)
		}
		if sent == n {
			return n, 0
		}
	}
}

// rejected reports whether the kernel rejects this packet only: longer than the MTU (EMSGSIZE), or shorter than a header or
// with an invalid virtio_net_hdr (EINVAL). Offering it again would block the packets behind it for ever.
func rejected(e unix.Errno) bool { return e == unix.EMSGSIZE || e == unix.EINVAL }

// release counts packets as sent and frees their frames: sendmmsg has copied the bytes.
func (q *Queue) release(d []packet.Desc) {
	if len(d) == 0 {
		return
	}
	q.count.Tx(d)
	for i := range d {
		q.pool.Put(d[i].Off)
	}
}

// reject takes a packet that cannot be sent: it is counted, and its frames go to the pool like those of a sent one.
func (q *Queue) reject(d []packet.Desc) int {
	q.count.TxInvalid.Add(1)
	q.release(d)
	return len(d)
}
