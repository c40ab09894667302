package ip

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// IGMP message types (RFC 1112, RFC 2236, RFC 3376 4). A node sends all reports: those of older versions while an older
// querier is on the link.
const (
	igmpQuery   uint8 = 0x11
	igmpReport1 uint8 = 0x12
	igmpReport2 uint8 = 0x16
	igmpLeave2  uint8 = 0x17
	igmpReport3 uint8 = 0x22

	igmpLen      = 8
	igmpQuery3   = 12
	routerAlert4 = "\x94\x04\x00\x00" // RFC 2113 2.1
)

// Destinations of IGMP messages.
var (
	allSystems4 = wire.AddrFrom4([4]byte{224, 0, 0, 1})  // of general queries (RFC 3376 4.1.12)
	allRouters4 = wire.AddrFrom4([4]byte{224, 0, 0, 2})  // of leaves of version 2 (RFC 2236 3)
	igmpRouters = wire.AddrFrom4([4]byte{224, 0, 0, 22}) // of reports of version 3 (RFC 3376 4.2.14)
)

// inputIGMP takes an IGMP message: queries, and with older queriers the reports of other hosts. IGMP is sent with TTL 1
// (RFC 3376 4). A message with another TTL may come from another link, whose hosts must not make this one send reports.
func (n *Node) inputIGMP(g *Datagram) packet.Verdict {
	b := g.Payload
	if len(b) < igmpLen {
		return packet.DropMalformed
	}
	if wire.Fold(wire.Sum(b, 0)) != 0 {
		return packet.DropL4Checksum
	}
	if g.Dev == LoopDev || g.TTL != 1 {
		return packet.DropDenied
	}
	group := wire.AddrFrom4([4]byte(b[4:8]))
	switch b[0] {
	case igmpQuery:
		return n.inputQuery4(g, b, group)
	case igmpReport1, igmpReport2:
		if g.Dst == group {
			n.suppressReport(g.Dev, group)
		}
		return packet.Deliver
	case igmpReport3, igmpLeave2:
		return packet.Deliver // for routers
	}
	return packet.DropUnsupported
}

// inputQuery4 reads a query (RFC 3376 4.1):
//
//	+---------------+---------------+-------------------------------+
//	|  Type = 0x11  | Max Resp Code |           Checksum            |
//	+---------------+---------------+-------------------------------+
//	|                         Group Address                         |
//	+-------+-+-----+---------------+-------------------------------+
//	| Resv  |S| QRV |     QQIC      |     Number of Sources (N)     |
//	+-------+-+-----+---------------+-------------------------------+
//	|                      Source Address [1..N]                    |
//
// The version follows from the length and the code (7.1): 8 bytes are version 1 with code 0, else version 2; 12 and more
// are version 3. The code counts tenths of a second; 0 of version 1 stands for 10 seconds (RFC 2236 4). Between 8 and 12
// bytes none is valid. One source more than maxQuerySources is read, to show that there are too many.
func (n *Node) inputQuery4(g *Datagram, b []byte, group wire.Addr) packet.Verdict {
	q := query{dev: g.Dev, is4: true, group: group, version: 2, maxDelay: time.Duration(b[1]) * 100 * time.Millisecond}
	if group == wire.Unspecified4 {
		if q.group = (wire.Addr{}); g.Dst != allSystems4 {
			return packet.DropDenied // general queries go to all systems and nowhere else (RFC 3376 9.1)
		}
	} else if !group.Multicast() {
		return packet.DropMalformed
	}
	switch {
	case len(b) == igmpLen && b[1] == 0:
		q.version, q.maxDelay = 1, 10*time.Second
	case len(b) > igmpLen && len(b) < igmpQuery3:
		return packet.DropMalformed
	case len(b) >= igmpQuery3:
		q.version, q.robust, q.maxDelay = 3, b[8]&7, time.Duration(float8(b[1]))*100*time.Millisecond
		k := int(binary.BigEndian.Uint16(b[10:]))
		if len(b) < igmpQuery3+4*k {
			return packet.DropMalformed
		}
		for i := range min(k, maxQuerySources+1) {
			q.sources = append(q.sources, wire.AddrFrom4([4]byte(b[igmpQuery3+4*i:])))
		}
	}
	n.handleQuery(&q)
	return packet.Deliver
}

// float8 decodes a Max Resp Code in tenths of a second, from 128 on a floating point number (RFC 3376 4.1.1):
//
//	|1| exp | mant |   = (mant | 0x10) << (exp + 3)
func float8(c uint8) int {
	if c < 128 {
		return int(c)
	}
	return (int(c&0xf) | 0x10) << (c>>4&7 + 3)
}

// sendReport4 sends a version 3 report of size bytes of records (RFC 3376 4.2). All hosts report to the group of the
// routers, not to the reported group: hosts need not receive the reports of others.
func (n *Node) sendReport4(dev uint8, list []record, size int) {
	b := make([]byte, igmpLen, igmpLen+size)
	b[0] = igmpReport3
	binary.BigEndian.PutUint16(b[6:], uint16(len(list)))
	for i := range list {
		b = list[i].append(b)
	}
	n.sendIGMP(dev, igmpRouters, b)
}

// sendOlderReport sends a report or a leave of the version of the oldest querier (RFC 3376 7.2.1, RFC 3810 8.2.1). These
// have no sources: the routers forward all, and the filter works in this host alone. Version 1 has no leave; the routers
// notice by the missing answers.
func (n *Node) sendOlderReport(g *group) {
	if !g.key.addr.Is4() {
		n.sendReport1(g)
		return
	}
	b := make([]byte, igmpLen)
	copy(b[4:], g.key.addr[12:])
	dst := g.key.addr
	v1 := n.now < n.querier(g.key).v1
	switch {
	case g.empty() && v1:
		return
	case g.empty():
		b[0], dst = igmpLeave2, allRouters4
	case v1:
		b[0] = igmpReport1
	default:
		b[0] = igmpReport2
	}
	n.sendIGMP(g.key.dev, dst, b)
}

// sendIGMP sends the message b with TTL 1, internetwork control precedence and a router alert (RFC 3376 4): without the
// alert a router that is not a member of the group would not look at it. Before the device has an address, the source is
// 0.0.0.0 (4.2.13).
func (n *Node) sendIGMP(dev uint8, dst wire.Addr, b []byte) {
	binary.BigEndian.PutUint16(b[2:], 0)
	binary.BigEndian.PutUint16(b[2:], wire.Fold(wire.Sum(b, 0)))
	src, ok := n.source(dst, dev)
	if !ok {
		src = wire.Unspecified4
	}
	var p Path
	mac := wire.MAC{0x01, 0x00, 0x5e, dst[13] & 0x7f, dst[14], dst[15]}
	f := n.controlFrame(dev, mac, wire.EtherTypeIPv4, wire.IPv4Len+len(routerAlert4)+len(b))
	if f == nil {
		return
	}
	h := Header{Src: src, Dst: dst, Proto: wire.ProtoIGMP, TTL: 1, TOS: 0xc0, ID: uint16(n.rand.Uint64())}
	ip := wire.IPv4(f[wire.EthernetLen:])
	p.putIP(ip, &h, h.Proto, len(routerAlert4)+len(b))
	copy(ip[wire.IPv4Len:], routerAlert4)
	copy(ip[wire.IPv4Len+len(routerAlert4):], b)
	ip.SetHeaderLen(wire.IPv4Len + len(routerAlert4))
	ip.FillChecksum()
	n.cfg.Output.Send(dev, len(f))
}
