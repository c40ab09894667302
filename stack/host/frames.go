package host

import (
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
)

// headroom is the space in bytes in a frame in front of an originated packet: for packet.Offload, and for headers
// that a driver or tunnel prepends. 66 + 14 bytes of Ethernet header is 80: the network header lies at a multiple of 16,
// so that the loads of the checksum code are aligned.
//
//	0            66              80            frame size
//	| headroom   | Ethernet (14) | IP, TCP ... |
const headroom = 66

// frameRoom returns how many bytes of a packet one frame holds.
func (h *Host) frameRoom() int { return h.arena.FrameSize() - headroom }

// frames returns how many frames a packet of n bytes takes.
func (h *Host) frames(n int) int { return (n + h.frameRoom() - 1) / h.frameRoom() }

// reserve passes n frames for packets to a device to the caller, who fills them and calls transmit. It is nil where there
// is no room now: it reserves all or none, so that a send is never cut in the middle.
func (h *Host) reserve(dev uint8, n int) []uint32 {
	if dev == ip.LoopDev {
		return h.output.ReserveLoopback(n)
	}
	return h.output.Reserve(dev, n)
}

// The loopback queue has one number in ip and in stack.
var _ [0]struct{} = [ip.LoopDev - stack.LoopbackDev]struct{}{}

// chain appends one packet to h.tx, in as many of the frames as it needs, and returns the rest of them.
func (h *Host) chain(frames []uint32, b []byte) []uint32 {
	for len(b) > 0 {
		n := min(len(b), h.frameRoom())
		d := packet.Desc{Off: frames[0] + headroom, Len: uint16(n)}
		copy(h.arena.Bytes(&d), b[:n])
		if b = b[n:]; len(b) > 0 {
			d.Flags = packet.FlagMore
		}
		h.tx = append(h.tx, d)
		frames = frames[1:]
	}
	return frames
}

// transmit gives the packets in h.tx, in frames that reserve returned, to the loop, which owns the frames from then on.
func (h *Host) transmit(dev uint8) {
	if dev == ip.LoopDev {
		h.classify()
		h.output.Loopback(h.tx)
	} else {
		h.output.Originate(dev, h.tx)
	}
	h.tx = h.tx[:0]
}

// classify writes the engine's findings into h.tx: packets to this host itself do not pass the engine of the loop, and
// Handle needs the same offsets, hash and flags as in received ones.
func (h *Host) classify() {
	for i := range h.tx {
		h.tx[i].Port = ip.LoopDev
	}
	h.loopback.D = h.tx
	var done [1]*packet.Batch
	if err := h.loopbackEngine.Submit(&h.loopback); err != nil {
		panic(err) // it holds one batch, and has returned the last
	}
	h.loopbackEngine.Poll(done[:])
}
