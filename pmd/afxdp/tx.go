package afxdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

const (
	minFrame = 14 // an Ethernet header: the kernel would pull it from less
	vlanTag  = 4  // bytes that the kernel allows on top of header and MTU
	maxChain = 17 // frames of one packet: MAX_SKB_FRAGS, with which every kernel is configured
)

var errArena = errors.New("the batch points into another arena than the one that is registered")

// Tx implements pmd.Driver. The count is of descriptors. A packet that no device could take (shorter
// than an Ethernet header, larger than its frame, larger than the MTU that the device had at Open,
// of several frames without multi-buffer or of more than 17) is taken, counted as TxInvalid, and its
// frames go to the pool.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if q.closed {
		return 0, q.fail("tx", pmd.ErrClosed)
	}
	if b.Arena != q.arena.View() {
		return 0, q.fail("tx", errArena)
	}
	if q.linkErr != nil {
		if err := q.mended(now); err != nil {
			return 0, err
		}
	}
	q.reap()
	n := packet.Whole(b.D, int(q.tx.room(uint32(len(b.D)))))
	if n > 0 {
		q.put(b.D[:n])
	}
	return n, q.kick()
}

// mended asks again for the state of a link that was lost.
func (q *Queue) mended(now clock.Time) error {
	if now >= q.nextProbe {
		q.nextProbe = now + probeEvery
		q.poke()
	}
	return q.linkErr
}

// put writes whole packets into the tx ring, which has room for them.
func (q *Queue) put(ds []packet.Desc) {
	n := uint32(0)
	for len(ds) > 0 {
		k := q.putPlain(n, ds)
		n += uint32(k)
		if ds = ds[k:]; len(ds) > 0 {
			end := packet.Chain(ds)
			n += q.putChain(n, ds[:end])
			ds = ds[end:]
		}
	}
	q.tx.publish(n)
}

// putPlain writes packets of one frame, n entries behind the head of the tx ring, up to the first
// that is something else or cannot be sent. It returns how many it wrote.
func (q *Queue) putPlain(n uint32, ds []packet.Desc) int {
	inFrame, size, most, held := q.frame-1, q.frame, q.longest, q.txHeld
	ring, head := q.tx.entries, q.tx.head+n
	bytes := uint64(0)
	i := 0
	for ; i < len(ds); i++ {
		d := &ds[i]
		off, length := d.Off, uint32(d.Len)
		if d.Flags&packet.FlagMore != 0 || length < minFrame || length > most || off&inFrame+length > size || !held.add(uint64(off)) {
			break
		}
		*ring.desc(head + uint32(i)) = unix.XDPDesc{Addr: uint64(off), Len: length}
		bytes += uint64(length)
	}
	q.txHeld.n += i
	q.stat.txPackets.Add(uint64(i))
	q.stat.txBytes.Add(bytes)
	return i
}

// putChain writes one packet into the tx ring, of one frame or several, n entries behind the head,
// and returns how many entries it took: none if it cannot be sent.
func (q *Queue) putChain(n uint32, ds []packet.Desc) uint32 {
	if len(ds) > 1 && !q.multi || len(ds) > maxChain || int(ds[0].Len) < minFrame || q.tooLong(ds) {
		q.refuse(ds)
		return 0
	}
	bytes := uint64(0)
	for i := range ds {
		d := &ds[i]
		if !q.fits(d) || !q.txHeld.add(uint64(d.Off)) {
			for j := range ds[:i] {
				q.txHeld.remove(uint64(ds[j].Off))
			}
			q.refuse(ds)
			return 0
		}
		x := q.tx.desc(q.tx.head + n + uint32(i))
		x.Addr, x.Len, x.Options = uint64(d.Off), uint32(d.Len), unix.XDP_PKT_CONTD
		bytes += uint64(d.Len)
	}
	q.tx.desc(q.tx.head + n + uint32(len(ds)) - 1).Options = 0
	q.txHeld.n += len(ds)
	q.stat.txPackets.Add(1)
	q.stat.txBytes.Add(bytes)
	return uint32(len(ds))
}

// tooLong reports whether the packet passes the MTU: the device would drop it and not tell.
func (q *Queue) tooLong(ds []packet.Desc) bool {
	_, size := packet.Count(ds)
	return size > uint64(q.longest)
}

// fits reports whether d ends in its frame and is not empty.
func (q *Queue) fits(d *packet.Desc) bool {
	return d.Len > 0 && d.Off&(q.frame-1)+uint32(d.Len) <= q.frame
}

// refuse takes a packet that cannot be sent. A frame that the kernel holds already, because it was
// given twice, stays with the kernel.
func (q *Queue) refuse(ds []packet.Desc) {
	_, size := packet.Count(ds)
	q.stat.txPackets.Add(1)
	q.stat.txBytes.Add(size)
	q.stat.txInvalid.Add(1)
	for i := range ds {
		if off := ds[i].Off; q.txHeld.add(uint64(off)) {
			q.txHeld.remove(uint64(off))
			q.pool.Put(off)
		}
	}
}

// reap returns the frames of packets that were sent to the pool.
func (q *Queue) reap() {
	n := q.comp.ready(q.comp.size)
	if n == 0 {
		return
	}
	ring, head, held, pool := q.comp.entries, q.comp.head, q.txHeld, q.pool
	lost := 0
	for i := range n {
		addr := *ring.addr(head + i)
		if !held.remove(addr) {
			lost++
			continue
		}
		pool.Put(uint32(addr))
	}
	q.txHeld.n -= int(n) - lost
	q.stat.rxInvalid.Add(uint64(lost))
	q.comp.release(n)
}

// kick asks the kernel to send what is in the tx ring, if it wants to be asked. In copy mode it
// always does, and one call moves a bounded number of packets (XDP_MAX_TX_SKB_BUDGET): the call is
// repeated as long as it moves any. What then remains is kicked by the next Tx or Rx.
func (q *Queue) kick() error {
	q.unsent = false
	if q.wakeup && !q.tx.needWakeup() {
		return nil
	}
	for left := q.tx.pending(); left > 0; {
		switch err := q.wake(unix.SYS_SENDTO); err {
		case 0:
			return nil
		case unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
			q.reap() // a full completion ring stops the kernel too
			now := q.tx.pending()
			if now >= left {
				q.unsent = true
				return nil
			}
			left = now
		default:
			q.linkErr = q.explainLink("tx", err)
			return q.linkErr
		}
	}
	return nil
}

// poke lets the kernel look at the fill ring and tells, by the way, how the link is.
func (q *Queue) poke() {
	switch err := q.wake(unix.SYS_RECVFROM); err {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		q.linkErr = nil
	default:
		q.linkErr = q.explainLink("rx", err)
	}
}

// wake makes the system call. It never blocks, so the scheduler is not told: that would cost as
// much as the call, and hand the loop's thread away under it.
func (q *Queue) wake(trap uintptr) unix.Errno {
	q.stat.wakeups.Add(1)
	_, _, e := unix.RawSyscall6(trap, uintptr(q.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// explainLink turns what a system call said about the device into an error of pmd.
func (q *Queue) explainLink(op string, e unix.Errno) error {
	switch e {
	case unix.ENETDOWN:
		return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: pmd.ErrDown, Remedy: "ip link set " + q.info.Device + " up"}
	case unix.ENXIO, unix.ENODEV, unix.EBADF:
		return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: pmd.ErrGone, Remedy: "close the device and open it again once the interface is back"}
	}
	return q.fail(op, fmt.Errorf("wake the kernel up: %w", e))
}
