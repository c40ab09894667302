package afpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/pmd/vnet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// Queue is one packet socket of a Device: a pmd.Driver.
type Queue struct {
	dev  *Device
	id   int
	pool *ring.Pool
	link link

	rx      int            // -1 once closed
	ring    rxRing         // nil once closed
	packet  received       // described by peek; borrows the ring's memory, or scratch
	pending bool           // packet has been described, and not all of it is delivered
	cut     segment.Cutter // of a large packet
	pass    passage        // how packet is passed on
	tag     [4]byte        // of packet
	parts   [4][]byte
	in      inbox
	scratch []byte // holds a queued packet that is cut into segments; nil until there is one

	placer   pmd.Placer
	external external

	out   *vnet.Sender // apart from rx, whose PACKET_VNET_HDR is always on
	count pmd.Counters

	mu     sync.Mutex // guards rx and missed: Info runs in any goroutine, also while Close does
	missed uint64     // sum of the drops that the kernel has reported
	info   pmd.Info   // what does not change
}

// openQueue opens a receiving and a sending socket. op names the step that failed, from which explain derives the remedy.
// On an error nothing stays open.
func openQueue(d *Device, id int, pool *ring.Pool) (q *Queue, op string, err error) {
	q = &Queue{dev: d, id: id, pool: pool}
	q.link = link{index: d.iface.index}
	if q.rx, q.ring, op, err = rxSocket(&d.cfg, d.iface); err != nil {
		return nil, op, err
	}
	if q.out, err = vnet.Open(d.iface.index, d.cfg.QdiscBypass, d.cfg.Offload); err != nil {
		q.ring.unmap()
		unix.Close(q.rx)
		return nil, "socket", err
	}
	modes := q.ring.String() + ", copy"
	if len(d.cfg.Pools) > 1 {
		modes += fmt.Sprintf(", fanout by hash over %d queues", len(d.cfg.Pools))
	}
	if d.cfg.Exclusive {
		modes += ", hidden from the kernel"
	} else {
		modes += ", seen by the kernel too"
	}
	q.info = pmd.Info{
		Driver: "afpacket", Device: d.cfg.Interface, Queue: id, MTU: d.iface.mtu, MAC: d.iface.mac,
		Caps: pmd.CapPoll | pmd.CapMultiBuf, FD: q.rx, Negotiated: modes,
	}
	if d.cfg.Offload {
		q.info.Caps |= pmd.CapOffload | pmd.CapExternal
		if vnet.SegmentsUDP() {
			q.info.Caps |= pmd.CapOffloadUDP
		}
		if d.cfg.Headroom >= packet.ExternalHeadroom {
			q.info.Placer = &q.placer
		}
		q.info.Negotiated += ", segmentation offload"
	}
	return q, "", nil
}

// Rx implements pmd.Driver. A packet that needs more frames than b has room for, or the pool has
// free, stays in the kernel's ring. After ErrDown it works again once the interface is up. ErrGone
// is final: an interface of the same name that appears later has another index.
func (q *Queue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if q.ring == nil {
		return 0, q.fail("rx", pmd.ErrClosed)
	}
	b.Base = int64(now)
	q.external.reclaim()
	first := b.Len()
	for b.Room() > 0 && (q.pending || q.peek()) && q.deliver(b, uint32(now)) {
	}
	n := b.Len() - first
	if n > 0 {
		q.link.err = nil
		q.count.Rx(b.D[first:])
		return n, nil
	}
	return 0, q.idle(now)
}

// peek describes the next packet and prepares it: its checksum, its segments. Invalid packets are counted and
// skipped. The checksum is completed in the ring itself, whose memory is the driver's until next.
func (q *Queue) peek() bool {
	for q.ring.peek(&q.packet) {
		p := &q.packet
		q.pass = p.passage(q.dev.large.Load())
		if q.pass == passWhole || q.complete(p) && q.prepare(p) {
			q.pending = true
			return true
		}
		q.ring.next()
	}
	return false
}

// prepare makes a packet one, or several, that are complete. It reports false, and counts, where that cannot be.
func (q *Queue) prepare(p *received) bool {
	ok := len(p.data) >= wire.EthernetLen
	switch {
	case p.gso != packet.GSONone:
		if p.size > mostPiece {
			p.removeJumbo()
		}
		ok = ok && q.cut.Start(p.data, p.gso, p.mss)
		if ok && q.pass == passPieces {
			q.cut.Widen(mostPiece - 2*vlanTag)
		}
	case p.partial:
		ok = ok && p.fillChecksum()
	}
	if !ok {
		q.count.RxInvalid.Add(1)
	}
	return ok
}

