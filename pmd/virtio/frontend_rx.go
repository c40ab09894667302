package virtio

import "github.com/millrace/millrace/packet"

// largeFrames bounds the frames that segments of one large packet take, and the descriptors: 64 KiB in segments of 536 bytes.
const largeFrames = 128

// roomForLarge reports whether a large packet may be received: where it is cut, its segments need frames and descriptors.
func (q *FrontendQueue) roomForLarge(b *packet.Batch) bool {
	return q.dev.offload.Load() || q.pool.Free() >= largeFrames && b.Room() >= min(largeFrames, cap(b.D))
}

// finishLarge passes a large packet, which is that of b from first on, or cuts it.
func (q *FrontendQueue) finishLarge(b *packet.Batch, first int, h *header) {
	q.inBig = q.mem.Gather(q.inBig[:0], b.D[first:], maxLarge)
	ok := q.inCut.start(q.inBig, h)
	defer q.inCut.stop()
	if ok && q.dev.offload.Load() {
		whole := *h
		whole.headersEnd, whole.checksumFrom = uint16(q.inCut.payload), uint16(q.inCut.l4)
		whole.setOffload(q.mem, &b.D[first])
		return
	}
	stamp := b.D[first].Stamp
	q.discard(b, first)
	if ok {
		size := q.mem.FrameSize()
		each := (q.dev.cfg.Headroom + q.inCut.payload + q.inCut.mss + size - 1) / size
		n := each * q.inCut.segments()
		ok = n <= b.Room() && n <= q.pool.Free()
	}
	if !ok {
		q.count.RxInvalid.Add(1)
		return
	}
	for q.inCut.active() {
		head, payload := q.inCut.build()
		b.D = q.frames(b.D, head, payload, stamp)
		q.inCut.next()
	}
}
