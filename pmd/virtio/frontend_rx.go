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
	ok := startCut(&q.inCut, q.inBig, h)
	defer q.inCut.Stop()
	if ok && q.dev.offload.Load() {
		whole := *h
		whole.headersEnd, whole.checksumFrom = uint16(q.inCut.Payload), uint16(q.inCut.Transport)
		whole.setOffload(q.mem, &b.D[first])
		return
	}
	stamp := b.D[first].Stamp
	q.discard(b, first)
	if ok {
		size := q.mem.FrameSize()
		each := (q.dev.cfg.Headroom + q.inCut.Payload + q.inCut.MSS() + size - 1) / size
		n := each * q.inCut.Segments()
		ok = n <= b.Room() && n <= q.pool.Free()
	}
	if !ok {
		q.count.RxInvalid.Add(1)
		return
	}
	for q.inCut.Active() {
		head, payload := q.inCut.Build()
		b.D = q.frames(b.D, head, payload, stamp)
		q.inCut.Next()
	}
}
