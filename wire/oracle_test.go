package wire

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The oracle of the views is gopacket: it writes random packets that the views read, and reads packets
// that the views wrote.

const rounds = 300

// gen draws random field values.
type gen struct{ *rand.Rand }

func newGen(seed uint64) gen { return gen{rand.New(rand.NewPCG(seed, 0))} }

func (g gen) u8() uint8   { return uint8(g.Uint32()) }
func (g gen) u16() uint16 { return uint16(g.Uint32()) }
func (g gen) bool() bool  { return g.Uint32()&1 != 0 }
func (g gen) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = g.u8()
	}
	return b
}
func (g gen) mac() MAC           { return MAC(g.bytes(6)) }
func (g gen) addr4() [4]byte     { return [4]byte(g.bytes(4)) }
func (g gen) addr6() [16]byte    { return [16]byte(g.bytes(16)) }
func (g gen) payload() []byte    { return g.bytes(g.IntN(70)) }
func (g gen) words(n int) []byte { return g.bytes(4 * g.IntN(n+1)) }

// serialize writes the layers with lengths and checksums.
func serialize(t *testing.T, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

// decode reads b with gopacket and fails where it finds an error or a wrong checksum.
func decode(t *testing.T, b []byte, first gopacket.LayerType) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(b, first, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket: %v in % x", e.Error(), b)
	}
	if m, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		_ = m.SetNetworkLayerForChecksum(p.NetworkLayer())
	}
	if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 {
		t.Fatalf("gopacket: checksums %v %+v in % x", err, bad, b)
	}
	return p
}

func eq[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s = %v, want %v", what, got, want)
	}
}

func eqBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s = % x, want % x", what, got, want)
	}
}

func hw(m MAC) net.HardwareAddr { return m[:] }
func ip4(a [4]byte) net.IP      { return a[:] }
func ip6(a [16]byte) net.IP     { return a[:] }

func TestEthernetAndTagsReadAsGopacketWroteThem(t *testing.T) {
	g := newGen(1)
	for range rounds {
		dst, src := g.mac(), g.mac()
		tags := g.IntN(MaxTags + 1)
		ls := []gopacket.SerializableLayer{&layers.Ethernet{DstMAC: hw(dst), SrcMAC: hw(src)}}
		types := []uint16{EtherTypeQinQ, EtherTypeVLAN}[MaxTags-tags:]
		types = append(types[:len(types):len(types)], EtherTypeLLDP)
		ls[0].(*layers.Ethernet).EthernetType = layers.EthernetType(types[0])
		var want []layers.Dot1Q
		for i := range tags {
			q := layers.Dot1Q{
				Priority: g.u8() & 7, DropEligible: g.bool(), VLANIdentifier: g.u16() & 0xfff,
				Type: layers.EthernetType(types[i+1]),
			}
			want = append(want, q)
			ls = append(ls, &q)
		}
		data := g.bytes(60)
		b := serialize(t, append(ls, gopacket.Payload(data))...)

		e := Ethernet(b)
		eq(t, "Valid", e.Valid(), true)
		eq(t, "Dst", e.Dst(), dst)
		eq(t, "Src", e.Src(), src)
		eq(t, "EtherType", e.EtherType(), types[0])
		rest := e.Payload()
		for i, q := range want {
			v := VLAN(rest)
			eq(t, "Valid", v.Valid(), true)
			eq(t, "Priority", v.Priority(), q.Priority)
			eq(t, "DropEligible", v.DropEligible(), q.DropEligible)
			eq(t, "ID", v.ID(), q.VLANIdentifier)
			eq(t, "EtherType", v.EtherType(), types[i+1])
			rest = v.Payload()
		}
		eqBytes(t, "payload", rest, data)
		typ, off, ok := Network(b)
		eq(t, "Network ok", ok, true)
		eq(t, "Network type", typ, EtherTypeLLDP)
		eq(t, "Network off", off, EthernetLen+tags*VLANLen)
	}
}

func TestEthernetAndTagsAreReadByGopacketAsWritten(t *testing.T) {
	g := newGen(2)
	for range rounds {
		dst, src, s, c := g.mac(), g.mac(), g.u16(), g.u16()
		b := AppendEthernet(nil, dst, src, EtherTypeQinQ)
		b = AppendVLAN(b, s, EtherTypeVLAN)
		b = AppendVLAN(b, c, 0x88b5)
		p := decode(t, append(b, 1, 2, 3), layers.LayerTypeEthernet)
		e := p.Layers()[0].(*layers.Ethernet)
		eq(t, "dst", MAC(e.DstMAC), dst)
		eq(t, "src", MAC(e.SrcMAC), src)
		eq(t, "type", e.EthernetType, layers.EthernetTypeQinQ)
		for i, tci := range []uint16{s, c} {
			q := p.Layers()[i+1].(*layers.Dot1Q)
			eq(t, "priority", q.Priority, uint8(tci>>13))
			eq(t, "drop eligible", q.DropEligible, tci&0x1000 != 0)
			eq(t, "id", q.VLANIdentifier, tci&0xfff)
		}
		eq(t, "inner type", p.Layers()[2].(*layers.Dot1Q).Type, 0x88b5)
	}
}

func TestARPReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(3)
	for range rounds {
		op := 1 + g.u16()&1
		from, to := ARPHost{g.mac(), g.addr4()}, ARPHost{g.mac(), g.addr4()}
		b := serialize(t, &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
			HwAddressSize: 6, ProtAddressSize: 4, Operation: op,
			SourceHwAddress: from.MAC[:], SourceProtAddress: from.Addr[:],
			DstHwAddress: to.MAC[:], DstProtAddress: to.Addr[:],
		})
		eqBytes(t, "AppendARP", AppendARP(nil, op, from, to), b)
		a := ARP(b)
		eq(t, "Valid", a.Valid(), true)
		eq(t, "Op", a.Op(), op)
		eq(t, "SenderMAC", a.SenderMAC(), from.MAC)
		eq(t, "Sender", a.Sender(), from.Addr)
		eq(t, "SenderAddr", a.SenderAddr().As4(), from.Addr)
		eq(t, "TargetMAC", a.TargetMAC(), to.MAC)
		eq(t, "Target", a.Target(), to.Addr)
		eq(t, "TargetAddr", a.TargetAddr().As4(), to.Addr)

		mac := g.mac()
		a.ReplyFrom(mac)
		eqBytes(t, "ReplyFrom", a, AppendARP(nil, ARPReply, ARPHost{mac, to.Addr}, from))
	}
}

func TestIPv4ReadsAsGopacketWroteIt(t *testing.T) {
	g := newGen(4)
	for range rounds {
		src, dst, data, opt := g.addr4(), g.addr4(), g.payload(), g.bytes(2+4*g.IntN(9))
		want := &layers.IPv4{
			Version: 4, TOS: g.u8(), Id: g.u16(), Flags: layers.IPv4Flag(g.IntN(4)),
			FragOffset: g.u16() & 0x1fff, TTL: g.u8(), Protocol: layers.IPProtocol(g.u8()),
			SrcIP: ip4(src), DstIP: ip4(dst),
		}
		if g.bool() {
			want.Options = []layers.IPv4Option{{OptionType: 0x44, OptionLength: uint8(len(opt) + 2), OptionData: opt}}
		}
		b := serialize(t, want, gopacket.Payload(data))
		ip := IPv4(append(bytes.Clone(b), 0xee, 0xee)) // Ethernet padding
		eq(t, "Valid", ip.Valid(), true)
		eq(t, "ValidHeader", ip[:ip.HeaderLen()].ValidHeader(), true)
		eq(t, "Version", ip.Version(), 4)
		eq(t, "HeaderLen", ip.HeaderLen(), int(want.IHL)*4)
		eq(t, "TOS", ip.TOS(), want.TOS)
		eq(t, "DSCP", ip.DSCP(), want.TOS>>2)
		eq(t, "ECN", ip.ECN(), ECN(want.TOS&3))
		eq(t, "TotalLen", ip.TotalLen(), want.Length)
		eq(t, "ID", ip.ID(), want.Id)
		eq(t, "DontFragment", ip.DontFragment(), want.Flags&layers.IPv4DontFragment != 0)
		eq(t, "MoreFragments", ip.MoreFragments(), want.Flags&layers.IPv4MoreFragments != 0)
		eq(t, "FragmentOffset", ip.FragmentOffset(), int(want.FragOffset)*8)
		eq(t, "Fragment", ip.Fragment(), ip.MoreFragments() || want.FragOffset != 0)
		eq(t, "TTL", ip.TTL(), want.TTL)
		eq(t, "Proto", ip.Proto(), uint8(want.Protocol))
		eq(t, "Checksum", ip.Checksum(), want.Checksum)
		eq(t, "ChecksumOK", ip.ChecksumOK(), true)
		eq(t, "Src", ip.Src(), src)
		eq(t, "Dst", ip.Dst(), dst)
		eq(t, "SrcAddr", ip.SrcAddr().As4(), src)
		eq(t, "DstAddr", ip.DstAddr().As4(), dst)
		eqBytes(t, "Payload", ip.Payload(), data)
		eq(t, "Pseudo", Sum(nil, ip.Pseudo()), SumPlain(slicesConcat(src[:], dst[:], []byte{0, ip.Proto(), 0, byte(len(data))}), 0))
		it := ip.OptionIter()
		for _, o := range want.Options {
			eq(t, "Next", it.Next(), true)
			eq(t, "Kind", it.Kind(), o.OptionType)
			eqBytes(t, "Data", it.Data(), o.OptionData)
		}
		eq(t, "Next at the end", it.Next(), false)
		eq(t, "Malformed", it.Malformed(), false)

		fresh := bytes.Clone(ip)
		IPv4(fresh).FillChecksum()
		eqBytes(t, "FillChecksum", fresh, ip)
		fresh[8] ^= 1
		eq(t, "ChecksumOK after a change", IPv4(fresh).ChecksumOK(), false)
	}
}

