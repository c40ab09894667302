package gpukern

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// generator makes packets, rules and routes from a seed. Its addresses come from few networks, so
// that packets meet rules.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

// bytes returns n random bytes.
func (g generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// addr4 and addr6 return addresses that differ in few bits from one another.
func (g generator) addr4() [4]byte {
	return [4]byte{198, 18 + byte(g.IntN(2)), byte(1 << g.IntN(8)), byte(g.IntN(256))}
}

func (g generator) addr6() [16]byte {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, byte(g.IntN(2)), 15: byte(g.IntN(256))}
	a[6+g.IntN(8)] |= 1 << g.IntN(8)
	return a
}

func (g generator) port() uint16 {
	return [...]uint16{0, 53, 80, 443, 1023, 1024, 8080, 65535, uint16(g.Uint32())}[g.IntN(9)]
}

// packet returns a well-formed packet with right checksums; its parts are chosen at random.
func (g generator) packet() []byte {
	p := g.bytes(12)
	for range [...]int{0, 0, 0, 1, 2}[g.IntN(5)] {
		p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeVLAN, wire.EtherTypeQinQ}[g.IntN(2)])
		p = append(p, g.bytes(2)...)
	}
	if g.chance(4) {
		p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeARP, wire.EtherTypeVLAN, 46}[g.IntN(3)])
		return append(p, g.bytes(46)...)
	}
	if g.chance(50) {
		p = g.ipv4(p)
	} else {
		p = g.ipv6(p)
	}
	if g.chance(20) {
		p = append(p, g.bytes(g.IntN(20))...) // padding
	}
	return p
}

func (g generator) ipv4(p []byte) []byte {
	p = binary.BigEndian.AppendUint16(p, wire.EtherTypeIPv4)
	at := len(p)
	header := 20
	if g.chance(15) {
		header += 4 * g.IntN(11)
	}
	p = append(p, g.bytes(header)...)
	ip := wire.IPv4(p[at:])
	ip.SetHeaderLen(header)
	ip.SetSrc(g.addr4())
	ip.SetDst(g.addr4())
	binary.BigEndian.PutUint16(ip[6:], 0x4000)
	if g.chance(8) {
		binary.BigEndian.PutUint16(ip[6:], [...]uint16{0x2000, 0x2001, 0x0123, 0x8000}[g.IntN(4)])
	}
	proto := g.proto(wire.ProtoICMP)
	p = g.transport(p, proto, wire.PseudoHeader4(ip.Src(), ip.Dst(), proto, 0))
	ip = wire.IPv4(p[at:])
	ip.SetProto(proto)
	ip.SetTotalLen(uint16(len(ip)))
	ip.SetChecksum(0)
	ip.SetChecksum(wire.Fold(wire.SumPlain(ip[:header], 0)))
	return p
}

func (g generator) ipv6(p []byte) []byte {
	p = binary.BigEndian.AppendUint16(p, wire.EtherTypeIPv6)
	at := len(p)
	p = append(p, g.bytes(40)...)
	ip := wire.IPv6(p[at:])
	ip.SetVersion()
	ip.SetSrc(g.addr6())
	ip.SetDst(g.addr6())
	src, dst := ip.Src(), ip.Dst()
	next := at + 6
	for n := g.IntN(4); g.chance(25) && n > 0; n-- {
		kind := [...]uint8{wire.ProtoHopByHop, wire.ProtoRouting, wire.ProtoDestOpts, wire.ProtoAH, wire.ProtoMobility, wire.ProtoFragment}[g.IntN(6)]
		p[next] = kind
		next = len(p)
		p = append(p, g.extension(kind)...)
	}
	proto := g.proto(wire.ProtoICMPv6)
	p[next] = proto
	p = g.transport(p, proto, wire.PseudoHeader6(src, dst, proto, 0))
	wire.IPv6(p[at:]).SetPayloadLen(uint16(len(p) - at - 40))
	return p
}

// extension returns an extension header whose next header is still to be set.
func (g generator) extension(kind uint8) []byte {
	units := g.IntN(3)
	h := g.bytes(8 + 8*units)
	h[1] = byte(units)
	switch kind {
	case wire.ProtoAH:
		h[1] = byte(2 * units)
	case wire.ProtoFragment:
		h = h[:8]
		at := [...]uint16{0, 6, 1, 8, 0x0ff9}[g.IntN(5)]
		binary.BigEndian.PutUint16(h[2:], at)
	}
	return h
}

func (g generator) proto(icmp uint8) uint8 {
	return [...]uint8{
		wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, icmp,
		wire.ProtoSCTP, wire.ProtoESP, wire.ProtoNone, uint8(g.Uint32()),
	}[g.IntN(10)]
}

