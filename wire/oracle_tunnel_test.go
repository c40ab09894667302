package wire

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestGREReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(30)
	for range rounds {
		want := &layers.GRE{
			ChecksumPresent: g.bool(), KeyPresent: g.bool(), SeqPresent: g.bool(),
			Protocol:         layers.EthernetType(g.u16()),
			RecursionControl: g.u8() & 3, Flags: g.u8() & 31, // reserved: to be ignored
		}
		flags := uint16(want.RecursionControl)<<8 | uint16(want.Flags)<<3
		if want.ChecksumPresent {
			flags |= GREChecksum
		}
		if want.KeyPresent {
			flags, want.Key = flags|GREKey, g.Uint32()
		}
		if want.SeqPresent {
			flags, want.Seq = flags|GRESequence, g.Uint32()
		}
		data := g.payload()
		b := GRE(serialize(t, want, gopacket.Payload(data)))
		eq(t, "Valid", b.Valid(), true)
		eq(t, "Flags", b.Flags(), flags)
		eq(t, "EtherType", b.EtherType(), uint16(want.Protocol))
		eq(t, "HasChecksum", b.HasChecksum(), want.ChecksumPresent)
		eq(t, "HasKey", b.HasKey(), want.KeyPresent)
		eq(t, "HasSequence", b.HasSequence(), want.SeqPresent)
		eq(t, "HeaderLen", b.HeaderLen(), len(b)-len(data))
		eq(t, "Checksum", b.Checksum(), want.Checksum)
		eq(t, "Key", b.Key(), want.Key)
		eq(t, "Sequence", b.Sequence(), want.Seq)
		eq(t, "ChecksumOK", b.ChecksumOK(), true)
		eqBytes(t, "Payload", b.Payload(), data)
		eq(t, "Valid without its last field", b[:b.HeaderLen()-1].Valid(), false)

		mine := GRE(append(AppendGRE(nil, flags, uint16(want.Protocol)), data...))
		if want.KeyPresent {
			mine.SetKey(want.Key)
		}
		if want.SeqPresent {
			mine.SetSequence(want.Seq)
		}
		if want.ChecksumPresent {
			mine[4], mine[5] = g.u8(), g.u8() // what was there does not count
		}
		mine.FillChecksum()
		eqBytes(t, "AppendGRE", mine, b)
		mine[2] ^= 1
		eq(t, "ChecksumOK after a change", mine.ChecksumOK(), !want.ChecksumPresent)
	}
}

func TestGREOfOtherKindsIsNotValid(t *testing.T) {
	for _, flags := range []uint16{0x4000, 0x0800, 0x0400, 1, 7} {
		eq(t, "Valid", GRE(append(AppendGRE(nil, flags, 0), make([]byte, 16)...)).Valid(), false)
	}
	eq(t, "Valid with reserved bits", GRE(AppendGRE(nil, 0x03f8, 0)).Valid(), true)
}

func TestGUEReadsAsGopacket(t *testing.T) {
	g := newGen(31)
	for range rounds {
		ext, data := g.words(31), g.payload()
		b := append([]byte{byte(len(ext) / 4), g.u8(), g.u8(), g.u8()}, ext...)
		if g.bool() {
			b[0] |= 0x20
		}
		b = append(b, data...)
		var want layers.AGUEVar0
		if err := want.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		v := GUE(b)
		eq(t, "Valid", v.Valid(), true)
		eq(t, "Variant", v.Variant(), 0)
		eq(t, "Control", v.Control(), want.C)
		eq(t, "Proto", v.Proto(), uint8(want.Protocol))
		eq(t, "Flags", v.Flags(), want.Flags)
		eqBytes(t, "Extensions", v.Extensions(), want.Extensions)
		eqBytes(t, "Payload", v.Payload(), want.Data)
		eq(t, "Valid when cut", v[:v.HeaderLen()-1].Valid(), false)
	}
	eqBytes(t, "AppendGUE", AppendGUE(nil, ProtoIPv6), []byte{0, 41, 0, 0})
}

