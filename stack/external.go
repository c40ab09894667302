package stack

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// ExternalForwarder is a Handler that decides packets with FlagOffload by the first 256 bytes of each, and keeps none of them
// (packet.Hold, packet.Deliver): a gateway. The payload of a large packet then stays where its driver received it
// (packet.Arena.External), from where the kernel copies it once. What is not sent in the iteration that received
// it, the loop copies to frames.
type ExternalForwarder interface {
	Handler

	// ForwardsExternal marks the handler. It does nothing.
	ForwardsExternal()
}

// placeFunc returns what the drivers ask about payload, nil where the handler has no answer.
func (l *Loop) placeFunc() pmd.PlaceFunc {
	l.external = l.forwardsExternal() && l.sendsExternal()
	switch h := l.handler.(type) {
	case PayloadPlacer:
		return func(head []byte, size int) (pmd.Placement, int, [][]byte) {
			how, headers, pieces := h.PlacePayload(head, size)
			if how == pmd.PlaceExternal {
				how = l.leaveExternal(size)
			}
			return how, headers, pieces
		}
	case ExternalForwarder:
		return func(_ []byte, size int) (pmd.Placement, int, [][]byte) {
			return l.leaveExternal(size), 0, nil
		}
	}
	return nil
}

// forwardsExternal reports whether the handler, or one behind a Dispatcher, is an ExternalForwarder.
func (l *Loop) forwardsExternal() bool {
	if d, ok := l.handler.(*Dispatcher); ok {
		return d.forwarding != 0
	}
	_, ok := l.handler.(ExternalForwarder)
	return ok
}

// sendsExternal reports whether external payload can leave by each device: the handler may choose any.
func (l *Loop) sendsExternal() bool {
	for i := range l.out.queues {
		if l.out.queues[i].caps&pmd.CapExternal == 0 {
			return false
		}
	}
	return true
}

// leaveExternal decides whether the payload of a packet of size bytes stays with its driver. A loop of a mesh may have to hand it
// over, in frames. So its burst has only so many of such packets as the rings between loops have room for
// (congested), and none that is longer than a burst.
func (l *Loop) leaveExternal(size int) pmd.Placement {
	if !l.external {
		return pmd.PlaceInFrames
	}
	if len(l.peers) > 1 {
		frames := l.framesOf(size)
		switch {
		case frames > l.cfg.Burst:
			return pmd.PlaceInFrames
		case l.externalFrames > 0 && l.externalFrames+frames > l.cfg.Burst/2:
			return pmd.PlaceLater
		}
		l.externalFrames += frames
	}
	return pmd.PlaceExternal
}

// burstFrames returns how many frames a burst has at most when it is handed over.
func (l *Loop) burstFrames() int {
	if l.external {
		return l.cfg.Burst + l.cfg.Burst/2
	}
	return l.cfg.Burst
}

// framesOf returns how many frames a packet of size bytes needs at most that has headroom in the first one.
func (l *Loop) framesOf(size int) int { return size/l.cfg.Pool.Arena().FrameSize() + 2 }

// keepExternal copies to frames what waits in queues and has external payload, at the end of the iteration that received it: from
// then on that memory is the driver's. What finds no room is dropped, as a packet in frames would have been.
func (o *Output) keepExternal() {
	for i := range o.queues {
		q := &o.queues[i]
		if q.out.Len() == 0 {
			continue
		}
		o.scratch = append(o.scratch[:0], q.out.D...)
		q.out.Reset()
		for d := o.scratch; len(d) > 0; {
			n := max(1, packet.Chain(d))
			q.out.D = o.appendInFrames(q.out.D, d[:n], q.out.Room()-len(d)+n, packet.DropTxFull)
			d = d[n:]
		}
	}
}

// appendInFrames appends the descriptors d of one packet to dst, and for external payload those of frames that it is copied to: room
// descriptors at most. It drops the packet where there is no room, for the reason full, or no frame.
func (o *Output) appendInFrames(dst, d []packet.Desc, room int, full packet.Verdict) []packet.Desc {
	var rest []byte
	if d[0].Flags.Has(packet.FlagOffload) {
		rest = o.Arena().External(&d[0])
	}
	if rest == nil {
		return append(dst, d...)
	}
	size := o.pool.Arena().FrameSize()
	frames := (len(rest) + size - 1) / size
	switch {
	case 1+frames > room:
		o.drop(d, full)
		return dst
	case frames > o.pool.Free():
		o.drop(d, packet.DropNoFrame)
		return dst
	}
	o.Arena().ClearExternal(&d[0])
	first := d[0]
	first.Flags |= packet.FlagMore
	dst = append(dst, first)
	for _, off := range o.pool.GetBatch(frames) {
		piece := packet.Desc{Off: off, Len: uint16(min(size, len(rest))), Port: first.Port, Stamp: first.Stamp, Verdict: first.Verdict}
		rest = rest[copy(o.Arena().Bytes(&piece), rest):]
		if len(rest) > 0 {
			piece.Flags = packet.FlagMore
		}
		dst = append(dst, piece)
	}
	return dst
}
