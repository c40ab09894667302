package kernref

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Generator makes packets, rules and routes from a seed. Its addresses come from few networks, so
// that packets meet rules.
type Generator struct{ *rand.Rand }

// NewGenerator returns a generator whose sequence follows from the seed.
func NewGenerator(seed uint64) Generator { return Generator{rand.New(rand.NewPCG(seed, 1))} }

// Chance is true with a probability in percent.
func (g Generator) Chance(percent int) bool { return g.IntN(100) < percent }

// Bytes returns n random bytes.
func (g Generator) Bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// Addr4 returns an address; addresses differ in few bits from one another.
func (g Generator) Addr4() [4]byte {
	return [4]byte{198, 18 + byte(g.IntN(2)), byte(1 << g.IntN(8)), byte(g.IntN(256))}
}

// Addr6 is Addr4 for IPv6.
func (g Generator) Addr6() [16]byte {
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, byte(g.IntN(2)), 15: byte(g.IntN(256))}
	a[6+g.IntN(8)] |= 1 << g.IntN(8)
	return a
}

// Port returns a port, most often one of a few.
func (g Generator) Port() uint16 {
	return [...]uint16{0, 53, 80, 443, 1023, 1024, 8080, 65535, uint16(g.Uint32())}[g.IntN(9)]
}

// Packet returns a well-formed packet with right checksums; its parts are chosen at random.
func (g Generator) Packet() []byte {
	p := g.Bytes(12)
	for range [...]int{0, 0, 0, 1, 2}[g.IntN(5)] {
		p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeVLAN, wire.EtherTypeQinQ}[g.IntN(2)])
		p = append(p, g.Bytes(2)...)
	}
	if g.Chance(4) {
		p = binary.BigEndian.AppendUint16(p, [...]uint16{wire.EtherTypeARP, wire.EtherTypeVLAN, 46}[g.IntN(3)])
		return append(p, g.Bytes(46)...)
	}
	if g.Chance(50) {
		p = g.ipv4(p)
	} else {
		p = g.ipv6(p)
	}
	if g.Chance(20) {
		p = append(p, g.Bytes(g.IntN(20))...) // padding
	}
	return p
}

