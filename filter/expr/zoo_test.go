package expr

import (
	"encoding/binary"
	"math/rand/v2"
)

// zoo returns packets of many protocols with the addresses and ports that generated expressions ask for.
// The same seed gives the same packets. Some are cut short, at any byte.
func zoo(t LinkType, n int) []pkt {
	rng := rand.New(rand.NewPCG(11, uint64(t)))
	z := zookeeper{rng}
	pkts := make([]pkt, n)
	for i := range pkts {
		b := z.frame(t)
		length := len(b)
		if rng.IntN(5) == 0 {
			b = b[:rng.IntN(len(b)+1)]
		}
		pkts[i] = pkt{b, uint32(length)}
	}
	return pkts
}

type zookeeper struct{ *rand.Rand }

func (z zookeeper) of(n ...uint16) uint16 { return n[z.IntN(len(n))] }

// bytes returns n arbitrary bytes, half of the time zeros.
func (z zookeeper) bytes(n int) []byte {
	b := make([]byte, n)
	if z.IntN(2) == 0 {
		for i := range b {
			b[i] = byte(z.Uint32())
		}
	}
	return b
}

func be16(v ...uint16) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint16(b, x)
	}
	return b
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// frame returns a packet with the header of a link type.
func (z zookeeper) frame(t LinkType) []byte {
	proto, payload := z.network(3)
	version := byte(0x45)
	if proto == typeIPv6 {
		version = 0x60
	}
	switch t {
	case LinkRaw, LinkIPv4, LinkIPv6:
		return payload
	case LinkNull:
		af := map[uint16]byte{typeIPv6: []byte{10, 24, 28, 30}[z.IntN(4)]}[proto]
		if version == 0x45 {
			af = 2
		}
		if z.IntN(2) == 0 {
			return join([]byte{af, 0, 0, 0}, payload)
		}
		return join([]byte{0, 0, 0, af}, payload)
	case LinkPPP:
		if p, ok := pppProtocols[uint32(proto)]; ok {
			proto = uint16(p)
		}
		return join([]byte{0xff, 3}, be16(proto), payload)
	case LinkLinuxCooked:
		return join(be16(z.of(0, 1, 4)), z.bytes(12), be16(proto), payload)
	case LinkLinuxCooked2:
		return join(be16(proto), z.bytes(8), []byte{byte(z.of(0, 4))}, z.bytes(9), payload)
	case Link80211:
		control := []byte{byte(z.of(0x08, 0x88, 0x80, 0x40, 0xd4, 0xb4)), byte(z.of(0, 1, 2, 3))}
		header := join(control, z.bytes(2), z.mac(), z.mac(), z.mac(), z.bytes(2))
		if control[0] == 0x88 {
			header = append(header, 0, 0)
		}
		return join(header, []byte{sapSNAP, sapSNAP, 3, 0, 0, 0}, be16(proto), payload)
	}
	return z.ethernet(proto, payload)
}

func (z zookeeper) mac() []byte {
	return [][]byte{
		{0, 1, 2, 3, 4, 5},
		{0, 0x11, 0x22, 0x33, 0x44, 0x55},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{1, 0, 0x5e, 0, 0, 0xfb},
		{0x33, 0x33, 0, 0, 0, 1},
	}[z.IntN(5)]
}

// ethernet adds an Ethernet header, sometimes with tags, labels, PPPoE or LLC behind it.
func (z zookeeper) ethernet(proto uint16, payload []byte) []byte {
	head := join(z.mac(), z.mac())
	switch z.IntN(10) {
	case 0:
		tag := be16(z.of(typeVLAN, typeQinQ, typeQinQOld), z.of(100, 5, 0x2005))
		if z.IntN(3) == 0 {
			tag = join(tag, be16(typeVLAN, z.of(5, 100)))
		}
		return join(head, tag, be16(proto), payload)
	case 1:
		label := []byte{0, 1, byte(z.of(0, 1)), 64} // label 16
		return join(head, be16(typeMPLS), label, []byte{0, 2, 1, 64}[:4*z.IntN(2)], payload)
	case 2:
		ppp := z.of(0x21, 0x57, 0xc021)
		return join(head, be16(typePPPoES), []byte{0x11, 0}, be16(z.of(1, 59), uint16(len(payload)+2), ppp), payload)
	case 3:
		llc := [][]byte{
			{0xfe, 0xfe, 3, 0x83, 0x1b, 1, 0, byte(z.of(15, 16, 17, 18, 20, 24, 25, 26, 27))},
			{0x42, 0x42, 3},
			{0xe0, 0xe0, 3},
			{0xff, 0xff},
			{0xf0, 0xf0, 0x7f},
			{sapSNAP, sapSNAP, 3, 8, 0, 7, 0x80, 0x9b},
			{6, 6, 5},
		}[z.IntN(7)]
		return join(head, be16(uint16(z.IntN(1501))), llc, z.bytes(40))
	}
	return join(head, be16(proto), payload)
}

