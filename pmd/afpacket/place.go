package afpacket

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// placePayload receives the payload of the queued packet straight to where it is used (pmd.Placer): where the transport
// wants it, or the external buffer. The headers go to a frame. The result is that of Place, but never PlaceLater for the
// first packet of a burst, which would wait for ever.
func (q *Queue) placePayload(b *packet.Batch, stamp uint32) pmd.Placement {
	if q.pool.Free() == 0 {
		return pmd.PlaceInFrames
	}
	p := &q.packet
	how, headers, pieces := q.placer.Place(p.data, p.size)
	first := b.Len()
	switch how {
	case pmd.PlaceLater:
		if first == 0 {
			return pmd.PlaceInFrames
		}
		return pmd.PlaceLater
	case pmd.PlaceDirect:
		if q.fetch(b, stamp, headers, pieces...) {
			b.Arena.SetPlaced(&b.D[first], p.size-headers)
		}
		return pmd.PlaceDirect
	case pmd.PlaceExternal:
		return q.leave(b, stamp)
	}
	return how
}

// fetch receives the queued packet: its first bytes into a frame, and the others into pieces, which hold just that. Where that fails it
// has counted the packet, and the frame is the pool's again.
func (q *Queue) fetch(b *packet.Batch, stamp uint32, head int, pieces ...[]byte) bool {
	p, first := &q.packet, b.Len()
	q.take(b, stamp, head)
	q.in.begin()
	q.in.add(b.Bytes(first))
	for _, piece := range pieces {
		q.in.add(piece)
	}
	d := &b.D[first]
	if !q.receive(p.size) {
		q.pool.Put(d.Off)
		b.D = b.D[:first]
		return false
	}
	q.setOffload(b.Arena, d, p.headers, true)
	q.count.RxPlaced(p.size - head)
	return true
}

// externalHead is the number of bytes of a packet with external payload that lie in its frame: all headers that a handler reads or rewrites.
const externalHead = 256

// leave receives the queued packet with its payload into the external buffer. A burst has one such packet, since more
// buffers would be in no cache when they are sent. Measured, one stream, own CPU ns/byte: 0.48 with one buffer, 0.50 with two,
// 0.54 in frames.
func (q *Queue) leave(b *packet.Batch, stamp uint32) pmd.Placement {
	n := q.packet.size - externalHead
	switch {
	case n <= 0 || n > externalBuffer || !q.external.open():
		return pmd.PlaceInFrames
	case q.external.used > 0:
		return pmd.PlaceLater
	}
	first, rest := b.Len(), q.external.mem[:n]
	if q.fetch(b, stamp, externalHead, rest) {
		q.external.used = n
		b.Arena.SetExternal(&b.D[first], rest)
	}
	return pmd.PlaceDirect
}

// externalBuffer holds what any large packet that passes whole has behind its first bytes.
const externalBuffer = 64 << 10

// external is the buffer of a queue for payload that stays with the driver.
type external struct {
	mem  []byte // outside of the Go heap (packet.Arena.SetExternal); nil until there is a packet
	used int    // bytes of the packet that the last Rx has passed on
}

// open maps the buffer, once, and reports whether it is there.
func (e *external) open() bool {
	if e.mem == nil {
		e.mem, _ = unix.Mmap(-1, 0, externalBuffer, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	}
	return e.mem != nil
}

// reclaim makes the buffer the driver's again: its packet has been sent, dropped or copied.
func (e *external) reclaim() {
	ring.Poison(e.mem[:e.used])
	e.used = 0
}

// close unmaps the buffer.
func (e *external) close() {
	if e.mem != nil {
		_ = unix.Munmap(e.mem)
		e.mem = nil
	}
}
