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
	minFrame = 14 // an Ethernet header, which the kernel reads of every frame that it sends
	vlanTag  = 4  // bytes that the kernel allows on top of header and MTU (is_skb_forwardable)
	maxChain = 17 // frames of one packet: CONFIG_MAX_SKB_FRAGS, which is 17 unless configured higher
)

var errArena = errors.New("the batch points into an arena that is not registered with the device")

// Tx implements pmd.Driver. The count is of descriptors. A packet that no device could take (shorter
// than an Ethernet header, larger than its frame, larger than the MTU that the device had at Open,
// of several frames without multi-buffer or of more than 17) is taken, counted as TxInvalid, and its
// frames go to the pool. The kernel would drop it without a counter, or stop at it.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if q.closed {
		return 0, q.fail("tx", pmd.ErrClosed)
	}
	if b.Arena != q.arena.View() {
		return 0, q.fail("tx", errArena)
	}
	if q.linkErr != nil {
		if err := q.recheckLink(now); err != nil {
			return 0, err
		}
	}
	// Frames that were sent go back first: their entries in the completion ring make room for this batch.
	q.reap()
	if q.large != nil {
		return q.txMixed(b)
	}
	return q.txRing(b.D)
}

// txRing sends what the tx ring has room for.
func (q *Queue) txRing(ds []packet.Desc) (int, error) {
	n := packet.Whole(ds, int(q.tx.room(uint32(len(ds)))))
	if n > 0 {
		q.enqueue(ds[:n])
	}
	err := q.kick()
	if !q.zeroCopy {
		// In copy mode most are sent when the call returns. Reaped now, they are on top of the pool when the device
		// that received them refills its fill ring, so they go back in their order: see refill.
		q.reap()
	}
	return n, err
}

// recheckLink asks again, every probeEvery, for the state of a link that was down. Until it is up Tx takes nothing: packets
// would wait in the ring and leave old.
func (q *Queue) recheckLink(now clock.Time) error {
	if now >= q.nextProbe {
		q.nextProbe = now + probeEvery
		q.wakeRx()
	}
	return q.linkErr
}

// enqueue writes whole packets into the tx ring, which has room for them. Runs of single-frame packets, the
// usual case, take the short loop of putSingles.
func (q *Queue) enqueue(ds []packet.Desc) {
	n := uint32(0)
	for len(ds) > 0 {
		k := q.putSingles(n, ds)
		n += uint32(k)
		if ds = ds[k:]; len(ds) > 0 {
			end := packet.Chain(ds)
			n += q.putChain(n, ds[:end])
			ds = ds[end:]
		}
	}
	q.tx.publish(n)
}

// putSingles writes packets of one frame, n entries behind the head of the tx ring, up to the first
// that has several frames or cannot be sent. It returns how many it wrote. As in takeValid, fields are
// copied to locals for the loop.
func (q *Queue) putSingles(n uint32, ds []packet.Desc) int {
	inFrame, size, most, held := q.frame-1, q.frame, q.maxPacket, q.txHeld
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
// and returns how many entries it took: none if it cannot be sent. All entries but the last have
// XDP_PKT_CONTD. Nothing is published before the packet is complete, so a frame that is found invalid
// on the way is undone by forgetting the entries.
func (q *Queue) putChain(n uint32, ds []packet.Desc) uint32 {
	if len(ds) > 1 && !q.multi || len(ds) > maxChain || int(ds[0].Len) < minFrame || q.tooLong(ds) {
		q.reject(ds)
		return 0
	}
	bytes := uint64(0)
	for i := range ds {
		d := &ds[i]
		if !q.fits(d) || !q.txHeld.add(uint64(d.Off)) {
			for j := range ds[:i] {
				q.txHeld.remove(uint64(ds[j].Off))
			}
			q.reject(ds)
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

// tooLong reports whether the packet exceeds the MTU: the device would drop it without a counter.
func (q *Queue) tooLong(ds []packet.Desc) bool {
	_, size := packet.Count(ds)
	return size > uint64(q.maxPacket)
}

// fits reports whether d ends in its frame and is not empty: the kernel rejects a descriptor that crosses a
// chunk, and with it all of the packet.
func (q *Queue) fits(d *packet.Desc) bool {
	return d.Len > 0 && d.Off&(q.frame-1)+uint32(d.Len) <= q.frame
}

// reject takes a packet that cannot be sent. A frame that the kernel holds already, because a caller sent
// it twice, stays with the kernel: put into the pool, it would be received into while it is sent.
func (q *Queue) reject(ds []packet.Desc) {
	_, size := packet.Count(ds)
	q.stat.txPackets.Add(1)
	q.stat.txBytes.Add(size)
	q.stat.txInvalid.Add(1)
	q.stat.txInvalidBytes.Add(size)
	for i := range ds {
		if off := ds[i].Off; q.txHeld.add(uint64(off)) {
			q.txHeld.remove(uint64(off))
			q.pool.Put(off)
		}
	}
}

// reap returns the frames in the completion ring, whose packets were sent, to the pool. The kernel puts them there in the
// order of completion, which need not be that of sending. An address that was not sent is counted and not used.
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

// kick makes the system call with which the kernel sends what is in the tx ring, if it needs one. In copy
// mode it always does, and one call sends a bounded number of packets (XDP_MAX_TX_SKB_BUDGET): the call
// is repeated as long as it sends any. The next Tx or Rx kicks again for the rest.
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
			q.reap() // a full completion ring makes the kernel stop too
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

// wakeRx makes the system call with which the kernel reads the fill ring. Its error is the state of the link: ENETDOWN while
// the interface is down, ENXIO or ENODEV once it is gone. The others say that there was nothing to do.
func (q *Queue) wakeRx() {
	switch err := q.wake(unix.SYS_RECVFROM); err {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		q.linkErr = nil
	default:
		q.linkErr = q.explainLink("rx", err)
	}
}

// wake makes the system call. It never blocks, so RawSyscall skips the notice to Go's scheduler, which
// would cost as much as the call and might give the loop's P to another thread.
func (q *Queue) wake(trap uintptr) unix.Errno {
	q.stat.wakeups.Add(1)
	_, _, e := unix.RawSyscall6(trap, uintptr(q.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// explainLink returns the error of pmd for an errno that concerns the device. A socket whose interface was deleted stays
// useless when one of the same name appears: it is bound to the index.
func (q *Queue) explainLink(op string, e unix.Errno) error {
	switch e {
	case unix.ENETDOWN:
		return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: pmd.ErrDown, Remedy: "ip link set " + q.info.Device + " up"}
	case unix.ENXIO, unix.ENODEV, unix.EBADF:
		return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: pmd.ErrGone, Remedy: "close the device and open it again once the interface is back"}
	}
	return q.fail(op, fmt.Errorf("wake the kernel up: %w", e))
}
