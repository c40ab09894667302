package ip

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// The groups that every IPv6 host is in, and that of routers (RFC 4291 2.7.1).
var (
	allNodes   = wire.Addr(wire.AllNodes)
	allRouters = wire.Addr{0: 0xff, 1: 0x02, 15: 0x02}
)

// inputND takes a neighbour discovery message (RFC 4861 6.1, 7.1, 8.1): ip is the whole IPv6 packet, m its payload with a
// verified checksum. A hop limit of 255 proves that no router has forwarded it, so its sender is on this link. All trust
// in neighbour discovery rests on that.
func (n *Node) inputND(dev uint8, frame []byte, ip wire.IPv6, m wire.ICMPv6) packet.Verdict {
	if ip.HopLimit() != wire.NDHopLimit || m.Code() != 0 || dev == LoopDev {
		return packet.DropNeighbor
	}
	if wire.Ethernet(frame).Src() == n.links[dev].MAC {
		return packet.DropNeighbor // sent by this host and looped back: else an address would be its own duplicate (RFC 7527)
	}
	switch m.Type() {
	case wire.ICMPv6NeighborSolicit:
		return n.inputNS(dev, frame, ip)
	case wire.ICMPv6NeighborAdvert:
		return n.inputNA(dev, ip, wire.NeighborAdvert(m))
	case wire.ICMPv6RouterAdvert:
		return n.inputRA(dev, ip, wire.RouterAdvert(m))
	case wire.ICMPv6Redirect:
		n.stats.Redirects++
		return packet.DropICMP
	}
	return packet.DropICMP // solicitations of routers are not for hosts (RFC 4861 6.2.6)
}

// inputNS answers a neighbour solicitation (RFC 4861 7.2.3, 7.2.4). One for a tentative address is not answered; from the
// unspecified source it shows that another host probes for the same address, and neither may use it (RFC 4862 5.4.3).
//
// RFC 4861 7.2.3 would create an entry for the sender. This node creates entries for its own packets alone, or a flood
// of forged solicitations could fill the cache (RFC 6583). A known sender with another link address is verified.
func (n *Node) inputNS(dev uint8, frame []byte, ip wire.IPv6) packet.Verdict {
	ns, ok := wire.NeighborRequest(ip)
	if !ok {
		return packet.DropNeighbor
	}
	x := n.local.find(dev, wire.Addr(ns.Target()))
	if x == nil {
		return packet.DropNotOurs
	}
	src := wire.Addr(ip.Src())
	mac, has := ns.SourceMAC()
	if !has {
		mac = wire.Ethernet(frame).Src()
	}
	switch {
	case x.state == addrTentative && src == wire.Addr{}:
		n.handleDuplicate(x)
		return packet.Deliver
	case !x.assigned() || mac.Multicast():
		return packet.DropNeighbor
	}
	n.replyND(dev, ip, mac, src == wire.Addr{})
	if e := n.neigh.find(src, dev); e != nil && has && e.state.hasLinkAddr() && e.mac() != mac {
		n.verifyLinkAddr(e)
	}
	return packet.Deliver
}

// mac returns the link address of e; without meaning unless it is resolved.
func (e *neighbor) mac() wire.MAC { return wire.Ethernet(e.path.Header[:]).Dst() }

// replyND answers the solicitation in ip: by unicast to its sender, or to all nodes where that has no address yet (RFC 4861
// 7.2.4). The override flag is set, since the address is not an anycast or proxied one.
func (n *Node) replyND(dev uint8, ip wire.IPv6, mac wire.MAC, toAll bool) {
	if toAll {
		mac = wire.MulticastMAC6(wire.AllNodes)
	}
	f := n.controlFrame(dev, mac, wire.EtherTypeIPv6, wire.NDReplyLen)
	if f == nil {
		return
	}
	wire.AppendNeighborReply(f[:wire.EthernetLen], ip, n.links[dev].MAC, wire.NAOverride)
	n.cfg.Output.Send(dev, len(f))
}

// inputNA takes a neighbour advertisement (RFC 4861 7.1.2, 7.2.5). A solicited one to a group is invalid: an answer goes
// to the host that sent the solicitation. One for an address of this host is a conflict.
func (n *Node) inputNA(dev uint8, ip wire.IPv6, na wire.NeighborAdvert) packet.Verdict {
	if !na.Valid() || !validOptions(na.OptionIter()) || wire.Addr(na.Target()).Multicast() ||
		na.Flags()&wire.NASolicited != 0 && wire.Addr(ip.Dst()).Multicast() {
		return packet.DropNeighbor
	}
	target := wire.Addr(na.Target())
	if x := n.local.find(dev, target); x != nil {
		n.conflictND(x)
		return packet.Deliver
	}
	e := n.neigh.find(target, dev)
	if e == nil || e.state == nudFailed || e.state == nudNew {
		return packet.DropNeighbor
	}
	mac, has := na.TargetMAC()
	return n.updateFromAdvert(e, na.Flags(), mac, has && !mac.Multicast())
}

