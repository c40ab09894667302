package datapath

import (
	"github.com/millrace/millrace/packet"
)

// ownerLoop returns the loop that the connections of a client's address and port belong to, of n: a
// pure function, so that every loop computes the same from any packet that names the client. Both directions
// of a connection are handled there: its state needs no lock.
func ownerLoop(client addr, port uint16, n int) int {
	return int(selection.sum(client, uint64(port)) >> 32 * uint64(n) >> 32)
}

// handOver leaves a packet, which has not been changed, to another loop. One that came from another
// loop already may be handed on once more, see stack.Mesh.
func (h *Handler) handOver(d *packet.Desc, loop int) packet.Verdict {
	d.Flow = uint32(loop)
	return packet.Handover
}

// inboundLoop returns the loop that has the connection of a packet from a client.
func (h *Handler) inboundLoop(v *view) int {
	if h.loops == 1 {
		return h.loop
	}
	return ownerLoop(v.src, v.sport, h.loops)
}

// outboundLoop returns the loop that has the connection of a reply: the port of an SNAT address
// names it, and a client's address and port do.
func (h *Handler) outboundLoop(v *view, toUs bool) int {
	switch {
	case h.loops == 1:
		return h.loop
	case toUs:
		return h.span.loopOf(v.dport, h.loops)
	}
	return ownerLoop(v.dst, v.dport, h.loops)
}

// fragmentLoop returns the loop at which the fragments of a datagram meet, so that later ones, which
// have no ports, find what the first said: a device may bring them by other queues. From there they go
// to the owner of the connection like other packets, and a packet that came from another loop has met.
func (h *Handler) fragmentLoop(d *packet.Desc, k *fragmentKey) int {
	if h.loops == 1 || d.Flags.Has(packet.FlagHanded) {
		return h.loop
	}
	return h.meetingLoop(k)
}

// meetingLoop is fragmentLoop of a packet that has just been received.
func (h *Handler) meetingLoop(k *fragmentKey) int {
	hash := selection.sum(k.src, uint64(k.id)<<8|uint64(k.proto)) ^ selection.sum(k.dst, 0)
	return int(hash >> 32 * uint64(h.loops) >> 32)
}
