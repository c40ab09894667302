package tap

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// maxPieces is the longest chain: 64 KiB and headers in frames of 2 KiB, and the headroom. A packet through a TAP device
// is never longer: without TUNSETOFFLOAD the kernel segments before it passes packets on.
const maxPieces = 34

// linkEvery is the interval at which an idle queue checks whether its interface is up: two system calls each, so not with every poll.
const linkEvery = 10 * time.Millisecond

// Queue is one queue of a Device: a pmd.Driver. It belongs to one loop, as its pool does; only Info may be called from
// other goroutines.
type Queue struct {
	dev    *Device
	id     int
	fd     int // of /dev/net/tun, not blocking
	closed bool
	pool   *ring.Pool
	frames int                   // that the largest packet needs, and one byte more
	pieces [maxPieces]unix.Iovec // argument of readv and writev; here, because on the stack it would escape
	offs   [maxPieces]uint32     // of the frames that are read into

	linkErr  error      // of the last check
	nextLink clock.Time // of the next check
	count    pmd.Counters
}

// resize prepares for packets of an MTU: with an Ethernet header (14 bytes), two VLAN tags (8), which the MTU does not
// count, and one byte more, which is filled only where a packet was longer and the kernel has cut it.
func (q *Queue) resize(mtu int) {
	size := q.pool.Arena().FrameSize()
	q.frames = min(maxPieces, (q.dev.cfg.Headroom+mtu+14+8+1+size-1)/size)
}

// Rx implements pmd.Driver. It needs room and frames for the largest packet that the interface's MTU
// allows; without them packets stay in the kernel's queue. A packet that not even an empty b would hold
// counts as RxInvalid.
func (q *Queue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if q.closed {
		return 0, q.dev.fail("rx", q.id, pmd.ErrClosed, "")
	}
	b.Base = int64(now)
	first := b.Len()
	var errno unix.Errno
	// A packet that no batch of this size holds is read and dropped: waiting for room would block the queue for ever.
	need := max(1, min(q.frames, cap(b.D)))
	for errno == 0 && b.Room() >= need && q.pool.Free() >= q.frames {
		errno = q.read(b, uint32(now))
	}
	// Packets are returned without the error that ended the reading, which comes back with the next call.
	if n := b.Len() - first; n > 0 {
		q.linkErr = nil
		q.count.Rx(b.D[first:])
		return n, nil
	}
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR:
		return 0, q.checkLink(now)
	}
	return 0, q.dev.explain("rx", q.id, errno)
}

// read receives one packet. The frames go back to the pool unless they hold a packet. readv(2) on a TAP device returns
// one packet whole and drops what does not fit, without an error or MSG_TRUNC: only a read that fills all the room, which
// has one byte more than the largest packet, shows that something was cut.
func (q *Queue) read(b *packet.Batch, stamp uint32) unix.Errno {
	room := q.prepare()
	q.count.Wakeups.Add(1)
	n, _, errno := unix.Syscall(unix.SYS_READV, uintptr(q.fd), uintptr(unsafe.Pointer(&q.pieces)), uintptr(q.frames))
	switch {
	case errno != 0:
		q.describe(b, stamp, 0)
	case int(n) >= room: // the spare byte is used: the kernel has cut a packet that did not fit
		q.count.RxInvalid.Add(1)
		q.describe(b, stamp, 0)
		q.updateMTU() // and with it, how many frames are prepared
	case q.framesFor(int(n)) > b.Room():
		q.count.RxInvalid.Add(1)
		q.describe(b, stamp, 0)
	default:
		q.describe(b, stamp, int(n))
	}
	return errno
}

// framesFor returns how many of the prepared frames n bytes fill; the first holds less, by the headroom. Rx compares it
// with the room of the batch before anything is described, since a chain is appended whole or not at all.
func (q *Queue) framesFor(n int) (frames int) {
	for n > 0 {
		n -= int(q.pieces[frames].Len)
		frames++
	}
	return frames
}

// prepare takes frames for the largest packet from the pool and returns the bytes in them. The length of a packet is known
// only once it is read, so frames for the longest are needed for each. Only the first has headroom: headers are pushed in
// front of a packet, never inside of it.
func (q *Queue) prepare() (room int) {
	arena, headroom := q.pool.Arena(), q.dev.cfg.Headroom
	for i := range q.frames {
		off, _ := q.pool.Get() // Rx has checked that there are so many
		q.offs[i] = off
		to := arena.Mem[off:][headroom:arena.FrameSize()]
		q.pieces[i].Base = unsafe.SliceData(to)
		q.pieces[i].SetLen(len(to))
		room += len(to)
		headroom = 0
	}
	return room
}