func slicesConcat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestIPv4IsReadByGopacketAsWritten(t *testing.T) {
	g := newGen(5)
	for range rounds {
		h := IPv4Header{
			Src: g.addr4(), Dst: g.addr4(), Proto: 253, TTL: g.u8(), TOS: g.u8(),
			DontFragment: g.bool(), ID: g.u16(), PayloadLen: g.IntN(80),
		}
		b := append(AppendIPv4([]byte{1, 2, 3}, &h), make([]byte, h.PayloadLen)...)[3:]
		var got layers.IPv4
		if err := got.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		if err, r := got.VerifyChecksum(); err != nil || !r.Valid {
			t.Fatalf("gopacket: checksum %v %+v", err, r)
		}
		eq(t, "src", [4]byte(got.SrcIP), h.Src)
		eq(t, "dst", [4]byte(got.DstIP), h.Dst)
		eq(t, "proto", uint8(got.Protocol), h.Proto)
		eq(t, "ttl", got.TTL, h.TTL)
		eq(t, "tos", got.TOS, h.TOS)
		eq(t, "df", got.Flags == layers.IPv4DontFragment, h.DontFragment)
		eq(t, "id", got.Id, h.ID)
		eq(t, "ihl", got.IHL, 5)
		eq(t, "length", int(got.Length), IPv4Len+h.PayloadLen)
	}
}

func TestIPv6ReadsAsGopacketWroteIt(t *testing.T) {
	g := newGen(6)
	for range rounds {
		src, dst, data := g.addr6(), g.addr6(), g.payload()
		want := &layers.IPv6{
			Version: 6, TrafficClass: g.u8(), FlowLabel: g.Uint32() & 0xfffff,
			NextHeader: layers.IPProtocol(253), HopLimit: g.u8(), SrcIP: ip6(src), DstIP: ip6(dst),
		}
		b := serialize(t, want, gopacket.Payload(data))
		h := IPv6Header{
			Src: src, Dst: dst, NextHeader: 253, HopLimit: want.HopLimit,
			TrafficClass: want.TrafficClass, FlowLabel: want.FlowLabel, PayloadLen: len(data),
		}
		eqBytes(t, "AppendIPv6", append(AppendIPv6(nil, &h), data...), b)
		ip := IPv6(append(b, 0xee))
		eq(t, "Valid", ip.Valid(), true)
		eq(t, "ValidHeader", ip[:IPv6Len].ValidHeader(), true)
		eq(t, "Version", ip.Version(), 6)
		eq(t, "TrafficClass", ip.TrafficClass(), want.TrafficClass)
		eq(t, "DSCP", ip.DSCP(), want.TrafficClass>>2)
		eq(t, "ECN", ip.ECN(), ECN(want.TrafficClass&3))
		eq(t, "FlowLabel", ip.FlowLabel(), want.FlowLabel)
		eq(t, "PayloadLen", ip.PayloadLen(), want.Length)
		eq(t, "NextHeader", ip.NextHeader(), 253)
		eq(t, "HopLimit", ip.HopLimit(), want.HopLimit)
		eq(t, "Src", ip.Src(), src)
		eq(t, "Dst", ip.Dst(), dst)
		eq(t, "SrcAddr", ip.SrcAddr().As16(), src)
		eq(t, "DstAddr", ip.DstAddr().As16(), dst)
		eqBytes(t, "Payload", ip.Payload(), data)
		eq(t, "Pseudo", ip.Pseudo(), PseudoHeader6(src, dst, 253, uint32(len(data))))
	}
}

// network returns a gopacket network layer of either version and the sum of the pseudo header for n bytes
// of proto above it.
func (g gen) network(proto layers.IPProtocol) (ip gopacket.SerializableLayer, pseudo func(n int) uint32) {
	if g.bool() {
		src, dst := g.addr4(), g.addr4()
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: ip4(src), DstIP: ip4(dst)},
			func(n int) uint32 { return PseudoHeader4(src, dst, uint8(proto), uint32(n)) }
	}
	src, dst := g.addr6(), g.addr6()
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: ip6(src), DstIP: ip6(dst)},
		func(n int) uint32 { return PseudoHeader6(src, dst, uint8(proto), uint32(n)) }
}