// transport appends a transport header with a payload and a right checksum; pseudo is the sum of
// the pseudo-header without its length.
func (g generator) transport(p []byte, proto uint8, pseudo uint32) []byte {
	at := len(p)
	payload := g.IntN(60)
	if g.chance(10) {
		payload = g.IntN(1400)
	}
	switch proto {
	case wire.ProtoTCP:
		p = append(p, g.bytes(20)...)
		options := 4 * g.IntN(4)
		p[at+12] = byte(20+options) << 2
		p = append(p, g.bytes(options)...)
		p = g.sum(append(p, g.bytes(payload)...), at, 16, pseudo)
	case wire.ProtoUDP:
		p = append(p, g.bytes(8+payload)...)
		binary.BigEndian.PutUint16(p[at+4:], uint16(8+payload))
		p = g.sum(p, at, 6, pseudo)
		if g.chance(10) {
			p[at+6], p[at+7] = 0, 0
		}
	case wire.ProtoICMP:
		p = g.sum(append(p, g.bytes(8+payload)...), at, 2, 0)
		return p
	case wire.ProtoICMPv6:
		p = g.sum(append(p, g.bytes(8+payload)...), at, 2, pseudo)
		return p
	default:
		p = append(p, g.bytes(12+payload)...)
	}
	return p
}

// sum sets ports that rules may ask for and the checksum, which lies at field.
func (g generator) sum(p []byte, at, field int, pseudo uint32) []byte {
	l4 := p[at:]
	if field != 2 {
		binary.BigEndian.PutUint16(l4, g.port())
		binary.BigEndian.PutUint16(l4[2:], g.port())
	}
	binary.BigEndian.PutUint16(l4[field:], 0)
	if pseudo != 0 {
		pseudo += uint32(len(l4))
	}
	binary.BigEndian.PutUint16(l4[field:], wire.Fold(wire.SumPlain(l4, pseudo)))
	if field == 6 && l4[6]|l4[7] == 0 {
		l4[6], l4[7] = 0xff, 0xff
	}
	return p
}

// damage changes a packet for the worse: a byte, a cut end, a length.
func (g generator) damage(p []byte) []byte {
	switch g.IntN(4) {
	case 0:
		return p[:g.IntN(len(p)+1)]
	case 1:
		for range 1 + g.IntN(3) {
			p[g.IntN(len(p))] = byte(g.Uint32())
		}
	case 2:
		p[g.IntN(min(len(p), 74))] ^= 1 << g.IntN(8)
	case 3:
		at := g.IntN(min(len(p), 70) - 1)
		v := binary.BigEndian.Uint16(p[at:]) + uint16(g.IntN(17)) - 8
		binary.BigEndian.PutUint16(p[at:], v)
	}
	return p
}

// split cuts p into pieces, most often one.
func (g generator) split(p []byte) [][]byte {
	var pieces [][]byte
	for g.chance(15) && len(p) > 1 {
		n := g.IntN(len(p))
		pieces = append(pieces, p[:n])
		p = p[n:]
	}
	return append(pieces, p)
}

// batch returns n packets, some damaged, some in pieces.
func (g generator) batch(n int) *packet.Batch {
	var packets [][][]byte
	for range n {
		p := g.packet()
		if g.chance(40) {
			p = g.damage(p)
		}
		packets = append(packets, g.split(p))
	}
	b := batchOf(packets...)
	for i := range b.D { // what a careless driver leaves behind
		b.D[i].Hash, b.D[i].Rule, b.D[i].NextHop, b.D[i].L4 = g.Uint32(), 7, 7, 7
		b.D[i].Flags |= packet.FlagMalformed | packet.FlagIPv4
		b.D[i].Stamp, b.D[i].Port, b.D[i].Flow = g.Uint32(), 3, g.Uint32()
	}
	return b
}

// prefix returns a prefix of an address that packets have.
func (g generator) prefix(v4 bool) netip.Prefix {
	a, bits := netip.AddrFrom16(g.addr6()), 16+g.IntN(113)
	if v4 {
		a, bits = netip.AddrFrom4(g.addr4()), 8+g.IntN(25)
	}
	if g.chance(5) {
		bits = g.IntN(bits + 1)
	}
	p, err := a.Prefix(bits)
	if err != nil {
		panic(fmt.Sprint("prefix: ", err))
	}
	return p
}

func (g generator) ports() Ports {
	switch g.IntN(4) {
	case 0:
		return Ports{}
	case 1:
		p := g.port()
		return PortRange(p, p)
	}
	a, b := g.port(), g.port()
	return PortRange(min(a, b), max(a, b))
}

// rules returns n rules for packets of g.
func (g generator) rules(n int) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		r, v4 := &rules[i], g.chance(50)
		if g.chance(80) {
			r.Src = g.prefix(v4)
		}
		if g.chance(80) {
			r.Dst = g.prefix(v4)
		}
		if g.chance(50) {
			r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6}[g.IntN(4)]
		}
		if g.chance(40) {
			r.SrcPorts = g.ports()
		}
		if g.chance(40) {
			r.DstPorts = g.ports()
		}
	}
	return rules
}

// routes returns at most n routes with different prefixes.
func (g generator) routes(n int) []Route {
	seen := map[netip.Prefix]bool{}
	var routes []Route
	for range n {
		if p := g.prefix(g.chance(50)); !seen[p] {
			seen[p] = true
			routes = append(routes, Route{p, uint16(1 + g.IntN(65535))})
		}
	}
	return routes
}
