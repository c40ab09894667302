package datapath

import (
	"math/bits"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A packet of a direct mode keeps every byte from its IP header on, but for the TTL. RFC 2003 3.1 asks for
// one hop less in front of a tunnel. With l2 it ends a loop: a backend that lacks the service address routes
// the packet back to the gateway. New headers grow into the headroom of the frame:
//
//	before           | headroom ........ | Ethernet | IP | TCP, UDP ...
//	ipip             | ... | Ethernet | outer IP    | IP | TCP, UDP ...
//	gue     | Ethernet | outer IP | UDP | GUE       | IP | TCP, UDP ...
//	l2               | headroom ........ | Ethernet | IP | TCP, UDP ...
//
// Fields of the outer header:
//
//   - DSCP and ECN are copied: RFC 2983 3.1, and the normal mode of RFC 6040 4.1. A decapsulator that
//     follows RFC 6040 copies a congestion mark to the inner packet.
//   - The hop limit is 64 (RFC 1700's default; RFC 2003 3.1).
//   - Don't Fragment is copied (RFC 2003 3.1), unless outer packets may be fragmented (`too_big: fragment`). With it
//     the identification is 0 and means nothing (RFC 6864 4.1); without it, it counts up (RFC 6864 4.3).
//   - The flow label is a hash of the flow, never 0 (RFC 6438 3, RFC 6437 3).
//   - UDP has a checksum over IPv4 and IPv6. RFC 6935 and RFC 6936 allow zero over IPv6 where receivers
//     agree, because summing the payload is expensive. It is not summed here either (innerSum), so zero
//     saves nothing, and receivers may reject it as RFC 8200 8.1 requires.

// outerTTL is the time to live of outer headers.
const outerTTL = 64

// Ports from which GUE datagrams are sent: the dynamic ones (RFC 6335 6), by the flow's hash.
const (
	gueFirstPort = 49152
	guePortMask  = 0x3fff
)

// encapsulate puts what the way to the backend at to needs in front of a packet, whose size has been checked.
// It reports DropNoFrame when the headroom is too small, and has changed nothing then.
func (h tunneler) encapsulate(v *view, to *Endpoint, w Mode) packet.Verdict {
	grow := w.overhead(to.addr.is4())
	if grow > 0 && v.d.Flags.Has(packet.FlagOffload) {
		return packet.DropUnsupported // no device cuts what lies in a tunnel; the daemon has them cut before
	}
	shift := linkLen(&to.Hop) + grow - int(v.d.L3) // how far the frame grows in front
	if shift > h.arena.Headroom(v.d) {
		return packet.DropNoFrame
	}
	size, typ := v.size(), etherType(v.is4)
	v.decrementTTL()
	if grow > 0 {
		h.writeOuter(v, to, w, size)
		typ = etherType(to.addr.is4())
	}
	if v.d.Flags&(packet.FlagMore|packet.FlagOffload) == 0 { // the frame has all of it
		v.d.Len = uint16(int(v.d.L3) + size) // without Ethernet padding
	}
	moveStart(v.d, -shift)
	v.p = h.arena.Bytes(v.d)
	putLink(v.p, &to.Hop, h.snap.Devices[to.Hop.Dev].MAC, typ)
	if grow > 0 {
		v.d.Flags |= packet.FlagTunnel
	}
	return packet.Forward
}

// writeOuter writes the outer headers in front of the inner packet of size bytes. They overwrite the
// link header and what is before it.
func (h tunneler) writeOuter(v *view, to *Endpoint, w Mode, size int) {
	spread, is4 := v.spread(), to.addr.is4()
	src := h.snap.Tunnel.source(spread, is4)
	inner := v.d.Off + uint32(v.d.L3)
	b := h.arena.Mem[inner-uint32(w.overhead(is4)) : inner : inner]
	proto, n := v.tunnelProto(), size
	if w == ModeGUE {
		n += guePush
		udp := b[len(b)-guePush:]
		port := gueFirstPort + uint16(spread>>48)&guePortMask
		wire.AppendGUE(wire.AppendUDP(udp[:0], port, h.snap.Tunnel.port, n-wire.UDPLen), proto)
		proto = wire.ProtoUDP
		sum := wire.Sum(udp, src.pseudo(to.addr, proto, n))
		wire.UDP(udp).SetChecksum(wire.UDPChecksum(wire.Fold(sum + h.innerSum(v))))
	}
	if is4 {
		df := !h.snap.Tunnel.fragment && (!v.is4 || wire.IPv4(v.p[v.d.L3:]).DontFragment()) // IPv6 packets are never fragmented on their way
		wire.AppendIPv4(b[:0], &wire.IPv4Header{
			Src: src.as4(), Dst: to.addr.as4(), Proto: proto, TTL: outerTTL, TOS: v.tos(),
			DontFragment: df, ID: h.outerID(df), PayloadLen: n,
		})
		return
	}
	wire.AppendIPv6(b[:0], &wire.IPv6Header{
		Src: src.as16(), Dst: to.addr.as16(), NextHeader: proto, HopLimit: outerTTL, TrafficClass: v.tos(),
		FlowLabel: flowLabel(spread), PayloadLen: n,
	})
}

// flowLabel returns the flow label of a flow: never 0, which says that there is none (RFC 6437 3).
func flowLabel(spread uint64) uint32 { return uint32(spread>>24) | 1 }

// outerID returns the identification of an outer IPv4 header: 0 with Don't Fragment, a counter without, which skips 0.
func (h tunneler) outerID(df bool) uint16 {
	if df {
		return 0
	}
	h.lastID = max(h.lastID+1, 1)
	return h.lastID
}

// innerSum returns the sum of the packet's network-layer bytes. When the engine has found the transport
// checksum right, that sum is known without the payload: the transport segment adds up with its pseudo
// header to 0xffff (RFC 1071 1), so the segment alone to the complement of the pseudo header; and an
// IPv4 header adds up to 0xffff, which is a zero of ones' complement. A wrong checksum takes the sum
// over all bytes: the outer checksum is then right and the inner one stays wrong, for the
// receiver to see.
func (h tunneler) innerSum(v *view) uint32 {
	ip := v.p[v.d.L3:]
	if !v.segmentVerified() {
		return h.sumAll(v)
	}
	if v.is4 {
		return uint32(wire.Fold(wire.IPv4(ip).Pseudo()))
	}
	return wire.Sum(ip[:wire.IPv6Len], 0) + uint32(wire.Fold(wire.IPv6(ip).Pseudo()))
}

// segmentVerified reports whether the transport checksum is right and covers all that follows the IP
// header: extension headers, and bytes behind a UDP datagram that is shorter than its packet, are not
// covered.
func (v *view) segmentVerified() bool {
	if !v.d.Flags.Has(packet.FlagL4ChecksumOK) || !v.is4 && v.d.Flags.Has(packet.FlagOptions) {
		return false
	}
	if v.d.Proto == wire.ProtoICMP { // has no pseudo header
		return false
	}
	return v.d.Proto != wire.ProtoUDP || int(v.d.L4-uint16(v.d.L3))+int(wire.UDP(v.p[v.d.L4:]).Len()) == v.size()
}

// sumAll returns the sum of the packet's network-layer bytes, of all its descriptors.
func (h tunneler) sumAll(v *view) uint32 {
	left, sum, odd := v.size(), uint32(0), false
	for i := 0; left > 0 && i < len(h.chain); i++ {
		p := h.arena.Bytes(&h.chain[i])
		if i == 0 {
			p = p[v.d.L3:]
		}
		p = p[:min(left, len(p))]
		s := uint32(^wire.Fold(wire.Sum(p, 0)))
		if odd {
			s = uint32(bits.ReverseBytes16(uint16(s))) // RFC 1071 2 (B)
		}
		sum += s
		left -= len(p)
		odd = odd != (len(p)&1 == 1)
	}
	return sum
}

// decrementTTL takes one from the TTL or hop limit.
func (v *view) decrementTTL() {
	if ip := v.p[v.d.L3:]; v.is4 {
		wire.IPv4(ip).DecrementTTL()
	} else {
		ip[7]--
	}
}

// tunnelProto returns the protocol number of the packet inside another (RFC 2003 3.1, RFC 2473 3).
func (v *view) tunnelProto() uint8 {
	if v.is4 {
		return wire.ProtoIPIP
	}
	return wire.ProtoIPv6
}

// tos returns DSCP and ECN as one octet.
func (v *view) tos() uint8 {
	ip := v.p[v.d.L3:]
	if v.is4 {
		return wire.IPv4(ip).TOS()
	}
	return wire.IPv6(ip).TrafficClass()
}

func etherType(is4 bool) uint16 {
	if is4 {
		return wire.EtherTypeIPv4
	}
	return wire.EtherTypeIPv6
}

// linkLen returns the length of the link header of a hop.
func linkLen(hop *Hop) int {
	if hop.VLAN != 0 {
		return wire.EthernetLen + wire.VLANLen
	}
	return wire.EthernetLen
}

// putLink writes the link header of a packet that leaves by hop.
func putLink(p []byte, hop *Hop, src [6]byte, typ uint16) {
	if hop.VLAN == 0 {
		wire.AppendEthernet(p[:0], hop.MAC, src, typ)
		return
	}
	wire.AppendVLAN(wire.AppendEthernet(p[:0], hop.MAC, src, wire.EtherTypeVLAN), hop.VLAN, typ)
}

// forwardDirect sends a packet of a client on to a backend that answers the client itself.
func (h tunneler) forwardDirect(c *Conn, v *view, to *Endpoint) packet.Verdict {
	w := h.snap.Backends[c.backend].Mode
	if verdict := h.checkDirect(v, to, w); verdict != packet.Forward {
		return verdict
	}
	size := v.size() + w.overhead(to.addr.is4()) // encapsulate moves the view's start
	if verdict := h.encapsulate(v, to, w); verdict != packet.Forward {
		return verdict
	}
	v.d.Port = to.Hop.Dev
	if w.overhead(to.addr.is4()) == 0 { // the packet is the sender's own, and so is its identification
		return h.fragmenter().leave(v, &to.Hop, false)
	}
	if mtu := h.tunnelMTU(to); size > mtu {
		is4 := to.addr.is4()
		return h.fragmenter().fragment(v, &to.Hop, &fragmentation{
			size: size, mtu: mtu, header: ipLen(is4), is4: is4, id: h.fragments.nextID(h.loop, h.loops), flags: packet.FlagTunnel,
		})
	}
	return packet.Forward
}
