package kernref

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Tunnel returns a packet with another inside, or even two, most often well-formed.
func (g Generator) Tunnel() []byte {
	p := append(g.Bytes(12), 0, 0)
	if g.Chance(20) {
		p = append(binary.BigEndian.AppendUint16(p[:12], wire.EtherTypeVLAN), 0, 1, 0, 0)
	}
	at := len(p)
	switch g.IntN(8) {
	case 0, 1, 2:
		p = g.around(p, wire.ProtoUDP, g.vxlan(g.innerFrame()))
	case 3, 4:
		p = g.around(p, wire.ProtoGRE, g.gre())
	case 5:
		p = g.around(p, wire.ProtoIPIP, g.ipv4(nil)[2:])
	case 6:
		p = g.around(p, wire.ProtoIPv6, g.ipv6(nil)[2:])
	case 7: // what the protocol number does not say
		p = g.around(p, [...]uint8{wire.ProtoIPIP, wire.ProtoIPv6}[g.IntN(2)], g.innerFrame()[14:])
	}
	ether := wire.EtherTypeIPv4
	if p[at]>>4 == 6 {
		ether = wire.EtherTypeIPv6
	}
	binary.BigEndian.PutUint16(p[at-2:], ether)
	if g.Chance(20) {
		p = append(p, g.Bytes(g.IntN(20))...)
	}
	return p
}

// innerFrame returns what may lie in VXLAN.
func (g Generator) innerFrame() []byte {
	if g.Chance(8) {
		return g.Tunnel()
	}
	return g.Packet()
}

// around appends an IP header of either version for payload, now and then with options, extension
// headers, or as a fragment.
func (g Generator) around(p []byte, proto uint8, payload []byte) []byte {
	at := len(p)
	if g.Chance(60) {
		header := 20
		if g.Chance(15) {
			header += 4 * g.IntN(11)
		}
		p = append(p, g.Bytes(header)...)
		ip := wire.IPv4(append(p, payload...)[at:])
		ip.SetHeaderLen(header)
		ip.SetSrc(g.Addr4())
		ip.SetDst(g.Addr4())
		ip.SetProto(proto)
		ip.SetTotalLen(uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[6:], 0)
		if g.Chance(6) {
			binary.BigEndian.PutUint16(ip[6:], [...]uint16{0x2000, 0x0001}[g.IntN(2)])
		}
		ip.SetChecksum(0)
		ip.SetChecksum(wire.Fold(wire.SumPlain(ip[:header], 0)))
		return append(p[:at], ip...)
	}
	p = append(p, g.Bytes(40)...)
	ip := wire.IPv6(p[at:])
	ip.SetVersion()
	ip.SetSrc(g.Addr6())
	ip.SetDst(g.Addr6())
	next := at + 6
	for n := g.IntN(9); g.Chance(40) && n > 0; n-- {
		kind := [...]uint8{wire.ProtoRouting, wire.ProtoDestOpts, wire.ProtoDestOpts, wire.ProtoAH, wire.ProtoMobility}[g.IntN(5)]
		p[next] = kind
		next = len(p)
		p = append(p, g.extension(kind)...)
		if g.Chance(30) {
			p = append(p, make([]byte, 8*8)...) // so long that what is inside begins beyond the first line
			p[next+1] += 8
			if kind == wire.ProtoAH {
				p[next+1] += 8
			}
		}
	}
	p[next] = proto
	p = append(p, payload...)
	wire.IPv6(p[at:]).SetPayloadLen(uint16(len(p) - at - 40))
	return p
}

// vxlan returns a datagram with an Ethernet frame in it.
func (g Generator) vxlan(frame []byte) []byte {
	p := wire.AppendUDP(nil, g.Port(), wire.PortVXLAN, wire.VXLANLen+len(frame))
	if g.Chance(10) {
		wire.UDP(p).SetDstPort(g.Port())
	}
	p = wire.AppendVXLAN(p, g.Uint32()&0xffffff)
	if g.Chance(10) {
		p[8] = byte(g.Uint32())
	}
	return append(p, frame...)
}

