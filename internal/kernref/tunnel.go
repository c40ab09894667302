package kernref

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inside returns the packet inside of the tunnel r, and r where it is none.
func (r *packetView) inside() *packetView {
	if r.next == 0 || r.flags&(packet.FlagMalformed|packet.FlagFragment) != 0 {
		return r
	}
	switch r.proto {
	case wire.ProtoUDP:
		return r.insideVXLAN()
	case wire.ProtoGRE:
		return r.insideGRE()
	case wire.ProtoIPIP:
		return r.packetAt(r.next, r.end, (*packetView).network, wire.EtherTypeIPv4)
	case wire.ProtoIPv6:
		return r.packetAt(r.next, r.end, (*packetView).network, wire.EtherTypeIPv6)
	}
	return r
}

// packetAt reads the packet at an offset of r, which gives it the bytes up to limit.
func (r *packetView) packetAt(at, limit int, read func(*packetView, int, uint16), ether uint16) *packetView {
	if at+wire.EthernetLen+2*4 > 255 {
		return r
	}
	in := &packetView{captured: r.captured, all: r.all, limit: limit, outer: r, sport: noPort, dport: noPort}
	in.flags = r.flags&packet.FlagTruncated | packet.FlagTunnel
	read(in, at, ether)
	return in
}

func (r *packetView) bridged(at int, _ uint16) { r.ethernet(at) }

// insideVXLAN is inside for UDP: RFC 7348 5.
func (r *packetView) insideVXLAN() *packetView {
	if r.payload == 0 || wire.UDP(r.captured[r.l4:]).DstPort() != wire.PortVXLAN {
		return r
	}
	end := r.l4 + int(wire.UDP(r.captured[r.l4:]).Len())
	if !r.within(r.payload, wire.VXLANLen, end) || !wire.VXLAN(r.captured[r.payload:]).Valid() {
		return r
	}
	return r.packetAt(r.payload+wire.VXLANLen, end, (*packetView).bridged, 0)
}

// insideGRE is inside for GRE: RFC 2784 2, RFC 2890 2.
func (r *packetView) insideGRE() *packetView {
	if !r.within(r.next, wire.GRELen, r.end) {
		return r
	}
	g := wire.GRE(r.captured[r.next:])
	whole := append(append(wire.GRE(nil), g[:wire.GRELen]...), make([]byte, 3*4)...) // fields need not be captured
	if !whole.Valid() {
		return r
	}
	read := (*packetView).network
	switch g.EtherType() {
	case wire.EtherTypeIPv4, wire.EtherTypeIPv6:
	case wire.EtherTypeTEB:
		read = (*packetView).bridged
	default:
		return r
	}
	at := r.next + whole.HeaderLen()
	if at > r.end {
		r.flags |= packet.FlagMalformed
		return r
	}
	return r.packetAt(at, r.end, read, g.EtherType())
}
