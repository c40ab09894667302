package gateway

import (
	"encoding/binary"

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
	mac := h.snap.ports[d.Port].MAC
	wire.Ethernet(p).SetDst(req.SenderMAC())
	wire.Ethernet(p).SetSrc(mac)
	req.ReplyFrom(mac)
	return packet.Forward
}
