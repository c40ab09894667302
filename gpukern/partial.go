package gpukern

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// CompleteChecksum completes the TCP or UDP checksum of a packet, whose first descriptor is b.D[i], if its sender has left that to
// its device: Linux then writes the sum of the pseudo-header into the field, and not the complement of the whole sum
// (CHECKSUM_PARTIAL). It reports whether it has, and the checksum is right now. A wrong checksum has that value once in 65536, so
// the caller asks only for devices that no wire is behind.
func CompleteChecksum(b *packet.Batch, i int) bool {
	d := &b.D[i]
	p, field := b.Arena.Bytes(d), int(d.L4)+16 // of TCP, RFC 9293 3.1
	if d.Proto == wire.ProtoUDP {
		field = int(d.L4) + 6 // RFC 768
	}
	if d.Flags&packet.FlagTunnel != 0 || d.L4 == 0 || field+2 > len(p) {
		return false
	}
	n, pseudo := pseudoOf(d, p)
	if binary.BigEndian.Uint16(p[field:]) != ^wire.Fold(pseudo) || field+2 > int(d.L4)+n || present(b, i)-int(d.L4) < n {
		return false
	}
	var sum uint32
	if d.Flags&packet.FlagMore == 0 {
		sum = wire.Sum(p[d.L4:int(d.L4)+n], 0)
	} else {
		s := sumChain(b, i, n)
		for s > 0xffff {
			s = s>>16 + s&0xffff
		}
		sum = uint32(bits.ReverseBytes16(uint16(s)))
	}
	// The field is a part of the sum. A UDP checksum of 0 would mean that there is none; to TCP both zeros are the same.
	binary.BigEndian.PutUint16(p[field:], wire.UDPChecksum(wire.Fold(sum)))
	d.Flags |= packet.FlagL4ChecksumOK
	return true
}

// pseudoOf returns the length of the transport segment of a packet, by its IP header, and the sum of its pseudo-header.
func pseudoOf(d *packet.Desc, p []byte) (n int, sum uint32) {
	ip, headers := p[d.L3:], int(d.L4)-int(d.L3)
	if d.Flags&packet.FlagIPv4 != 0 {
		n = int(binary.BigEndian.Uint16(ip[2:])) - headers
		return n, wire.PseudoHeader4([4]byte(ip[12:16]), [4]byte(ip[16:20]), d.Proto, uint32(n))
	}
	n = int(binary.BigEndian.Uint16(ip[4:])) + wire.IPv6Len - headers
	return n, wire.PseudoHeader6([16]byte(ip[8:24]), [16]byte(ip[24:40]), d.Proto, uint32(n))
}

// present returns how many bytes of a packet are there, in all its descriptors.
func present(b *packet.Batch, i int) int {
	n := int(b.D[i].Len)
	for b.D[i].Flags&packet.FlagMore != 0 && i+1 < len(b.D) {
		i++
		n += int(b.D[i].Len)
	}
	return n
}
