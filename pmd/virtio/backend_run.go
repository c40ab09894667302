package virtio

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// Small packets, which cost the most for each byte, take a short way: runs of buffers of one descriptor each, to and from frames.
// Whatever is different (several buffers, an offload, a large packet, an error) ends a run and goes the long way.

// receiveRun receives packets of one buffer and one frame each, and reports whether there were any.
func (q *BackendQueue) receiveRun(b *packet.Batch, stamp uint32) bool {
	r, headroom := &q.run, q.dev.cfg.Headroom
	most := min(b.Room(), q.pool.Free())
	n := q.in.TakeRun(r, most, false, uint32(q.header+minFrame))
	if n == 0 {
		return false
	}
	longest := min(q.dev.cfg.MTU+minFrame, q.mem.FrameSize()-headroom)
	good := 0
	for ; good < n; good++ {
		p := r.Bytes(good)
		if binary.LittleEndian.Uint16(p)&needsWork != 0 || len(p)-q.header > longest {
			break
		}
	}
	if q.in.Untake(r, good); good == 0 {
		return false
	}
	first := len(b.D)
	for i, off := range q.pool.GetBatch(good) {
		// A packet is incomplete until all of it is copied: a fault meanwhile leaves what countRx takes away.
		b.D = append(b.D, packet.Desc{Off: off + uint32(headroom), Len: uint16(len(r.Bytes(i)) - q.header), Stamp: stamp, Flags: packet.FlagMore})
	}
	for i := range b.D[first:] {
		d := &b.D[first+i]
		copy(q.mem.Bytes(d), r.Bytes(i)[q.header:])
		d.Flags = 0
	}
	q.in.ReturnRun(r, q.zeros[:good])
	return true
}

// minFrame is the length of the shortest packet: an Ethernet header.
const minFrame = 14

// needsWork are the bits of the first two bytes of a header that leave work to the device: an incomplete checksum, any segmentation.
const needsWork = packet.OffloadNeedsChecksum | 0xff<<8

// transmitRun sends packets of one frame each from the front of d to one buffer each, and returns how many.
func (q *BackendQueue) transmitRun(d []packet.Desc) int {
	longest, m := uint16(min(q.dev.cfg.MTU+minFrame, 1<<16-1)), 0
	for ; m < min(len(d), vring.RunSize); m++ {
		if d[m].Flags&(packet.FlagMore|packet.FlagOffload) != 0 || d[m].Len < minFrame || d[m].Len > longest {
			break
		}
	}
	if m == 0 {
		return 0
	}
	r := &q.run
	n := q.out.TakeRun(r, m, true, uint32(q.header+minFrame))
	for i := range n {
		to, from := r.Bytes(i), q.mem.Bytes(&d[i])
		size := q.header + len(from)
		if size > len(to) {
			q.out.Untake(r, i)
			n = i
			break
		}
		// A complete packet in one buffer: all of the header is 0 but the number of buffers, which the short form lacks.
		binary.LittleEndian.PutUint64(to, 0)
		binary.LittleEndian.PutUint16(to[8:], 0)
		if q.header == maxHeader {
			binary.LittleEndian.PutUint16(to[10:], 1)
		}
		copy(to[q.header:], from)
		q.written[i] = uint32(size)
	}
	q.out.ReturnRun(r, q.written[:n])
	return n
}
