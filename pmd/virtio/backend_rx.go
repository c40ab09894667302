package virtio

import (
	"github.com/millrace/millrace/packet"
)

// receivePartial receives a packet of n bytes whose header h leaves work to the device: large ones pass whole where all devices of the loop take
// them (SetOffload), the others are completed or segmented here.
func (q *BackendQueue) receivePartial(b *packet.Batch, stamp uint32, h *header, n int) bool {
	if n > maxLarge {
		q.count.RxInvalid.Add(1)
		return true
	}
	if h.gso == packet.GSONone {
		return q.receiveUnsummed(b, stamp, h, n)
	}
	if cap(q.inBig) < n {
		q.inBig = make([]byte, 0, maxLarge)
	}
	q.inBig = q.inBig[:n]
	gather(q.inBig, q.chain.In, q.header)
	if !startCut(&q.inCut, q.inBig, h) {
		q.count.RxInvalid.Add(1)
		return true
	}
	defer q.inCut.Stop()
	if q.dev.offload.Load() {
		whole := *h
		whole.headersEnd = uint16(q.inCut.Payload)
		whole.checksumFrom, whole.checksumAt = uint16(q.inCut.Transport), h.checksumAt
		return q.fill(b, stamp, n, &whole)
	}
	return q.fillSegments(b, stamp)
}

// receiveUnsummed receives a packet and completes its checksum.
func (q *BackendQueue) receiveUnsummed(b *packet.Batch, stamp uint32, h *header, n int) bool {
	var head [22]byte
	gather(head[:], q.chain.In, q.header)
	if n > limit(head[:min(n, len(head))], q.dev.cfg.MTU) {
		q.count.RxInvalid.Add(1)
		return true
	}
	first := b.Len()
	if !q.fill(b, stamp, n, nil) {
		return false
	}
	if first < b.Len() && !completeChecksum(q.mem, b.D[first:], h) {
		for _, d := range b.D[first:] {
			q.pool.Put(d.Off)
		}
		b.D = b.D[:first]
		q.count.RxInvalid.Add(1)
	}
	return true
}

// fillSegments cuts the packet of inCut into frames; false means that there is no room for all of them.
func (q *BackendQueue) fillSegments(b *packet.Batch, stamp uint32) bool {
	size := q.mem.FrameSize()
	each := (q.dev.cfg.Headroom + q.inCut.Payload + q.inCut.MSS() + size - 1) / size
	frames := each * q.inCut.Segments()
	if frames > cap(b.D) {
		q.count.RxInvalid.Add(1)
		return true
	}
	if frames > b.Room() || frames > q.pool.Free() {
		return false
	}
	for q.inCut.Active() {
		head, payload := q.inCut.Build()
		parts := [2][]byte{head, payload}
		at, room := 0, q.dev.cfg.Headroom
		for left := len(head) + len(payload); left > 0; {
			off, _ := q.pool.Get()
			d := packet.Desc{Off: off + uint32(room), Len: uint16(min(left, size-room)), Stamp: stamp}
			if left -= int(d.Len); left > 0 {
				d.Flags = packet.FlagMore
			}
			b.Append(d)
			gather(q.mem.Bytes(&d), parts[:], at)
			at += int(d.Len)
			room = 0
		}
		q.inCut.Next()
	}
	return true
}