// gre returns a GRE packet.
func (g Generator) gre() []byte {
	var flags uint16
	for range 3 {
		flags |= [...]uint16{wire.GREChecksum, wire.GREKey, wire.GRESequence, 0}[g.IntN(4)]
	}
	p := wire.AppendGRE(nil, flags, 0)
	copy(p[4:], g.Bytes(12))
	if g.Chance(10) {
		p[g.IntN(2)] ^= 1 << g.IntN(8)
	}
	gre := wire.GRE(p)
	switch g.IntN(7) {
	case 0, 1:
		gre.SetEtherType(wire.EtherTypeIPv4)
		p = append(p, g.ipv4(nil)[2:]...)
	case 2, 3:
		gre.SetEtherType(wire.EtherTypeIPv6)
		p = append(p, g.ipv6(nil)[2:]...)
	case 4, 5:
		gre.SetEtherType(wire.EtherTypeTEB)
		p = append(p, g.innerFrame()...)
	case 6:
		gre.SetEtherType([...]uint16{wire.EtherTypeARP, 0x880b, 0}[g.IntN(3)])
		p = append(p, g.Bytes(30)...)
	}
	return p
}

// DamageTunnel is damage that hits the headers of tunnels: a bit or a length.
func (g Generator) DamageTunnel(p []byte) []byte {
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

// Tunnels returns n packets, most of them tunnels, some damaged, some in pieces.
func (g Generator) Tunnels(n int) *packet.Batch {
	var packets [][][]byte
	for range n {
		p := g.Packet()
		if g.Chance(85) {
			p = g.Tunnel()
		}
		if g.Chance(40) {
			p = g.DamageTunnel(p)
		}
		packets = append(packets, g.Split(p[:min(len(p), 2048)]))
	}
	b := BatchOf(packets...)
	for i := range b.D { // what a careless driver leaves behind
		b.D[i].Hash, b.D[i].Rule, b.D[i].NextHop, b.D[i].L4 = g.Uint32(), 7, 7, 7
		b.D[i].Flags |= packet.FlagTunnel | packet.FlagIPv4
		b.D[i].Stamp, b.D[i].Port, b.D[i].Flow = g.Uint32(), 3, g.Uint32()
	}
	g.offload(b)
	return b
}

// offload marks some packets as those whose checksum the device makes.
func (g Generator) offload(b *packet.Batch) {
	first := true
	for i := range b.D {
		if first && g.Chance(10) {
			b.D[i].Flags |= packet.FlagOffload
		}
		first = b.D[i].Flags&packet.FlagMore == 0
	}
}

// Unsum overwrites the checksums of packets that can be filled, the inner ones of tunnels too.
func (g Generator) Unsum(b *packet.Batch) *packet.Batch {
	ref := &packet.Batch{Arena: b.Arena, D: append([]packet.Desc(nil), b.D...)}
	for _, ops := range []gpukern.Ops{gpukern.OpTunnel, gpukern.OpParse} {
		Reference(ref, ops, Lists{})
		for i := range ref.D {
			d, p := &ref.D[i], b.Bytes(i)
			if d.Flags&packet.FlagIPv4 != 0 && d.Flags&packet.FlagMalformed == 0 {
				copy(p[d.L3+10:], g.Bytes(2))
			}
			if d.Payload != 0 && d.Proto != wire.ProtoSCTP && !(wire.UDP(p[d.L4:]).DstPort() == wire.PortVXLAN && ops == gpukern.OpParse) {
				copy(p[int(d.L4)+map[uint8]int{wire.ProtoTCP: 16, wire.ProtoUDP: 6, wire.ProtoICMP: 2, wire.ProtoICMPv6: 2}[d.Proto]:], g.Bytes(2))
			}
		}
	}
	return b
}
