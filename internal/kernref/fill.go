package kernref

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fill writes checksums into the packet and returns the flags of those that are there now.
func (r *packetView) fill() packet.Flags {
	var f packet.Flags
	if r.flags&(packet.FlagMalformed|packet.FlagTruncated) != 0 {
		return 0
	}
	for _, h := range r.headers4() {
		h.SetChecksum(0)
		h.SetChecksum(wire.Fold(wire.SumPlain(h, 0)))
		f |= packet.FlagIPChecksumOK
	}
	if r.payload == 0 || r.flags&packet.FlagFragment != 0 || r.proto == wire.ProtoSCTP {
		return f
	}
	if !r.offload {
		r.fillTransport()
	}
	return f | packet.FlagL4ChecksumOK
}

// fillTransport writes the checksum of TCP, UDP, ICMP or ICMPv6.
func (r *packetView) fillTransport() {
	l4 := append([]byte(nil), r.all[r.l4:r.end]...)
	var field int
	var c uint16
	switch r.proto {
	case wire.ProtoTCP:
		field = 16
		wire.TCP(l4).SetChecksum(0)
		c = wire.Fold(wire.SumPlain(l4, r.pseudoHeader(len(l4))))
	case wire.ProtoUDP:
		field = 6
		wire.UDP(l4).SetChecksum(0)
		l4 = l4[:wire.UDP(l4).Len()]
		c = wire.UDPChecksum(wire.Fold(wire.SumPlain(l4, r.pseudoHeader(len(l4)))))
	case wire.ProtoICMP:
		field = 2
		l4[2], l4[3] = 0, 0
		c = wire.Fold(wire.SumPlain(l4, 0))
	case wire.ProtoICMPv6:
		field = 2
		l4[2], l4[3] = 0, 0
		c = wire.Fold(wire.SumPlain(l4, r.pseudoHeader(len(l4))))
	}
	binary.BigEndian.PutUint16(r.captured[r.l4+field:], c)
}