// network returns a packet of the network layer and its EtherType.
func (z zookeeper) network(depth int) (uint16, []byte) {
	switch z.IntN(8) {
	case 0:
		return z.of(typeARP, typeRARP), join(be16(1, typeIPv4, 0x0604, z.of(1, 2)), z.mac(), z.ipv4(), z.mac(), z.ipv4())
	case 1:
		return z.of(typeDECnet, typeLAT, typeSCA, typeMOPRC, typeMOPDL, typeAARP, typeAppleTalk, typeIPX), z.bytes(50)
	case 2, 3, 4:
		return typeIPv6, z.ipv6Packet(depth)
	}
	options := z.bytes(4 * (z.IntN(3) * z.IntN(3)))
	proto, payload := z.transport(depth)
	fragment := z.of(0, 0, 0, 0, 0x2000, 0x4000, 1, 0x2005)
	head := join([]byte{0x40 | byte(5+len(options)/4), 0}, be16(uint16(20+len(options)+len(payload)), uint16(z.Uint32()), fragment),
		[]byte{byte(z.of(64, 1, 255)), proto}, z.bytes(2))
	return typeIPv4, join(head, z.ipv4(), z.ipv4(), options, payload)
}

func (z zookeeper) ipv6Packet(depth int) []byte {
	next, payload := z.transport(depth)
	for z.IntN(4) == 0 {
		kind := byte(z.of(ipHopByHop, ipDestOpts, ipRouting, ipFragment, ipAH))
		words := z.IntN(2)
		payload = join([]byte{next, byte(words)}, z.bytes(6+8*words), payload)
		next = kind
	}
	return join([]byte{0x60, 0, 0, 0}, be16(uint16(len(payload))), []byte{next, 64}, z.ipv6(), z.ipv6(), payload)
}

func (z zookeeper) ipv4() []byte {
	return [][]byte{
		{10, 0, 0, 1},
		{192, 168, 1, 1},
		{192, 168, 1, 2},
		{224, 0, 0, 251},
		{8, 8, 8, 8},
		{127, 0, 0, 1},
		{192, 168, byte(z.IntN(3)), byte(z.Uint32())},
		{172, 16, 5, 255},
		{255, 255, 255, 255},
	}[z.IntN(9)]
}

func (z zookeeper) ipv6() []byte {
	head := [][]byte{{0, 0}, {0xfe, 0x80}, {0x20, 1, 0x0d, 0xb8}, {0xff, 2}}[z.IntN(4)]
	b := make([]byte, 16)
	copy(b, head)
	b[15] = byte(z.of(1, 1, 0xfb, 7))
	return b
}

// transport returns a packet of the transport layer and its protocol number.
func (z zookeeper) transport(depth int) (byte, []byte) {
	port := func() uint16 { return z.of(80, 53, 443, 22, 123, 5353, 67, uint16(z.Uint32())) }
	switch z.IntN(7) {
	case 0, 1:
		flags := byte(z.of(2, 0x12, 0x10, 0x18, 0x11, 4))
		return ipTCP, join(be16(port(), port()), z.bytes(8), []byte{0x50, flags}, z.bytes(6+z.IntN(40)))
	case 2:
		return []byte{ipICMP, ipICMPv6}[z.IntN(2)], join([]byte{byte(z.of(8, 0, 3, 128, 135)), 0}, z.bytes(2+z.IntN(30)))
	case 3:
		return byte(z.of(ipIGMP, ipIGRP, ipESP, ipAH, ipPIM, ipVRRP, ipSCTP, 47, ipNoNext)), join(be16(port(), port()), z.bytes(20))
	case 4:
		if depth > 0 {
			return ipUDP, z.tunnel(depth - 1)
		}
	}
	return ipUDP, join(be16(port(), port(), 20, 0), z.bytes(z.IntN(40)))
}

// tunnel returns UDP with VXLAN or Geneve.
func (z zookeeper) tunnel(depth int) []byte {
	proto, payload := z.network(depth)
	inner := z.ethernet(proto, payload)
	if z.IntN(2) == 0 {
		return join(be16(40000, 4789, 0, 0), []byte{8, 0, 0, 0, 0, 0, byte(z.of(42, 7)), 0}, inner)
	}
	options := z.bytes(4 * z.IntN(3))
	kind := uint16(typeTEB)
	if z.IntN(3) == 0 {
		kind, inner = proto, payload
	}
	return join(be16(40000, 6081, 0, 0), []byte{byte(len(options) / 4), 0}, be16(kind), []byte{0, 0, byte(z.of(5, 7)), 0}, options, inner)
}
