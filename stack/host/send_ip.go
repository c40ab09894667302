package host

import (
	"slices"

	"github.com/millrace/millrace/packet"
)

// ipOutput implements ip.Output: for packets of the network layer itself, for fragments, and for packets
// that waited for a neighbour.
type ipOutput struct{ h *Host }

// ipFrame is where ip writes the next packet. A frame that ip asks for and does not send stays reserved
// for the next one: between Frame and Send it belongs to the host, see Holds.
type ipFrame struct {
	off      uint32
	reserved bool   // off is a frame
	long     bool   // the packet does not fit a frame, and lies in linear
	linear   []byte // for that
}

// Frame implements ip.Output: it returns room for n bytes, or nil where there is no frame.
func (o ipOutput) Frame(dev uint8, n int) []byte {
	h := o.h
	l := &h.ipFrame
	if l.long = n > h.frameRoom(); l.long {
		l.linear = slices.Grow(l.linear[:0], n)[:n]
		return l.linear
	}
	if !l.reserved {
		frames := h.reserve(dev, 1)
		if frames == nil {
			return nil
		}
		l.off, l.reserved = frames[0], true
	}
	d := packet.Desc{Off: l.off + headroom, Len: uint16(n)}
	return h.arena.Bytes(&d)
}

// Send implements ip.Output: it transmits the first n bytes of the room that Frame returned. A long packet is copied into a chain
// of frames; where there are too few it is dropped, because Frame could not know.
func (o ipOutput) Send(dev uint8, n int) {
	h := o.h
	l := &h.ipFrame
	if !l.long {
		l.reserved = false
		h.tx = append(h.tx, packet.Desc{Off: l.off + headroom, Len: uint16(n)})
		h.transmit(dev)
		return
	}
	frames := h.reserve(dev, h.frames(n))
	if frames == nil {
		h.txDropped[packet.DropNoFrame]++
		return
	}
	h.chain(frames, l.linear[:n])
	h.transmit(dev)
}

// Holds implements ring.Holder: the frame that ip has asked for and not sent.
func (h *Host) Holds(visit func(off uint32)) {
	if h.ipFrame.reserved {
		visit(h.ipFrame.off)
	}
}