// complete makes all of a packet lie in p.data: a queued one is received into scratch. It reports false, and
// counts, where the rest of the packet is lost. Without a copy in the queue that had no room.
func (q *Queue) complete(p *received) bool {
	if !p.queued {
		if len(p.data) < p.size {
			q.count.RxMissed.Add(1)
			return false
		}
		return true
	}
	if q.scratch == nil {
		q.scratch = make([]byte, mostPacket)
	}
	q.in.begin()
	q.in.add(q.scratch)
	p.queued = false
	if !q.receive(min(p.size, len(q.scratch))) {
		return false
	}
	p.data = q.scratch[:p.size]
	return true
}

// receive takes the queued packet into the pieces of q.in, which have room for n bytes. It reports false, and
// counts, where they do not hold all of it.
func (q *Queue) receive(n int) bool {
	q.count.Wakeups.Add(1)
	got, errno := q.in.receive(q.rx)
	if errno != 0 || got != q.packet.size || got > n {
		q.count.RxInvalid.Add(1)
		return false
	}
	return true
}

// deliver passes the packet, or as many of its segments as fit, to b. It reports false when room or frames ran out; the
// next call goes on at the same segment, since the ring's memory stays the driver's until all of the packet is copied.
func (q *Queue) deliver(b *packet.Batch, stamp uint32) bool {
	p := &q.packet
	if q.pass == passWhole && p.queued && !p.tagged {
		switch q.placePayload(b, stamp) {
		case pmd.PlaceDirect:
			q.pending = false
			q.ring.next()
			return true
		case pmd.PlaceLater:
			return false
		}
	}
	if q.pass == passAlone || q.pass == passWhole {
		if !q.copyPacket(b, stamp, p.data, nil, p.size) {
			return false
		}
	} else {
		for ; q.cut.Active(); q.cut.Next() {
			head, payload := q.cut.Build()
			first := b.Len()
			if !q.copyPacket(b, stamp, head, payload, len(head)+len(payload)) {
				return false
			}
			if len(payload) > q.cut.MSS() && b.Len() > first {
				q.setOffload(b.Arena, &b.D[first], q.cut.Payload, q.cut.First())
			}
		}
	}
	q.pending = false
	q.ring.next()
	return true
}

// copyPacket copies one packet of total bytes into frames, and puts back the VLAN tag that the kernel removed (802.1Q:
// behind the two addresses). It reports false when there is no room. A packet that will never fit is
// counted as RxInvalid and skipped.
func (q *Queue) copyPacket(b *packet.Batch, stamp uint32, head, payload []byte, total int) bool {
	q.parts = [4][]byte{head, nil, nil, payload}
	if q.packet.tagged {
		binary.BigEndian.PutUint16(q.tag[0:], q.packet.tpid)
		binary.BigEndian.PutUint16(q.tag[2:], q.packet.tci)
		q.parts = [4][]byte{head[:macs], q.tag[:], head[macs:], payload}
		total += len(q.tag)
	}
	size, headroom := q.pool.Arena().FrameSize(), q.dev.cfg.Headroom
	frames := (total + headroom + size - 1) / size
	if frames > b.Room() || frames > q.pool.Free() {
		if frames > cap(b.D) || frames > q.pool.Size() {
			q.skip()
			return true
		}
		return false
	}
	first := b.Len()
	q.take(b, stamp, total)
	if q.packet.queued {
		if !q.gather(b, first) {
			return true
		}
	} else {
		q.scatter(b.Arena, b.D[first:])
	}
	if q.pass == passWhole {
		q.setOffload(b.Arena, &b.D[first], q.packet.headers, true)
	}
	return true
}

const macs = 12 // bytes of the two link addresses, behind which a VLAN tag lies

// skip counts a packet that will never fit and, where it is queued, takes it from the queue.
func (q *Queue) skip() {
	if q.packet.queued {
		q.in.begin()
		q.receive(0)
		return
	}
	q.count.RxInvalid.Add(1)
}

