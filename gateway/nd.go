package gateway

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// nd answers a neighbour solicitation for one of the gateway's IPv6 addresses in the frame that
// asked (RFC 4861 7.2.3 and 7.2.4). Other ICMPv6 is dropped.
func (h *Handler) nd(d *packet.Desc, p []byte) packet.Verdict {
	req := wire.IPv6(p[d.L3:])
	ns, ok := wire.NeighborRequest(req)
	if !ok {
		return packet.DropUnsupported
	}
	target := ns.Target()
	if !h.snap.local(addr6(target[:])) {
		return packet.DropNoService
	}
	grow := int(d.L3) + wire.NDReplyLen - int(d.Len)
	if grow > h.arena.Tailroom(d) {
		return packet.DropNoFrame
	}
	to, ok := ns.SourceMAC()
	if !ok {
		to = wire.Ethernet(p).Src()
	}
	if to.Multicast() { // the answer would be everybody's
		return packet.DropUnsupported
	}
	mac := wire.MAC(h.snap.ports[d.Port].MAC)
	reply := wire.IPv6(wire.AppendNeighborReply(h.scratch[:0], req, mac, wire.NAOverride))
	if dst := reply.Dst(); dst == wire.AllNodes {
		to = wire.MulticastMAC6(dst)
	}
	d.Len = uint16(int(d.L3) + len(reply))
	p = h.arena.Bytes(d)
	copy(p[d.L3:], reply)
	wire.Ethernet(p).SetDst(to)
	wire.Ethernet(p).SetSrc(mac)
	return packet.Forward
}
