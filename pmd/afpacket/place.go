package afpacket

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// placePayload receives the payload of the queued packet straight to where the transport wants it (pmd.Placer), and its
// headers into a frame. The result is that of Place, but never PlaceLater for the first packet of a burst, which
// would wait for ever.
func (q *Queue) placePayload(b *packet.Batch, stamp uint32) pmd.Placement {
	if q.pool.Free() == 0 {
		return pmd.PlaceInFrames
	}
	p := &q.packet
	how, headers, pieces := q.placer.Place(p.data, p.size)
	switch {
	case how == pmd.PlaceLater && b.Len() == 0:
		return pmd.PlaceInFrames
	case how != pmd.PlaceDirect:
		return how
	}
	first := b.Len()
	q.take(b, stamp, headers)
	q.in.begin()
	q.in.add(b.Bytes(first))
	for _, piece := range pieces {
		q.in.add(piece)
	}
	d := &b.D[first]
	if !q.receive(p.size) { // counted; the transport forgets the pieces
		q.pool.Put(d.Off)
		b.D = b.D[:first]
		return pmd.PlaceDirect
	}
	q.setOffload(b.Arena, d)
	b.Arena.SetPlaced(d, p.size-headers)
	q.count.RxPlaced(p.size - headers)
	return pmd.PlaceDirect
}
