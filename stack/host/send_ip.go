package host

import (
	"slices"

	"github.com/millrace/millrace/packet"
)

// ipOutput is the host as ip sees it: for what the node itself has to say, for fragments, and for packets
// that waited for a neighbour.
type ipOutput struct{ h *Host }

// ipFrame is the frame that ip is writing.
type ipFrame struct {
	off      uint32
	reserved bool   // off is a frame that nothing was sent in
	long     bool   // what is written does not fit a frame, and lies in line
	line     []byte // for that
}

// Frame implements ip.Output.
func (o ipOutput) Frame(port uint8, n int) []byte {
	h := o.h
	l := &h.ipFrame
	if l.long = n > h.frameRoom(); l.long {
		l.line = slices.Grow(l.line[:0], n)[:n]
		return l.line
	}
	if !l.reserved {
		frames := h.reserve(port, 1)
		if frames == nil {
			return nil
		}
		l.off, l.reserved = frames[0], true
	}
	d := packet.Desc{Off: l.off + headroom, Len: uint16(n)}
	return h.arena.Bytes(&d)
}

// Send implements ip.Output. A long packet for which there are not frames enough is lost, as the caller
// was not told before.
func (o ipOutput) Send(port uint8, n int) {
	h := o.h
	l := &h.ipFrame
	if !l.long {
		l.reserved = false
		h.tx = append(h.tx, packet.Desc{Off: l.off + headroom, Len: uint16(n)})
		h.transmit(port)
		return
	}
	frames := h.reserve(port, h.frames(n))
	if frames == nil {
		h.txDropped[packet.DropNoFrame]++
		return
	}
	h.chain(frames, l.line[:n])
	h.transmit(port)
}

// Holds implements ring.Holder: the frame that ip was lent and has not sent.
func (h *Host) Holds(visit func(off uint32)) {
	if h.ipFrame.reserved {
		visit(h.ipFrame.off)
	}
}
