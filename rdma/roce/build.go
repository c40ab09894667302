package roce

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/millrace/millrace/wire"
)

// Overhead is the most that Build adds to a payload: Ethernet with a tag, IPv6, UDP, transport headers, pad and ICRC.
const Overhead = wire.EthernetLen + wire.VLANLen + wire.IPv6Len + wire.UDPLen + MostHeaders + 3 + ICRCLen

// Build writes a frame into b, which has room for Overhead and the payload, and returns its length. The payload is the
// pieces in their order; p.Payload is not read. Payload bytes are read once, for the copy and the ICRC.
func Build(b []byte, e *Envelope, p *Packet, pieces ...[]byte) int {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	pad := -size & 3
	inner := p.HeadersLen() + size + pad + ICRCLen
	h := e.append(b[:0], inner)
	bth := len(h)
	h = p.AppendHeaders(h, size)
	l3 := bth - e.networkLen()
	crc := maskedCRC(h[l3:], bth-l3)
	at := len(h)
	for _, piece := range pieces {
		crc = CopyCRC(b[at:], piece, crc)
		at += len(piece)
	}
	crc = CopyCRC(b[at:], zeros[:pad], crc)
	at += pad
	binary.LittleEndian.PutUint32(b[at:], crc)
	return at + ICRCLen
}

var zeros [4]byte

// networkLen returns the bytes from the IP header or GRH to the BTH.
func (e *Envelope) networkLen() int {
	switch {
	case e.V1:
		return wire.IPv6Len
	case e.Src.Is4():
		return wire.IPv4Len + wire.UDPLen
	}
	return wire.IPv6Len + wire.UDPLen
}

// append appends the headers in front of a BTH with inner bytes from it to the end of the ICRC.
func (e *Envelope) append(b []byte, inner int) []byte {
	et := wire.EtherTypeIPv6
	if e.V1 {
		et = EtherTypeV1
	} else if e.Src.Is4() {
		et = wire.EtherTypeIPv4
	}
	if e.VLAN != 0 {
		b = wire.AppendEthernet(b, e.DstMAC, e.SrcMAC, wire.EtherTypeVLAN)
		b = wire.AppendVLAN(b, e.VLAN, et)
	} else {
		b = wire.AppendEthernet(b, e.DstMAC, e.SrcMAC, et)
	}
	switch {
	case e.V1:
		return wire.AppendIPv6(b, &wire.IPv6Header{Src: e.Src, Dst: e.Dst, NextHeader: nextHeaderIBA, HopLimit: e.TTL, TrafficClass: e.TOS, PayloadLen: inner})
	case e.Src.Is4():
		b = wire.AppendIPv4(b, &wire.IPv4Header{
			Src: e.Src.As4(), Dst: e.Dst.As4(), Proto: wire.ProtoUDP, TTL: e.TTL, TOS: e.TOS, DontFragment: true, ID: e.ID,
			PayloadLen: wire.UDPLen + inner,
		})
	default:
		b = wire.AppendIPv6(b, &wire.IPv6Header{Src: e.Src, Dst: e.Dst, NextHeader: wire.ProtoUDP, HopLimit: e.TTL, TrafficClass: e.TOS, PayloadLen: wire.UDPLen + inner})
	}
	return wire.AppendUDP(b, e.SrcPort, Port, inner)
}

// afterLRH is the CRC of the 8 bytes of ones that stand for the local route header, which RoCE has not.
var afterLRH = crc32.ChecksumIEEE([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