// above returns the bytes above the IP header of b.
func above(b []byte) []byte {
	if Version(b) == 4 {
		return IPv4(b).Payload()
	}
	return IPv6(b).Payload()
}

func TestUDPReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(7)
	for range rounds {
		ip, pseudo := g.network(layers.IPProtocolUDP)
		want := &layers.UDP{SrcPort: layers.UDPPort(g.u16()), DstPort: layers.UDPPort(g.u16())}
		_ = want.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
		data := g.payload()
		b := above(serialize(t, ip, want, gopacket.Payload(data)))
		u := UDP(b)
		eq(t, "Valid", u.Valid(), true)
		eq(t, "SrcPort", u.SrcPort(), uint16(want.SrcPort))
		eq(t, "DstPort", u.DstPort(), uint16(want.DstPort))
		eq(t, "Len", u.Len(), want.Length)
		eq(t, "Checksum", u.Checksum(), want.Checksum)
		eq(t, "ChecksumOK", u.ChecksumOK(pseudo(len(b))), true)
		eqBytes(t, "Payload", u.Payload(), data)
		mine := append(AppendUDP(nil, u.SrcPort(), u.DstPort(), len(data)), data...)
		UDP(mine).SetChecksum(g.u16()) // what was there does not count
		UDP(mine).FillChecksum(pseudo(len(b)))
		eqBytes(t, "AppendUDP and FillChecksum", mine, b)
		mine[0] ^= 0x10
		eq(t, "ChecksumOK after a change", UDP(mine).ChecksumOK(pseudo(len(b))), false)
	}
}

func TestTCPReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(8)
	for range rounds {
		ip, pseudo := g.network(layers.IPProtocolTCP)
		f := TCPFlags(g.u8())
		want := &layers.TCP{
			SrcPort: layers.TCPPort(g.u16()), DstPort: layers.TCPPort(g.u16()),
			Seq: g.Uint32(), Ack: g.Uint32(), Window: g.u16(), Urgent: g.u16(), NS: g.bool(),
			FIN: f.Has(FlagFIN), SYN: f.Has(FlagSYN), RST: f.Has(FlagRST), PSH: f.Has(FlagPSH),
			ACK: f.Has(FlagACK), URG: f.Has(FlagURG), ECE: f.Has(FlagECE), CWR: f.Has(FlagCWR),
		}
		opts := g.bytes(g.IntN(37))
		if len(opts) > 0 {
			want.Options = []layers.TCPOption{{OptionType: 253, OptionLength: uint8(len(opts) + 2), OptionData: opts}}
		}
		_ = want.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer))
		data := g.payload()
		b := above(serialize(t, ip, want, gopacket.Payload(data)))
		s := TCP(b)
		eq(t, "Valid", s.Valid(), true)
		eq(t, "SrcPort", s.SrcPort(), uint16(want.SrcPort))
		eq(t, "DstPort", s.DstPort(), uint16(want.DstPort))
		eq(t, "Seq", s.Seq(), want.Seq)
		eq(t, "Ack", s.Ack(), want.Ack)
		eq(t, "DataOffset", s.DataOffset(), int(want.DataOffset)*4)
		eq(t, "AE", s.AE(), want.NS)
		eq(t, "Flags", s.Flags(), f)
		eq(t, "Window", s.Window(), want.Window)
		eq(t, "Checksum", s.Checksum(), want.Checksum)
		eq(t, "ChecksumOK", s.ChecksumOK(pseudo(len(b))), true)
		eq(t, "Urgent", s.Urgent(), want.Urgent)
		eqBytes(t, "Payload", s.Payload(), data)
		it := s.OptionIter()
		for _, o := range want.Options {
			eq(t, "Next", it.Next(), true)
			eq(t, "Kind", it.Kind(), uint8(o.OptionType))
			eqBytes(t, "Data", it.Data(), o.OptionData)
		}
		eq(t, "Next at the end", it.Next(), false)

		mine := AppendTCP(nil, &TCPHeader{
			SrcPort: s.SrcPort(), DstPort: s.DstPort(), Seq: s.Seq(), Ack: s.Ack(), Flags: f,
			Window: s.Window(), Urgent: s.Urgent(), Options: s.Options(),
		})
		TCP(mine).SetAE(want.NS)
		mine = append(mine, data...)
		TCP(mine).SetChecksum(g.u16()) // what was there does not count
		TCP(mine).FillChecksum(pseudo(len(b)))
		eqBytes(t, "AppendTCP and FillChecksum", mine, b)
		mine[5] ^= 0x10
		eq(t, "ChecksumOK after a change", TCP(mine).ChecksumOK(pseudo(len(b))), false)
	}
}
