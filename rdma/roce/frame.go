package roce

import (
	"encoding/binary"

	"github.com/millrace/millrace/wire"
)

// Port is the UDP destination port of RoCEv2, EtherTypeV1 the EtherType of RoCEv1.
const (
	Port               = 4791
	EtherTypeV1 uint16 = 0x8915
)

// nextHeaderIBA is the next header of a GRH: an InfiniBand transport packet (5.2).
const nextHeaderIBA = 0x1b

// Envelope holds the fields in front of a transport packet.
type Envelope struct {
	SrcMAC, DstMAC wire.MAC
	VLAN           uint16    // identifier of the 802.1Q tag; 0 is no tag
	Src, Dst       wire.Addr // GIDs: those of IPv4 are IPv4-mapped (A17.4.5.2)
	SrcPort        uint16    // UDP; the same for all packets of a queue pair, so that they take one path
	ID             uint16    // IPv4 identification, which the ICRC covers
	TOS            uint8     // traffic class of either version: DSCP and ECN
	TTL            uint8     // or hop limit
	V1             bool      // RoCEv1: a GRH instead of IP and UDP
}

// ECN returns the congestion notification field.
func (e *Envelope) ECN() wire.ECN { return wire.ECN(e.TOS & 3) }

// Frame is a received packet: its envelope, the transport packet, and what the ICRC is computed over.
type Frame struct {
	Envelope
	Packet
	l3   []byte // from the IP header or GRH to the end of the ICRC
	l3ln int    // bytes of it before the BTH
}

// Parse reads an Ethernet frame, which f borrows until the next call. It does not verify the ICRC: see Verify.
func (f *Frame) Parse(b []byte) Reason {
	et, off, ok := wire.Network(b)
	if !ok {
		return Truncated
	}
	f.SrcMAC, f.DstMAC, f.VLAN = wire.Ethernet(b).Src(), wire.Ethernet(b).Dst(), 0
	if off > wire.EthernetLen {
		f.VLAN = wire.VLAN(b[wire.EthernetLen:]).ID()
	}
	var why Reason
	switch l3 := b[off:]; et {
	case wire.EtherTypeIPv4:
		why = f.parseIPv4(l3)
	case wire.EtherTypeIPv6:
		why = f.parseIPv6(l3)
	case EtherTypeV1:
		why = f.parseGRH(l3)
	default:
		return NotRoCE
	}
	if why != Accepted {
		return why
	}
	if len(f.l3)-f.l3ln < BTHLen+ICRCLen {
		return Truncated
	}
	return f.Packet.Parse(f.l3[f.l3ln : len(f.l3)-ICRCLen])
}

func (f *Frame) parseIPv4(b wire.IPv4) Reason {
	switch {
	case !b.ValidHeader() || int(b.TotalLen()) > len(b):
		return Truncated
	case b.Proto() != wire.ProtoUDP:
		return NotRoCE
	case b.Fragment():
		return Fragmented
	case b.HeaderLen() != wire.IPv4Len: // the ICRC has no rule for options
		return BadLength
	}
	f.Src, f.Dst = wire.AddrFrom4(b.Src()), wire.AddrFrom4(b.Dst())
	f.TOS, f.TTL, f.ID, f.V1 = b.TOS(), b.TTL(), b.ID(), false
	return f.parseUDP(b[:b.TotalLen()], wire.IPv4Len)
}

func (f *Frame) parseIPv6(b wire.IPv6) Reason {
	switch {
	case !b.Valid():
		return Truncated
	case b.NextHeader() != wire.ProtoUDP:
		return NotRoCE
	case wire.Addr(b.Src()).Is4() || wire.Addr(b.Dst()).Is4(): // their GIDs are those of IPv4 packets
		return BadAddress
	}
	f.Src, f.Dst, f.TOS, f.TTL, f.ID, f.V1 = b.Src(), b.Dst(), b.TrafficClass(), b.HopLimit(), 0, false
	return f.parseUDP(b[:wire.IPv6Len+int(b.PayloadLen())], wire.IPv6Len)
}

// parseUDP reads the UDP header at off. Its checksum is not looked at: the ICRC protects the same bytes, and senders leave
// it out, over IPv6 as well (A17.4.5.1).
func (f *Frame) parseUDP(l3 []byte, off int) Reason {
	u := wire.UDP(l3[off:])
	switch {
	case !u.ValidHeader():
		return Truncated
	case u.DstPort() != Port:
		return NotRoCE
	case int(u.Len()) != len(u): // else the ICRC would have two places
		return BadLength
	}
	f.SrcPort, f.l3, f.l3ln = u.SrcPort(), l3, off+wire.UDPLen
	return Accepted
}

// parseGRH reads a global route header, which has the layout of an IPv6 header (8.3). Its length counts what follows with
// the ICRC.
func (f *Frame) parseGRH(b wire.IPv6) Reason {
	switch {
	case !b.Valid():
		return Truncated
	case b.NextHeader() != nextHeaderIBA:
		return NotRoCE
	}
	f.Src, f.Dst, f.TOS, f.TTL, f.ID, f.SrcPort, f.V1 = b.Src(), b.Dst(), b.TrafficClass(), b.HopLimit(), 0, 0, true
	f.l3, f.l3ln = b[:wire.IPv6Len+int(b.PayloadLen())], wire.IPv6Len
	return Accepted
}

// Verify compares the ICRC of a parsed frame. It writes to the frame meanwhile, and leaves it as it was.
func (f *Frame) Verify() Reason {
	end := len(f.l3) - ICRCLen
	if binary.LittleEndian.Uint32(f.l3[end:]) != ICRC(f.l3[:end]) {
		return BadICRC
	}
	return Accepted
}

// GRH writes the 40 bytes that stand before the payload in the receive buffer of a datagram: the global route header, or
// 20 undefined bytes, here zeros, and the IPv4 header (A17.4.5.2).
func (f *Frame) GRH(b *[40]byte) {
	if f.Src.Is4() && !f.V1 {
		clear(b[:20])
		copy(b[20:], f.l3[:wire.IPv4Len])
		return
	}
	copy(b[:], f.l3[:wire.IPv6Len])
}