// take appends as many frames to b as total bytes need, headroom in front of the first alone. copyPacket has checked that
// the pool has them. They belong to the caller of Rx from then on.
func (q *Queue) take(b *packet.Batch, stamp uint32, total int) {
	headroom, size := q.dev.cfg.Headroom, q.pool.Arena().FrameSize()
	for total > 0 {
		off, _ := q.pool.Get()
		d := packet.Desc{Off: off + uint32(headroom), Len: uint16(min(total, size-headroom)), Stamp: stamp}
		headroom = 0
		if total -= int(d.Len); total > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
}

// scatter copies the parts into the frames of d.
func (q *Queue) scatter(arena *packet.Arena, d []packet.Desc) {
	part := 0
	for i := range d {
		for to := arena.Bytes(&d[i]); len(to) > 0; {
			n := copy(to, q.parts[part])
			to, q.parts[part] = to[n:], q.parts[part][n:]
			if len(q.parts[part]) == 0 && part < len(q.parts)-1 {
				part++
			}
		}
	}
}

// gather receives the queued packet straight into the frames behind the first descriptors of b, around the place of its VLAN
// tag. Where that fails it has counted the packet, and the frames are the pool's again.
func (q *Queue) gather(b *packet.Batch, first int) bool {
	q.in.begin()
	for i := first; i < len(b.D); i++ {
		to := b.Bytes(i)
		if i == first && q.packet.tagged {
			q.in.add(to[:macs])
			to = to[macs+copy(to[macs:], q.tag[:]):]
		}
		q.in.add(to)
	}
	if q.receive(q.packet.size) {
		return true
	}
	for _, d := range b.D[first:] {
		q.pool.Put(d.Off)
	}
	b.D = b.D[:first]
	return false
}

// setOffload leaves checksum and segmentation of the packet that starts with d to the device that sends it. The offsets of
// packet.Offload count from the start of the frame, those of the kernel from the Ethernet header without a tag: both the
// headroom and a tag that was put back move them. Each segment repeats so many bytes of headers. CWR, which
// packet.GSOECN is about, is in the first piece alone.
func (q *Queue) setOffload(arena *packet.Arena, d *packet.Desc, headers int, first bool) {
	d.Flags |= packet.FlagOffload
	p, at := &q.packet, arena.Headroom(d)
	if p.tagged {
		at += len(q.tag)
	}
	kind := p.kind
	if !first {
		kind = p.gso
	}
	arena.SetOffload(d, &packet.Offload{
		Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: kind,
		HeadersEnd: uint16(at + headers), SegmentSize: uint16(p.mss),
		ChecksumFrom: uint16(at + p.csumStart), ChecksumAt: uint16(p.csumOffset),
	})
}

// idle returns the state of the link while no packet arrives: the ring reports neither that the interface went down nor
// that it is gone.
func (q *Queue) idle(now clock.Time) error {
	if err := q.link.check(q.rx, now); err != nil {
		return q.dev.explain("rx", q.id, err)
	}
	return nil
}

// Info implements pmd.Driver.
func (q *Queue) Info() pmd.Info {
	i := q.info
	i.Stats = q.count.Stats()
	q.mu.Lock()
	q.readDrops()
	i.Stats.RxMissed += q.missed
	q.mu.Unlock()
	return i
}

// readDrops adds the drops of the kernel since the last call: PACKET_STATISTICS resets its counters when they are read, so
// that two readers without mu would each miss the other's. The caller holds mu.
func (q *Queue) readDrops() {
	if q.rx < 0 {
		return
	}
	if st, err := unix.GetsockoptTpacketStatsV3(q.rx, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		q.missed += uint64(st.Drops)
	}
}

// Holds implements ring.Holder. The driver holds no frame between two calls: received packets wait
// in the kernel's ring, and sent ones have been copied when Tx returns.
func (q *Queue) Holds(func(off uint32)) {}

// Close implements pmd.Driver. Packets in the kernel's ring are lost.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rx < 0 {
		return nil
	}
	q.readDrops()
	q.ring.unmap()
	q.ring = nil
	q.external.close()
	err := errors.Join(q.out.Close(), unix.Close(q.rx))
	q.rx = -1
	return err
}

// fail wraps an error with the device and the queue.
func (q *Queue) fail(op string, err error) error {
	return &pmd.OpError{Op: op, Device: q.dev.cfg.Interface, Queue: q.id, Err: err}
}
