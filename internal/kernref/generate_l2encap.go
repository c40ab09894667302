package kernref

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// L2Encap returns a packet in PPPoE or behind an MPLS label stack, behind tags now and then, most often well-formed.
func (g Generator) L2Encap() []byte {
	p := g.Bytes(12)
	for range [...]int{0, 0, 1, 2, 3}[g.IntN(5)] {
		p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeVLAN, wire.EtherTypeQinQ}[g.IntN(2)])
		p = append(p, g.Bytes(2)...)
	}
	inner, ppp := g.ipv4(nil)[2:], uint16(0x0021)
	switch {
	case g.Chance(40):
		inner, ppp = g.ipv6(nil)[2:], 0x0057
	case g.Chance(10):
		inner, ppp = g.Bytes(30), 0xc021 // LCP, a pseudowire
	}
	if g.Chance(50) {
		p = append(p, 0x88, 0x64, 0x11, 0, 0, 9)
		p = binary.BigEndian.AppendUint16(p, uint16(len(inner)+2))
		p = binary.BigEndian.AppendUint16(p, ppp)
		return append(p, inner...)
	}
	p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeMPLS, wire.EtherTypeMPLSUpstream}[g.IntN(2)])
	for labels := [...]int{1, 1, 2, 3, 7, 8, 9}[g.IntN(7)]; labels > 0; labels-- {
		entry := g.Uint32() &^ 0x100
		if labels == 1 {
			entry |= 0x100
		}
		p = binary.BigEndian.AppendUint32(p, entry)
	}
	return append(p, inner...)
}

// L2Encaps returns n packets, most of them of L2Encap, some damaged, some in pieces.
func (g Generator) L2Encaps(n int) *packet.Batch {
	var packets [][][]byte
	for range n {
		p := g.L2Encap()
		if g.Chance(15) {
			p = g.Packet()
		}
		if g.Chance(40) {
			p = g.damageDeep(p)
		}
		packets = append(packets, g.Split(p[:min(len(p), 2048)]))
	}
	return BatchOf(packets...)
}

// damageDeep is Damage that also hits headers behind those of layer 2: a bit or a length.
func (g Generator) damageDeep(p []byte) []byte {
	if g.Chance(40) || len(p) < 60 {
		return g.Damage(p)
	}
	at := 14 + g.IntN(min(len(p), 150)-15)
	if g.Chance(50) {
		p[at] ^= 1 << g.IntN(8)
		return p
	}
	v := binary.BigEndian.Uint16(p[at:]) + uint16(g.IntN(81)) - 40
	binary.BigEndian.PutUint16(p[at:], v)
	return p
}
