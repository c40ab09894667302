package afxdp

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// probeEvery is the interval at which an idle queue asks for the state of its link, ns: the rings stay empty and report
// nothing when an interface goes down.
const probeEvery = clock.Time(10e6)

// refillBatch is the number of frames that the fill ring may lack before it is refilled: few enough to keep
// it full, many enough to share the cost of the store to its index, whose cache line the kernel reads.
const refillBatch = 32

// Rx implements pmd.Driver. A packet that has more frames than b can ever hold is dropped and counted as
// RxInvalid. It also reclaims sent frames, so that a loop which only receives does not starve its pool.
func (q *Queue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if q.closed {
		return 0, q.fail("rx", pmd.ErrClosed)
	}
	// Descriptors are offsets: in another arena they would name other frames.
	if b.Arena != q.arena.View() {
		return 0, q.fail("rx", errArena)
	}
	b.Base = int64(now)
	if q.txHeld.n > 0 {
		q.reap()
		if q.unsent { // by the last Tx, and there may be no other
			q.kick()
		}
	}
	q.rxTarget = q.depth.Packets(q.rxMost)
	q.refill() // before the next packets are taken: see refill
	room := b.Room()
	n := q.rx.ready(uint32(room))
	if n == 0 && room > 0 {
		return 0, q.idle(now)
	}
	if q.multi {
		n = q.wholePackets(n, room == cap(b.D))
	}
	got := q.take(uint32(now), b, n)
	q.rx.release(n) // after the entries were read: the kernel may overwrite them from now on
	if q.rxHeld.n < q.rxTarget/2 {
		q.refill() // a fill ring that a burst empties cannot wait for the caller
	}
	return got, nil
}

// take moves n entries of the rx ring to b and returns how many of them were valid.
func (q *Queue) take(stamp uint32, b *packet.Batch, n uint32) int {
	start := len(b.D)
	for i := uint32(0); i < n; i++ {
		i += q.takeValid(stamp, b, i, n)
		if i < n {
			q.discard(q.rx.desc(q.rx.head + i))
			q.stat.rxInvalid.Add(1)
		}
	}
	return len(b.D) - start
}

// takeValid moves entries i to n of the rx ring to b, up to the first that is not a packet inside of
// a frame that the kernel holds. It returns how many it moved. Fields are copied to locals and written
// back once: a store to a descriptor might alias them, so the compiler would load them for each packet.
func (q *Queue) takeValid(stamp uint32, b *packet.Batch, i, n uint32) uint32 {
	inFrame, size, held := uint64(q.frame-1), uint64(q.frame), q.rxHeld
	ring, head := q.rx.entries, q.rx.head+i
	out := b.D[len(b.D):][:n-i]
	k, more, bytes := 0, uint32(0), uint64(0)
	for ; k < len(out); k++ {
		x := ring.desc(head + uint32(k))
		addr, length := x.Addr, uint64(x.Len)
		if addr&inFrame+length > size || !held.remove(addr) {
			break
		}
		goesOn := x.Options & unix.XDP_PKT_CONTD // bit 0
		out[k] = packet.Desc{Off: uint32(addr), Len: uint16(length), Stamp: stamp, Flags: packet.FlagMore * packet.Flags(goesOn)}
		more += goesOn
		bytes += length
	}
	b.D = b.D[:len(b.D)+k]
	q.rxHeld.n -= k
	q.stat.rxPackets.Add(uint64(k) - uint64(more))
	q.stat.rxBytes.Add(bytes)
	return uint32(k)
}

// discard returns the frame of a received entry to the pool, if the kernel held it. An address that it did not hold may be
// a frame of another owner, and is only counted.
func (q *Queue) discard(x *unix.XDPDesc) {
	if q.rxHeld.remove(x.Addr) {
		q.rxHeld.n--
		q.pool.Put(uint32(x.Addr))
	}
}

// wholePackets returns how many of the first n entries of the rx ring make whole packets: packet.Whole on
// the ring's own descriptors. A packet that does not end within an empty batch never fits and is dropped.
func (q *Queue) wholePackets(n uint32, empty bool) uint32 {
	// Only the end can be incomplete, so the search goes backwards and mostly looks at one entry.
	last := n
	for last > 0 && q.rx.desc(q.rx.head+last-1).Options&unix.XDP_PKT_CONTD != 0 {
		last--
	}
	if last == 0 && empty {
		q.dropLong()
	}
	return last
}

// dropLong drops the packet at the head of the rx ring if all of it is there. The kernel publishes the entries
// of a packet one by one, so its end may be missing yet.
func (q *Queue) dropLong() {
	n := q.rx.ready(q.rx.size)
	for i := range n {
		if q.rx.desc(q.rx.head+i).Options&unix.XDP_PKT_CONTD != 0 {
			continue
		}
		for j := range i + 1 {
			q.discard(q.rx.desc(q.rx.head + j))
		}
		q.rx.release(i + 1)
		q.stat.rxInvalid.Add(1)
		return
	}
}

// refill passes free frames to the kernel until it holds rxTarget. There is room for them: what lies in
// the fill ring is held, and rxTarget is at most the ring's size. So the kernel's index, in a cache line
// that it writes all the time, need not be read.
//
// Rx calls it before it takes packets: the caller has then just freed the packets of the last Rx, so those
// frames go back as they came. Called after, it would take as many frames as this burst has packets from a
// pool on whose top lie those of the last burst. Bursts differ in size, so their order would be random after
// some million packets. In copy mode the kernel reaches frames through pages of 4 KiB and keeps 128 bytes or
// more about each: in random order each packet misses the TLB and the cache for them.
func (q *Queue) refill() {
	lack := q.rxTarget - q.rxHeld.n
	if lack < min(refillBatch, q.rxTarget) {
		return
	}
	offs := q.pool.GetBatch(lack)
	if len(offs) < lack {
		q.stat.starved.Add(1) // the rest is refilled by a later call
	}
	if len(offs) == 0 {
		return
	}
	ring, head, held := q.fill.entries, q.fill.head, q.rxHeld
	for i, off := range offs {
		held.add(uint64(off))
		*ring.addr(head + uint32(i)) = uint64(off)
	}
	q.rxHeld.n += len(offs)
	q.fill.publish(uint32(len(offs)))
}

// idle is Rx without a packet: it keeps the rings moving and, every probeEvery, checks the link.
func (q *Queue) idle(now clock.Time) error {
	// Only a zero-copy device waits for the fill ring. needWakeup reads a cache line that the kernel
	// writes, so it is not read in copy mode.
	if q.busyPoll || q.zeroCopy && q.fill.needWakeup() && q.fill.pending() > 0 {
		q.wakeRx()
	}
	if q.txHeld.n > 0 && q.tx.pending() > 0 {
		q.kick()
	}
	if now >= q.nextProbe {
		q.nextProbe = now + probeEvery
		q.wakeRx()
	}
	return q.linkErr
}
