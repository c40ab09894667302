package datapath

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// arp answers a request for one of the gateway's IPv4 addresses in the frame that asked (RFC 826).
// A tag stays. All else is dropped: other ARP packets belong to the kernel and should not have come.
func (h responder) arp(d *packet.Desc, p []byte) packet.Verdict {
	if int(d.L3)+wire.ARPLen > len(p) || binary.BigEndian.Uint16(p[d.L3-2:]) != wire.EtherTypeARP {
		return packet.DropUnsupported
	}
	req := wire.ARP(p[d.L3:])
	if !req.Valid() || req.Op() != wire.ARPRequest || req.SenderMAC().Multicast() {
		return packet.DropUnsupported
	}
	target := req.Target()
	if !h.snap.local(addr4(target[:])) || h.active != nil && !h.active() {
		return packet.DropNoService
	}
	sender := req.Sender()
	h.reportSender(d, p, addr4(sender[:]), req.SenderMAC())
	mac := h.snap.Devices[d.Port].MAC
	wire.Ethernet(p).SetDst(req.SenderMAC())
	wire.Ethernet(p).SetSrc(mac)
	req.ReplyFrom(mac)
	return packet.Forward
}

// AnnounceFrame returns the frame that announces a at mac.
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
func (h responder) nd(d *packet.Desc, p []byte) packet.Verdict {
	req := wire.IPv6(p[d.L3:])
	ns, ok := wire.NeighborRequest(req)
	if !ok {
		return packet.DropUnsupported
	}
	target := ns.Target()
	if !h.snap.local(addr6(target[:])) || h.active != nil && !h.active() {
		return packet.DropNoService
	}
	grow := int(d.L3) + wire.NDReplyLen - int(d.Len)
	if grow > h.arena.Tailroom(d) {
		return packet.DropNoFrame
	}
	to, ok := ns.SourceMAC()
	if ok {
		src := req.Src()
		h.reportSender(d, p, addr6(src[:]), to)
	} else {
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

// A request also says where its sender is: hosts enter that in their neighbour table (RFC 826, "Packet Reception"; RFC 4861
// 7.2.3). The gateway's table is the kernel's, which does not see the requests for the gateway's addresses. So a loop leaves
// the senders in a ring, and the control side corrects the kernel's entries by them.

// Sender is the sender of a request for the link address of one of the gateway's addresses.
type Sender struct {
	Addr netip.Addr
	Hop  Hop
}

// Senders are reported at a bounded rate: a host asks again while it gets no reply, and a flood must not keep the control
// side busy. Backends, on whose entries the gateway relies, have a budget of their own, and a part of the ring, so that a
// flood with other addresses leaves them alone; and each address has one, so that a flood with a backend's takes nothing
// from the others. None of that touches the budgets of answers (generated.go).
const (
	senderRate  = 100 // a second, of backends and of others
	senderBurst = 64

	senderHostRate  = 10 // a second, of an address
	senderHostBurst = 500 * time.Millisecond
	senderHosts     = 512
)

// senders are those that a loop has noted and the control side has not taken.
type senders struct {
	ring             *ring.SPSC[Sender]
	wake             func()
	backends, others ip.RateLimiter
	hosts            *meters
	perHost          allowance
}

// ReportSenders makes the handler keep the senders of requests: wake is called by the loop when there are some. It is called
// before the first packet.
func (h *Handler) ReportSenders(wake func()) {
	limiter := ip.NewRateLimiter(senderRate, senderBurst, 0)
	h.senders = senders{
		ring.NewSPSC[Sender](2 * senderBurst), wake, limiter, limiter,
		newMeters(senderHosts, h.table.key), newAllowance(senderHostRate, senderHostBurst),
	}
}

// take takes a sender from its budgets; false when one of them is used up.
func (s *senders) take(now clock.Time, a addr, backend bool) bool {
	at := moment(now)
	// Meters are of an IPv6 /64: the rest of the address is in the place of the limit.
	if !s.perHost.take(&s.hosts.find(a, uint32(a.lo)^uint32(a.lo>>32), at).packets, at) {
		return false
	}
	if backend {
		return s.backends.Take(now, 1)
	}
	return s.ring.Room() > senderBurst && s.others.Take(now, 1)
}

// Senders takes the senders of requests that the loop has reported. One goroutine at a time may call it.
func (h *Handler) Senders(buf []Sender) int { return h.senders.ring.Pop(buf) }

// reportSender keeps the sender of a request. One that has no address yet only checks that no host has it (RFC 5227 2.1.1,
// RFC 4862 5.4).
func (h responder) reportSender(d *packet.Desc, p []byte, a addr, mac wire.MAC) {
	if h.senders.wake == nil || h.snap.martian(a) || mac.Multicast() || !h.senders.take(h.clock, a, h.snap.backendAddr(a)) {
		return
	}
	v := view{d: d, p: p}
	if h.senders.ring.Push([]Sender{{a.Addr(), Hop{MAC: mac, VLAN: v.vlan(), Dev: d.Port, State: HopReady}}}) > 0 {
		h.senders.wake()
	}
}