// validOptions reports whether every option has a length and lies within the message; a length of 0 would never end (RFC
// 4861 4.6, 7.1).
func validOptions(it wire.NDOptionIter) bool {
	for it.Next() {
	}
	return !it.Malformed()
}

// conflictND is called when another host advertises x. A tentative address is given up (RFC 4862 5.4.4). An assigned one is
// kept and the conflict counted: its connections would end, and the advertisement may be forged.
func (n *Node) conflictND(x *address) {
	if x.state == addrTentative {
		n.handleDuplicate(x)
		return
	}
	n.stats.Duplicates++
}

// updateFromAdvert updates e by the table of RFC 4861 appendix C, with two differences, both against forged messages: an
// incomplete entry takes only a solicited answer, and another link address is verified before it replaces the known one.
//
//	state       S  O  link address  result
//	incomplete  1  *  any           reachable, with that address
//	incomplete  0  *  any           unchanged
//	reachable   *  0  other         stale, with the known address
//	resolved    *  *  other         verifyLinkAddr
//	resolved    1  *  same, none    reachable
//	resolved    0  *  same, none    unchanged
func (n *Node) updateFromAdvert(e *neighbor, flags wire.NAFlags, mac wire.MAC, has bool) packet.Verdict {
	solicited := flags&wire.NASolicited != 0
	if e.state == nudIncomplete {
		if !has || !solicited {
			return packet.DropNeighbor
		}
		e.router = flags&wire.NARouter != 0
		n.setLinkAddr(e, mac, nudReachable)
		return packet.Deliver
	}
	if has && e.mac() != mac {
		if flags&wire.NAOverride == 0 && e.state == nudReachable {
			n.setState(e, nudStale)
			return packet.Deliver
		}
		return n.verifyLinkAddr(e)
	}
	e.router = flags&wire.NARouter != 0
	if solicited && e.state != nudPermanent {
		n.setLinkAddr(e, e.mac(), nudReachable)
	}
	return packet.Deliver
}

// solicit sends a solicitation for e: to its solicited-node group, which few other hosts share, or by unicast where its
// link address is only to be verified (RFC 4861 7.2.2, 7.3.3).
func (n *Node) solicit(e *neighbor) {
	src, ok := n.solicitSource(e)
	if !ok {
		return
	}
	dst, mac := e.key.addr, e.mac()
	if e.state != nudProbe {
		dst = wire.Addr(wire.SolicitedNode(e.key.addr))
		mac = wire.MulticastMAC6(dst)
	}
	n.sendNS(e.key.dev, mac, src, dst, e.key.addr)
}

// sendNS sends a neighbour solicitation with the source link-layer address option, which saves the neighbour a solicitation
// before its answer (RFC 4861 4.3).
func (n *Node) sendNS(dev uint8, mac wire.MAC, src, dst, target wire.Addr) {
	var b [wire.NeighborSolicitLen + 8]byte
	n.sendICMP6(dev, mac, src, dst, wire.NDHopLimit, wire.AppendNeighborSolicit(b[:0], target, n.links[dev].MAC))
}

// probeND solicits the tentative address x from the unspecified source (RFC 4862 5.4.2). It has no link-layer address option,
// which RFC 4861 4.3 forbids there: a tentative address must not enter the caches of others.
func (n *Node) probeND(x *address) {
	var b [wire.NeighborSolicitLen + 8]byte
	m := wire.AppendNeighborSolicit(b[:0], x.addr, wire.MAC{})[:wire.NeighborSolicitLen]
	dst := wire.SolicitedNode(x.addr)
	n.sendICMP6(x.dev, wire.MulticastMAC6(dst), wire.Addr{}, dst, wire.NDHopLimit, m)
}

// announceND advertises x unsolicited to all nodes, so that those with an entry for an earlier holder update it (RFC 4861
// 7.2.6).
func (n *Node) announceND(x *address) {
	var b [wire.NeighborAdvertLen + 8]byte
	m := wire.AppendNeighborAdvert(b[:0], x.addr, n.links[x.dev].MAC, wire.NAOverride)
	n.sendICMP6(x.dev, wire.MulticastMAC6(wire.AllNodes), x.addr, allNodes, wire.NDHopLimit, m)
}

// sendICMP6 sends an ICMPv6 message of the node itself to link address mac, with its checksum.
func (n *Node) sendICMP6(dev uint8, mac wire.MAC, src, dst wire.Addr, hops uint8, m []byte) {
	f := n.controlFrame(dev, mac, wire.EtherTypeIPv6, wire.IPv6Len+len(m))
	if f == nil {
		return
	}
	h := wire.IPv6Header{Src: src, Dst: dst, NextHeader: wire.ProtoICMPv6, HopLimit: hops, PayloadLen: len(m)}
	b := append(wire.AppendIPv6(f[:wire.EthernetLen], &h), m...)
	wire.ICMPv6(b[wire.EthernetLen+wire.IPv6Len:]).FillChecksum(wire.PseudoHeader6(src, dst, wire.ProtoICMPv6, uint32(len(m))))
	n.cfg.Output.Send(dev, len(f))
}
