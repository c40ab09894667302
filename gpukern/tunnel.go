package gpukern

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// maxInner is where a packet inside of a tunnel may begin: its L3, behind Ethernet and two tags, fits
// Desc.L3.
const maxInner = 255 - 22

// toVXLAN reports whether a packet of protocol proto is a datagram to VXLAN's port.
func toVXLAN(t *tuple.Tuple, proto uint8) bool {
	return proto == wire.ProtoUDP && uint16(t.Ports) == wire.PortVXLAN
}

// tunnel looks into what is not TCP, UDP or the like: it begins at off and ends at end.
func (s parser) tunnel(off, end int) {
	switch s.d.Proto {
	case wire.ProtoIPIP:
		s.enter(off, end, wire.EtherTypeIPv4)
	case wire.ProtoIPv6:
		s.enter(off, end, wire.EtherTypeIPv6)
	case wire.ProtoGRE:
		s.gre(off, end)
	}
}

// vxlan reads a VXLAN header (RFC 7348 5) at off in a datagram that ends at end.
func (s parser) vxlan(off, end int) {
	if s.lacks(off, wire.VXLANLen, end) || s.p[off]&8 == 0 {
		return
	}
	s.enter(off+wire.VXLANLen, end, wire.EtherTypeTEB)
}

// The bits of a GRE header: those whose fields of four bytes follow, and those that make a receiver
// that knows nothing of RFC 1701 drop the packet (RFC 2784 2.3).
const (
	greFields   = wire.GREChecksum | wire.GREKey | wire.GRESequence
	greReserved = 0x4c07
)

// gre reads a GRE header (RFC 2784 2, RFC 2890 2) at off in a packet that ends at end.
func (s parser) gre(off, end int) {
	if s.lacks(off, wire.GRELen, end) {
		return
	}
	flags, ether := binary.BigEndian.Uint16(s.p[off:]), binary.BigEndian.Uint16(s.p[off+2:])
	if flags&greReserved != 0 ||
		ether != wire.EtherTypeIPv4 && ether != wire.EtherTypeIPv6 && ether != wire.EtherTypeTEB {
		return
	}
	off += wire.GRELen + 4*bits.OnesCount16(flags&greFields)
	if off > end {
		s.malformed()
		return
	}
	s.enter(off, end, ether)
}

// enter goes on with the packet that begins at off, inside of the one that was read, which gives it the
// bytes up to end.
func (s parser) enter(off, end int, ether uint16) {
	if off > maxInner {
		return
	}
	d, t := s.d, s.t
	t.Outer = 0
	if d.Flags&packet.FlagIPv4 != 0 {
		t.Outer = d.L3
	}
	d.L3, d.L4, d.Payload, d.Proto = 0, 0, 0, 0
	d.Flags = d.Flags&(packet.FlagMore|packet.FlagOffload|packet.FlagTruncated) | packet.FlagTunnel
	t.Ports, t.End, t.Known = 0, 0, tuple.None
	s.limit, s.tunnels, s.l2encap = end, false, false
	if ether == wire.EtherTypeTEB {
		s.link(off)
		return
	}
	s.network(off, ether)
}
