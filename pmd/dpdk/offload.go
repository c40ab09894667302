package dpdk

import (
	"sync/atomic"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// Bits of the interface of the shim (shim.h).
const (
	workBit   = 1 << 31 // MRD_WORK
	uncounted = 1 << 31 // MRD_UNCOUNTED
)

// segmentHeadroom is the room in front of a segment that is cut here, bytes. Its frame has no other header: mbufs of devices that
// take large packets lie apart.
const segmentHeadroom = headroom

// mostLarge is the length of the longest packet, bytes: IP's 64 KiB behind Ethernet and two tags.
const mostLarge = 65535 + etherHeader + tags

// segmentsAtOnce is the number of descriptors that wait for the device at most, of a packet that is being cut.
const segmentsAtOnce = 64

// work holds packets on which the queue does in software what the device lacks an offload for. Packets keep their order: nothing is sent
// or received while a packet before it is not cut to its end.
type work struct {
	out    segment.Cutter // a packet that is being sent in segments
	outBig []byte         // its bytes
	wait   *packet.Batch  // segments that the device has not taken yet; nil while none was ever cut

	in    segment.Cutter // a packet that is being received in segments
	inBig []byte

	// Corrections of the shim's counters, which count a large packet as the device sees it.
	txPackets, txBytes, txInvalid, txInvalidBytes atomic.Uint64 // taken from the caller and cut here, or found invalid
	rxPackets, rxBytes, rxInvalid                 atomic.Uint64 // segments handed to the caller; packets that cannot be cut
	rxJoined, rxJoinedBytes                       atomic.Uint64 // packets that the shim has counted and that are cut here
}

// addTo corrects s.
func (w *work) addTo(s *pmd.Stats) {
	s.TxPackets += w.txPackets.Load()
	s.TxBytes += w.txBytes.Load()
	s.TxInvalid += w.txInvalid.Load()
	s.TxInvalidBytes += w.txInvalidBytes.Load()
	s.RxInvalid += w.rxInvalid.Load()
	s.RxPackets += w.rxPackets.Load() - w.rxJoined.Load()
	s.RxBytes += w.rxBytes.Load() - w.rxJoinedBytes.Load()
}

// holds visits the frames of segments that wait.
func (w *work) holds(visit func(off uint32)) {
	if w.wait != nil {
		for i := range w.wait.D {
			visit(w.wait.D[i].Off)
		}
	}
}

// free returns the frames of segments that wait to the pool.
func (w *work) free(pool *ring.Pool) {
	w.out.Stop()
	w.in.Stop()
	if w.wait != nil {
		pool.PutBatch(w.wait)
		w.wait.Reset()
	}
}

// cuts reports whether the queues take packets with packet.FlagOffload: where the device cuts them. Elsewhere a host cuts its own
// packets at less cost.
func (d *Device) cuts() bool {
	const need = txTSO | txChecksumTCP | txMultiSegs
	return d.info.txOffloads&need == need && !d.inside()
}

// txOffloads returns the work that the device is set up to do on packets that it sends. DPDK's TAP driver cuts large packets in
// software, by mbufs that share data: a frame lies apart from its mbuf, so its packets are cut here. UDP segmentation is always
// done here: RTE_ETH_TX_OFFLOAD_UDP_TSO is fragmentation with some drivers and segmentation with others.
func (d *Device) txOffloads() uint64 {
	if !d.cuts() {
		return 0
	}
	all := d.info.txOffloads & (txChecksumIP | txChecksumUDP | txChecksumTCP | txTSO)
	if d.driver == "net_tap" {
		all &^= txTSO
	}
	return all
}

// offloadNames renders the offloads in use, for people.
func offloadNames(s *setup) (names []string) {
	for _, o := range []struct {
		on   bool
		name string
	}{
		{s.rxOffloads&rxChecksums != 0, "rx checksum"},
		{s.txOffloads&txChecksumTCP != 0, "tx checksum"},
		{s.txOffloads&txTSO != 0, "TSO"},
	} {
		if o.on {
			names = append(names, o.name)
		}
	}
	return names
}

// SetOffload makes the queues pass large packets that the device has joined or a guest has left to it whole (packet.FlagOffload),
// or cut them, which is the default. Any goroutine may call it.
func (d *Device) SetOffload(on bool) error {
	d.large.Store(on)
	return nil
}

// CanOffload reports whether SetOffload may be called with true: the queues take such packets (pmd.CapOffload).
func (d *Device) CanOffload() bool { return d.cuts() }

// transmitWork does the work on the packet of b at one index that the device cannot do. A checksum is filled in, and the packet is then
// like any other. A packet to be cut is taken: it returns the number of its descriptors, and flushSegments sends it.
func (q *Queue) transmitWork(b *packet.Batch, at int) int {
	d := b.D[at:]
	k := packet.Chain(d)
	if k == 0 {
		return 0 // the rest of it is not there: the shim does not ask for that
	}
	d = d[:k]
	o := b.Arena.Offload(&d[0])
	d[0].Flags &^= packet.FlagOffload
	if o.GSO == packet.GSONone {
		if o.Flags&packet.OffloadNeedsChecksum != 0 {
			start := b.Arena.Headroom(&d[0])
			segment.CompleteChecksum(b.Arena, d, int(o.ChecksumFrom)-start, int(o.ChecksumAt)) // false: the sender broke it, and it is sent as it is
		}
		return 0
	}
	w := &q.work
	_, size := packet.Count(d)
	w.outBig = b.Arena.Gather(w.outBig[:0], d, mostLarge)
	for i := range d {
		q.pool.Put(d[i].Off)
	}
	w.txPackets.Add(1)
	w.txBytes.Add(size)
	if o.Flags&packet.OffloadNeedsChecksum == 0 || size > mostLarge || !w.out.Start(w.outBig, o.GSO, int(o.SegmentSize)) {
		w.txInvalid.Add(1)
		w.txInvalidBytes.Add(size)
	}
	return k
}

// flushSegments sends the segments of a packet that is being cut, and reports whether none is left.
func (q *Queue) flushSegments() bool {
	w := &q.work
	for w.out.Active() || w.wait != nil && w.wait.Len() > 0 {
		if w.wait == nil {
			w.wait = packet.NewBatch(q.pool.Arena().View(), segmentsAtOnce)
		}
		q.fill(&w.out, w.wait, 0)
		if w.wait.Len() == 0 {
			return false // no frame is free
		}
		n, _ := q.transmit(w.wait, 0, uncounted)
		if w.wait.Consume(n); n == 0 {
			return false
		}
	}
	return true
}

// fill appends segments of c to b, while b has room and the pool frames for a whole one. It returns how many.
func (q *Queue) fill(c *segment.Cutter, b *packet.Batch, stamp uint32) (n int) {
	size := b.Arena.FrameSize()
	for c.Active() {
		frames := (segmentHeadroom + c.Payload + c.MSS() + size - 1) / size
		if frames > b.Room() || frames > q.pool.Free() {
			return n
		}
		head, payload := c.Build()
		parts := [2][]byte{head, payload}
		room := segmentHeadroom
		for left := len(head) + len(payload); left > 0; room = 0 {
			off, _ := q.pool.Get()
			d := packet.Desc{Off: off + uint32(room), Len: uint16(min(left, size-room)), Stamp: stamp}
			if left -= int(d.Len); left > 0 {
				d.Flags = packet.FlagMore
			}
			for to := b.Arena.Bytes(&d); len(to) > 0; {
				if len(parts[0]) == 0 {
					parts[0] = parts[1]
				}
				k := copy(to, parts[0])
				to, parts[0] = to[k:], parts[0][k:]
			}
			b.Append(d)
		}
		c.Next()
		n++
	}
	return n
}

// finishCut hands the caller segments of a received packet that is being cut, and reports whether none is left.
func (q *Queue) finishCut(b *packet.Batch, stamp uint32) bool {
	w := &q.work
	if !w.in.Active() {
		return true
	}
	first := len(b.D)
	if frames := (segmentHeadroom + w.in.Payload + w.in.MSS() + b.Arena.FrameSize() - 1) / b.Arena.FrameSize(); frames > cap(b.D) {
		w.in.Stop() // no batch of this size holds a segment
		w.rxInvalid.Add(1)
		return true
	}
	w.rxPackets.Add(uint64(q.fill(&w.in, b, stamp)))
	_, bytes := packet.Count(b.D[first:])
	w.rxBytes.Add(bytes)
	return !w.in.Active()
}

// receiveWork does what the device has left to do on packets of b from one on. Only the last can be one that it has joined of
// segments.
func (q *Queue) receiveWork(b *packet.Batch, from int) {
	for at := from; at < len(b.D); {
		k := packet.Chain(b.D[at:])
		if d := b.D[at : at+k]; d[0].Flags.Has(packet.FlagOffload) {
			q.receiveOne(b, at, d)
		}
		at += k
	}
}

// receiveOne completes the packet d, which begins at an index of b, passes it on whole, or begins to cut it: it is then no longer in b.
func (q *Queue) receiveOne(b *packet.Batch, at int, d []packet.Desc) {
	o := b.Arena.Offload(&d[0])
	d[0].Flags &^= packet.FlagOffload
	t, ok := segment.FindTransport(b.Bytes(at))
	if !ok {
		return // neither TCP nor UDP, or in pieces: as it came
	}
	first := b.Bytes(at)
	_, size := packet.Count(d)
	if o.GSO == packet.GSONone || int(size)-t.Payload <= int(o.SegmentSize) || o.SegmentSize == 0 {
		if field := first[t.At+t.Checksum:]; t.Proto == wire.ProtoTCP || field[0]|field[1] != 0 { // UDP may have none (RFC 768)
			t.Seed(first)
			segment.CompleteChecksum(b.Arena, d, t.At, t.Checksum)
		}
		return
	}
	t.Seed(first)
	if q.dev.large.Load() {
		start := uint16(b.Arena.Headroom(&d[0]))
		d[0].Flags |= packet.FlagOffload
		b.Arena.SetOffload(&d[0], &packet.Offload{
			Flags: packet.OffloadNeedsChecksum, GSO: t.GSO, SegmentSize: o.SegmentSize,
			HeadersEnd: start + uint16(t.Payload), ChecksumFrom: start + uint16(t.At), ChecksumAt: uint16(t.Checksum),
		})
		return
	}
	w := &q.work
	w.inBig = b.Arena.Gather(w.inBig[:0], d, mostLarge)
	for i := range d {
		q.pool.Put(d[i].Off)
	}
	b.D = b.D[:at]
	w.rxJoined.Add(1)
	w.rxJoinedBytes.Add(size)
	if !w.in.Start(w.inBig, t.GSO, int(o.SegmentSize)) {
		w.rxInvalid.Add(1)
		return
	}
	q.finishCut(b, d[0].Stamp)
}