func TestGUEVariant1IsTheInnerPacketItself(t *testing.T) {
	for _, c := range []struct {
		inner []byte
		proto uint8
	}{
		{AppendIPv4(nil, &IPv4Header{}), ProtoIPIP},
		{AppendIPv6(nil, &IPv6Header{}), ProtoIPv6},
	} {
		v := GUE(c.inner)
		eq(t, "Valid", v.Valid(), true)
		eq(t, "Variant", v.Variant(), 1)
		eq(t, "Control", v.Control(), false)
		eq(t, "HeaderLen", v.HeaderLen(), 0)
		eq(t, "Proto", v.Proto(), c.proto)
		eqBytes(t, "Extensions", v.Extensions(), nil)
		eqBytes(t, "Payload", v.Payload(), c.inner)
		proto, ok := InnerProto(c.inner)
		eq(t, "InnerProto", proto, c.proto)
		eq(t, "InnerProto ok", ok, true)
	}
	for _, first := range []byte{0x50, 0x70, 0x80, 0xc0} {
		eq(t, "Valid", GUE([]byte{first, 0, 0, 0}).Valid(), false)
		_, ok := InnerProto([]byte{first})
		eq(t, "InnerProto ok", ok, false)
	}
}

func TestVXLANReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(32)
	for range rounds {
		vni, data := g.Uint32()&0xffffff, g.payload()
		b := serialize(t, &layers.VXLAN{ValidIDFlag: true, VNI: vni}, gopacket.Payload(data))
		v := VXLAN(b)
		eq(t, "Valid", v.Valid(), true)
		eq(t, "Flags", v.Flags(), 8)
		eq(t, "VNI", v.VNI(), vni)
		eqBytes(t, "Payload", v.Payload(), data)
		eqBytes(t, "AppendVXLAN", append(AppendVXLAN(nil, vni), data...), b)
		b[0] = 0
		eq(t, "Valid without I", v.Valid(), false)
	}
}

func TestGeneveReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(33)
	for range rounds {
		want := &layers.Geneve{
			OAMPacket: g.bool(), CriticalOption: g.bool(), Protocol: layers.EthernetType(g.u16()), VNI: g.Uint32() & 0xffffff,
		}
		var opts []byte
		for range g.IntN(4) {
			o := &layers.GeneveOption{Class: g.u16(), Type: g.u8(), Data: g.words(15)}
			want.Options = append(want.Options, o)
			opts = AppendGeneveOption(opts, o.Class, o.Type, o.Data)
		}
		data := g.payload()
		b := Geneve(serialize(t, want, gopacket.Payload(data)))
		eq(t, "Valid", b.Valid(), true)
		eq(t, "Version", b.Version(), 0)
		eq(t, "HeaderLen", b.HeaderLen(), len(b)-len(data))
		eq(t, "Control", b.Control(), want.OAMPacket)
		eq(t, "Critical", b.Critical(), want.CriticalOption)
		eq(t, "EtherType", b.EtherType(), uint16(want.Protocol))
		eq(t, "VNI", b.VNI(), want.VNI)
		eqBytes(t, "Options", b.Options(), opts)
		eqBytes(t, "Payload", b.Payload(), data)
		it := b.OptionIter()
		for _, o := range want.Options {
			eq(t, "Next", it.Next(), true)
			eq(t, "Class", it.Class(), o.Class)
			eq(t, "Type", it.Type(), o.Type)
			eq(t, "Critical", it.Critical(), o.Type >= 0x80)
			eqBytes(t, "Data", it.Data(), o.Data)
		}
		eq(t, "Next at the end", it.Next(), false)
		eq(t, "Malformed", it.Malformed(), false)

		mine := append(AppendGeneve(nil, uint16(want.Protocol), want.VNI, len(opts)), opts...)
		Geneve(mine).SetControl(want.OAMPacket)
		Geneve(mine).SetCritical(want.CriticalOption)
		eqBytes(t, "AppendGeneve", append(mine, data...), b)
		eq(t, "Valid of version 1", Geneve(append([]byte{0x40}, b[1:]...)).Valid(), false)
	}
}

func TestGeneveOptionsStopAtContradictions(t *testing.T) {
	one := AppendGeneveOption(nil, 1, 2, []byte{1, 2, 3, 4})
	for name, c := range map[string]struct {
		b   []byte
		n   int
		bad bool
	}{
		"none":             {nil, 0, false},
		"one":              {one, 1, false},
		"beyond the end":   {append(one[:8:8], 0, 1, 2, 1), 1, true},
		"header cut":       {append(one[:8:8], 0, 1, 2), 1, true},
		"data of no bytes": {append(one[:8:8], 0, 1, 2, 0xe0), 2, false},
	} {
		it, n := GeneveOptionIter{rest: c.b}, 0
		for it.Next() {
			n++
		}
		eq(t, name, n, c.n)
		eq(t, name+": Malformed", it.Malformed(), c.bad)
		eq(t, name+": Next again", it.Next(), false)
	}
}