// describe describes n bytes in the prepared frames, and returns those that hold none to the pool. The described ones
// belong to the caller of Rx.
func (q *Queue) describe(b *packet.Batch, stamp uint32, n int) {
	for i, off := range q.offs[:q.frames] {
		if n == 0 {
			q.pool.Put(off)
			continue
		}
		headroom := uint32(0)
		if i == 0 {
			headroom = uint32(q.dev.cfg.Headroom)
		}
		d := packet.Desc{Off: off + headroom, Len: uint16(min(n, int(q.pieces[i].Len))), Stamp: stamp}
		if n -= int(d.Len); n > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
}

// updateMTU reads the MTU again, which has grown (`ip link set mtu`): the kernel does not report it to the file.
func (q *Queue) updateMTU() {
	r, err := unix.NewIfreq(q.dev.Name)
	if err == nil && unix.IoctlIfreq(q.dev.control, unix.SIOCGIFMTU, r) == nil {
		q.resize(int(r.Uint32()))
	}
}

// checkLink returns the error of an idle queue whose interface is down or gone. The file itself reports nothing when the
// interface is down. A clock that was set back, as in a test, does not stop the checks.
func (q *Queue) checkLink(now clock.Time) error {
	if now >= q.nextLink || q.nextLink > now.Add(2*linkEvery) {
		q.nextLink = now.Add(linkEvery)
		q.linkErr = q.linkState()
	}
	if q.linkErr != nil {
		return q.dev.explain("rx", q.id, q.linkErr)
	}
	return nil
}

// linkState returns ENETDOWN or ENODEV where the interface is not up. It asks by the control socket, which stays in the
// interface's network namespace whatever namespace the calling thread is in (netdevice(7)).
func (q *Queue) linkState() error {
	r, err := unix.NewIfreq(q.dev.Name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(q.dev.control, unix.SIOCGIFFLAGS, r); err != nil {
		return unix.ENODEV
	}
	if r.Uint16()&unix.IFF_UP == 0 {
		return unix.ENETDOWN
	}
	return nil
}

// Tx implements pmd.Driver. The kernel copies the packets, so their frames are free when Tx returns: those of taken
// packets go to the pool here, the others stay the caller's.
func (q *Queue) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if q.closed {
		return 0, q.dev.fail("tx", q.id, pmd.ErrClosed, "")
	}
	taken := 0
	for {
		n := packet.Chain(b.D[taken:])
		if n == 0 {
			return taken, nil
		}
		// Only an errno that concerns this packet takes it; after the others the caller tries again.
		switch errno := q.write(b.Arena, b.D[taken:][:n]); errno {
		case 0:
		// Shorter than a header, or beyond 64 KiB: no later try can succeed, so the packet is taken and counted.
		case unix.EINVAL, unix.EMSGSIZE:
			q.count.Refuse(b.D[taken:][:n])
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM: // for want of memory now: the caller keeps the rest
			return taken, nil
		default:
			return taken, q.dev.explain("tx", q.id, errno)
		}
		q.release(b.D[taken:][:n])
		taken += n
	}
}

// write sends one packet: one writev(2) for all of its descriptors, because each call is one packet. The kernel borrows
// the pieces during the call. A longer chain than any packet has is rejected here, as the kernel would.
func (q *Queue) write(arena *packet.Arena, d []packet.Desc) unix.Errno {
	if len(d) > maxPieces {
		return unix.EMSGSIZE
	}
	for i := range d {
		q.pieces[i].Base = unsafe.SliceData(arena.Bytes(&d[i]))
		q.pieces[i].SetLen(int(d[i].Len))
	}
	q.count.Wakeups.Add(1)
	_, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(q.fd), uintptr(unsafe.Pointer(&q.pieces)), uintptr(len(d)))
	return errno
}

// release counts a packet as sent and frees its frames: the kernel has copied it, or will never take it.
func (q *Queue) release(d []packet.Desc) {
	q.count.Tx(d)
	for i := range d {
		q.pool.Put(d[i].Off)
	}
}

// SetCarrier sets whether the interface has a carrier (TUNSETCARRIER, Linux 5.0). It is the interface's, not the queue's.
func (q *Queue) SetCarrier(on bool) error {
	value := 0
	if on {
		value = 1
	}
	return unix.IoctlSetPointerInt(q.fd, unix.TUNSETCARRIER, value)
}

// Info implements pmd.Driver. Linux counts the packets that it could not queue for the interface, not for a queue: the
// first queue reports them all as RxMissed, so that the sum over the queues is right. Wakeups counts system calls.
func (q *Queue) Info() pmd.Info {
	i := pmd.Info{
		Driver: "tap", Device: q.dev.Name, Queue: q.id, MTU: q.dev.mtu, MAC: q.dev.mac,
		Caps: pmd.CapPoll | pmd.CapMultiBuf, FD: q.fd, Negotiated: "copy, a system call for each packet",
		Stats: q.count.Stats(),
	}
	if len(q.dev.Queues) > 1 {
		i.Negotiated += ", multi-queue"
	}
	if q.id == 0 {
		i.Stats.RxMissed += q.dev.drops()
	}
	return i
}

// Holds implements ring.Holder. The driver holds no frame between two calls: prepare takes them from the pool, and describe
// passes each to the batch or back.
func (q *Queue) Holds(func(off uint32)) {}

// Close implements pmd.Driver. Packets in the kernel's queue are lost. No frame is held between two calls, so none has to
// be returned.
func (q *Queue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	return unix.Close(q.fd)
}
