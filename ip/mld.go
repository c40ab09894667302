package ip

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// MLD message types (RFC 2710 3, RFC 3810 5). MLD version 1 corresponds to IGMP version 2, version 2 to IGMP version 3; the
// version of a query counts as in IGMP.
const (
	mldQuery   uint8 = 130
	mldReport1 uint8 = 131
	mldDone1   uint8 = 132
	mldReport2 uint8 = 143

	mldLen      = 24
	mldQuery2   = 28
	routerAlert = "\x3a\x00\x05\x02\x00\x00\x01\x00" // hop-by-hop header: next is ICMPv6, router alert 0, PadN (RFC 2711 2.1)
)

// mldRouters is ff02::16, the destination of version 2 reports (RFC 3810 5.2.14).
var mldRouters = wire.Addr{0: 0xff, 1: 0x02, 15: 0x16}

// inputMLD takes an MLD message, whose checksum is right. It must come from this link: hop limit 1 and a link-local source,
// or in reports the unspecified one (RFC 3810 5.1.14, 5.2.13). Else a host elsewhere could make this one send reports.
func (n *Node) inputMLD(g *Datagram, m wire.ICMPv6) packet.Verdict {
	if g.Dev == LoopDev || g.TTL != 1 || g.Packets != 1 || !g.Src.LinkLocal() && !g.Src.Unspecified() {
		return packet.DropDenied
	}
	if m.Type() == mldReport2 {
		return packet.Deliver // for routers
	}
	if len(m) < mldLen {
		return packet.DropMalformed
	}
	group := wire.Addr(m[8:24])
	switch {
	case m.Type() == mldQuery:
		return n.inputQuery6(g, m, group)
	case m.Type() == mldReport1 && g.Dst == group:
		n.suppressReport(g.Dev, group)
	}
	return packet.Deliver
}

// inputQuery6 reads a query (RFC 3810 5.1):
//
//	+---------------+---------------+-------------------------------+
//	|  Type = 130   |     Code      |           Checksum            |
//	+---------------+---------------+-------------------------------+
//	|    Maximum Response Code      |           Reserved            |
//	+-------------------------------+-------------------------------+
//	|                  Multicast Address, 16 bytes                  |
//	+-------+-+-----+---------------+-------------------------------+
//	| Resv  |S| QRV |     QQIC      |     Number of Sources (N)     |
//	+-------+-+-----+---------------+-------------------------------+
//	|                 Source Address [1..N], 16 bytes each          |
//
// 24 bytes are version 1, with the code in milliseconds; 28 and more are version 2 (8.1).
func (n *Node) inputQuery6(g *Datagram, m wire.ICMPv6, group wire.Addr) packet.Verdict {
	code := binary.BigEndian.Uint16(m[4:])
	q := query{dev: g.Dev, group: group, version: 2, maxDelay: time.Duration(code) * time.Millisecond}
	switch {
	case !g.Src.LinkLocal():
		return packet.DropDenied
	case group == wire.Addr{} && g.Dst != allNodes:
		return packet.DropDenied
	case group != wire.Addr{} && !group.Multicast(), len(m) > mldLen && len(m) < mldQuery2:
		return packet.DropMalformed
	case len(m) >= mldQuery2:
		q.version, q.robust, q.maxDelay = 3, m[24]&7, time.Duration(float16(code))*time.Millisecond
		k := int(binary.BigEndian.Uint16(m[26:]))
		if len(m) < mldQuery2+16*k {
			return packet.DropMalformed
		}
		for i := range min(k, maxQuerySources+1) {
			q.sources = append(q.sources, wire.Addr(m[mldQuery2+16*i:][:16]))
		}
	}
	n.handleQuery(&q)
	return packet.Deliver
}

// float16 decodes a Maximum Response Code in milliseconds, from 32768 on a floating point number (RFC 3810 5.1.3):
//
//	|1| exp (3) | mant (12) |   = (mant | 0x1000) << (exp + 3)
func float16(c uint16) int {
	if c < 1<<15 {
		return int(c)
	}
	return (int(c&0xfff) | 0x1000) << (c>>12&7 + 3)
}

// sendReport6 sends a version 2 report of size bytes of records (RFC 3810 5.2).
func (n *Node) sendReport6(dev uint8, list []record, size int) {
	b := make([]byte, wire.ICMPLen, wire.ICMPLen+size)
	b[0] = mldReport2
	binary.BigEndian.PutUint16(b[6:], uint16(len(list)))
	for i := range list {
		b = list[i].append(b)
	}
	n.sendMLD(dev, mldRouters, b)
}

// sendReport1 sends a version 1 report, to the group itself so that other members can suppress theirs, or a Done to all
// routers (RFC 2710 4).
func (n *Node) sendReport1(g *group) {
	b := make([]byte, mldLen)
	b[0] = mldReport1
	dst := g.key.addr
	if g.empty() {
		b[0], dst = mldDone1, allRouters
	}
	copy(b[8:], g.key.addr[:])
	n.sendMLD(g.key.dev, dst, b)
}

// sendMLD sends the message b with hop limit 1 and a router alert in a hop-by-hop header (RFC 3810 5), from the device's
// link-local address. Until that is assigned the source is unspecified: the group of a tentative address is joined, and
// reported for switches that snoop, before the address may be used (RFC 3810 5.2.13).
func (n *Node) sendMLD(dev uint8, dst wire.Addr, b []byte) {
	src := n.linkLocal(dev)
	h := Header{Src: src, Dst: dst, Proto: wire.ProtoHopByHop, TTL: 1}
	f := n.controlFrame(dev, wire.MulticastMAC6(dst), wire.EtherTypeIPv6, wire.IPv6Len+len(routerAlert)+len(b))
	if f == nil {
		return
	}
	var p Path
	at := wire.EthernetLen + p.putIP(f[wire.EthernetLen:], &h, h.Proto, len(routerAlert)+len(b))
	at += copy(f[at:], routerAlert)
	m := wire.ICMPv6(f[at:])
	copy(m, b)
	m.SetChecksum(0)
	m.FillChecksum(wire.PseudoHeader6(src, dst, wire.ProtoICMPv6, uint32(len(b))))
	n.cfg.Output.Send(dev, len(f))
}

// linkLocal returns the assigned link-local address of a device, or the unspecified address.
func (n *Node) linkLocal(dev uint8) wire.Addr {
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.dev == dev && x.assigned() && !x.addr.Is4() && x.addr.LinkLocal() {
			return x.addr
		}
	}
	return wire.Addr{}
}