func (g Generator) ipv4(p []byte) []byte {
	p = binary.BigEndian.AppendUint16(p, wire.EtherTypeIPv4)
	at := len(p)
	header := 20
	if g.Chance(15) {
		header += 4 * g.IntN(11)
	}
	p = append(p, g.Bytes(header)...)
	ip := wire.IPv4(p[at:])
	ip.SetHeaderLen(header)
	ip.SetSrc(g.Addr4())
	ip.SetDst(g.Addr4())
	binary.BigEndian.PutUint16(ip[6:], 0x4000)
	if g.Chance(8) {
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

func (g Generator) ipv6(p []byte) []byte {
	p = binary.BigEndian.AppendUint16(p, wire.EtherTypeIPv6)
	at := len(p)
	p = append(p, g.Bytes(40)...)
	ip := wire.IPv6(p[at:])
	ip.SetVersion()
	ip.SetSrc(g.Addr6())
	ip.SetDst(g.Addr6())
	src, dst := ip.Src(), ip.Dst()
	next := at + 6
	for n := g.IntN(4); g.Chance(25) && n > 0; n-- {
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
func (g Generator) extension(kind uint8) []byte {
	units := g.IntN(3)
	h := g.Bytes(8 + 8*units)
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

func (g Generator) proto(icmp uint8) uint8 {
	return [...]uint8{
		wire.ProtoTCP, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP, wire.ProtoUDP, icmp,
		wire.ProtoSCTP, wire.ProtoESP, wire.ProtoNone, uint8(g.Uint32()),
	}[g.IntN(10)]
}

// transport appends a transport header with a payload and a right checksum; pseudo is the sum of
// the pseudo-header without its length.
func (g Generator) transport(p []byte, proto uint8, pseudo uint32) []byte {
	at := len(p)
	payload := g.IntN(60)
	if g.Chance(10) {
		payload = g.IntN(1400)
	}
	switch proto {
	case wire.ProtoTCP:
		p = append(p, g.Bytes(20)...)
		options := 4 * g.IntN(4)
		p[at+12] = byte(20+options) << 2
		p = append(p, g.Bytes(options)...)
		p = g.sum(append(p, g.Bytes(payload)...), at, 16, pseudo)
	case wire.ProtoUDP:
		p = append(p, g.Bytes(8+payload)...)
		binary.BigEndian.PutUint16(p[at+4:], uint16(8+payload))
		p = g.sum(p, at, 6, pseudo)
		if g.Chance(10) {
			p[at+6], p[at+7] = 0, 0
		}
	case wire.ProtoICMP:
		p = g.sum(append(p, g.Bytes(8+payload)...), at, 2, 0)
		return p
	case wire.ProtoICMPv6:
		p = g.sum(append(p, g.Bytes(8+payload)...), at, 2, pseudo)
		return p
	default:
		p = append(p, g.Bytes(12+payload)...)
	}
	return p
}

// sum sets ports that rules may ask for and the checksum, which lies at field.
func (g Generator) sum(p []byte, at, field int, pseudo uint32) []byte {
	l4 := p[at:]
	if field != 2 {
		binary.BigEndian.PutUint16(l4, g.Port())
		binary.BigEndian.PutUint16(l4[2:], g.Port())
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

// Damage changes a packet for the worse: a byte, a cut end, a length.
func (g Generator) Damage(p []byte) []byte {
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

// Split cuts p into pieces, most often one.
func (g Generator) Split(p []byte) [][]byte {
	var pieces [][]byte
	for g.Chance(15) && len(p) > 1 {
		n := g.IntN(len(p))
		pieces = append(pieces, p[:n])
		p = p[n:]
	}
	return append(pieces, p)
}

// Batch returns n packets, some damaged, some in pieces.
func (g Generator) Batch(n int) *packet.Batch {
	var packets [][][]byte
	for range n {
		p := g.Packet()
		if g.Chance(40) {
			p = g.Damage(p)
		}
		packets = append(packets, g.Split(p))
	}
	b := BatchOf(packets...)
	for i := range b.D { // what a careless driver leaves behind
		b.D[i].Hash, b.D[i].Rule, b.D[i].NextHop, b.D[i].L4 = g.Uint32(), 7, 7, 7
		b.D[i].Flags |= packet.FlagMalformed | packet.FlagIPv4
		b.D[i].Stamp, b.D[i].Port, b.D[i].Flow = g.Uint32(), 3, g.Uint32()
	}
	return b
}

// prefix returns a prefix of an address that packets have.
func (g Generator) prefix(v4 bool) netip.Prefix {
	a, bits := netip.AddrFrom16(g.Addr6()), 16+g.IntN(113)
	if v4 {
		a, bits = netip.AddrFrom4(g.Addr4()), 8+g.IntN(25)
	}
	if g.Chance(5) {
		bits = g.IntN(bits + 1)
	}
	p, err := a.Prefix(bits)
	if err != nil {
		panic(fmt.Sprint("prefix: ", err))
	}
	return p
}

func (g Generator) ports() acl.Ports {
	switch g.IntN(4) {
	case 0:
		return acl.Ports{}
	case 1:
		p := g.Port()
		return acl.PortRange(p, p)
	}
	a, b := g.Port(), g.Port()
	return acl.PortRange(min(a, b), max(a, b))
}

// Rules returns n rules for packets of g.
func (g Generator) Rules(n int) []acl.Rule {
	rules := make([]acl.Rule, n)
	for i := range rules {
		r, v4 := &rules[i], g.Chance(50)
		if g.Chance(80) {
			r.Src = g.prefix(v4)
		}
		if g.Chance(80) {
			r.Dst = g.prefix(v4)
		}
		if g.Chance(50) {
			r.Proto = [...]uint8{wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6}[g.IntN(4)]
		}
		if g.Chance(40) {
			r.SrcPorts = g.ports()
		}
		if g.Chance(40) {
			r.DstPorts = g.ports()
		}
	}
	return rules
}

// Routes returns at most n routes with different prefixes.
func (g Generator) Routes(n int) []lpm.Route {
	seen := map[netip.Prefix]bool{}
	var routes []lpm.Route
	for range n {
		if p := g.prefix(g.Chance(50)); !seen[p] {
			seen[p] = true
			routes = append(routes, lpm.Route{Prefix: p, NextHop: uint16(1 + g.IntN(65535))})
		}
	}
	return routes
}

// BatchOf lays packets into an arena of 2 KiB frames, one piece a frame, and returns them as a
// Batch.
func BatchOf(packets ...[][]byte) *packet.Batch {
	const shift = 11
	n := 0
	for _, pieces := range packets {
		n += len(pieces)
	}
	a := &packet.Arena{Mem: make([]byte, max(n, 1)<<shift), Shift: shift}
	b := packet.NewBatch(a, n)
	for _, pieces := range packets {
		for i, p := range pieces {
			off := len(b.D) << shift
			d := packet.Desc{Off: uint32(off), Len: uint16(copy(a.Mem[off:off+1<<shift], p))}
			if i < len(pieces)-1 {
				d.Flags = packet.FlagMore
			}
			b.Append(d)
		}
	}
	return b
}

// One returns a packet of one descriptor.
func One(p []byte) [][]byte { return [][]byte{p} }
