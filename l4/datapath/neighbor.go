package datapath

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// arp answers a request for one of the gateway's IPv4 addresses in the frame that asked (RFC 826).
// A tag stays. All else is dropped: other ARP packets belong to the kernel and should not have come.
func (h *Handler) arp(d *packet.Desc, p []byte) packet.Verdict {
	if int(d.L3)+wire.ARPLen > len(p) || binary.BigEndian.Uint16(p[d.L3-2:]) != wire.EtherTypeARP {
		return packet.DropUnsupported
	}
	req := wire.ARP(p[d.L3:])
	if !req.Valid() || req.Op() != wire.ARPRequest || req.SenderMAC().Multicast() {
		return packet.DropUnsupported
	}
	target := req.Target()
	if !h.snap.local(addr4(target[:])) {
		return packet.DropNoService
	}
	mac := h.snap.Devices[d.Port].MAC
	wire.Ethernet(p).SetDst(req.SenderMAC())
	wire.Ethernet(p).SetSrc(mac)
	req.ReplyFrom(mac)
	return packet.Forward
}

// AnnounceFrame returns the frame that says that a is at mac.
func AnnounceFrame(a netip.Addr, mac wire.MAC, vlan uint16) []byte {
	to, kind := wire.Broadcast, wire.EtherTypeARP
	if a.Is6() {
		to, kind = wire.MulticastMAC6(wire.AllNodes), wire.EtherTypeIPv6
	}
	hop := Hop{MAC: to, VLAN: vlan}
	b := make([]byte, linkLen(&hop), 128)
	putLink(b, &hop, mac, kind)
	if a.Is4() {
		return wire.AppendARP(b, wire.ARPRequest, wire.ARPHost{MAC: mac, Addr: a.As4()}, wire.ARPHost{Addr: a.As4()})
	}
	n := len(b)
	b = wire.AppendIPv6(b, &wire.IPv6Header{
		Src: a.As16(), Dst: wire.AllNodes, NextHeader: wire.ProtoICMPv6, HopLimit: wire.NDHopLimit, PayloadLen: wire.NeighborAdvertLen + 8,
	})
	b = wire.AppendNeighborAdvert(b, a.As16(), mac, wire.NAOverride)
	wire.ICMPv6(b[n+wire.IPv6Len:]).FillChecksum(wire.IPv6(b[n:]).Pseudo())
	return b
}

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
	mac := wire.MAC(h.snap.Devices[d.Port].MAC)
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
