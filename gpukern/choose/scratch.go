package choose

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// scratchPacket writes a UDP packet of size bytes, of flow n, into frame n of an arena: headers and
// checksums are right, the payload is text.
func scratchPacket(a *ring.Arena, n, size int) packet.Desc {
	d := packet.Desc{Off: uint32(n << a.Shift), Len: uint16(size)}
	p := a.View().Bytes(&d)
	clear(p[:wire.EthernetLen+wire.IPv4Len])
	wire.Ethernet(p).SetEtherType(wire.EtherTypeIPv4)
	ip := wire.IPv4(p[wire.EthernetLen:])
	ip.SetHeaderLen(wire.IPv4Len)
	ip.SetTotalLen(uint16(len(ip)))
	ip.SetProto(wire.ProtoUDP)
	src, dst := [4]byte{198, 18, byte(n >> 8), byte(n)}, [4]byte{198, 19, byte(n), byte(n >> 8)}
	ip.SetSrc(src)
	ip.SetDst(dst)
	ip.SetChecksum(wire.Fold(wire.Sum(ip[:wire.IPv4Len], 0)))
	udp := p[wire.EthernetLen+wire.IPv4Len:]
	for i := range udp {
		udp[i] = byte('a' + (i*7+n)%26)
	}
	binary.BigEndian.PutUint16(udp, uint16(1024+n))
	binary.BigEndian.PutUint16(udp[2:], 53)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	sum := wire.Fold(wire.Sum(udp, wire.PseudoHeader4(src, dst, wire.ProtoUDP, uint32(len(udp)))))
	binary.BigEndian.PutUint16(udp[6:], sum)
	return d
}
