package wire

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

func TestICMPEchoReadsAndWritesAsTheGoPackage(t *testing.T) {
	g := newGen(20)
	for range rounds {
		e := icmp.Echo{ID: int(g.u16()), Seq: int(g.u16()), Data: g.payload()}
		b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &e}).Marshal(nil)
		if err != nil {
			t.Fatal(err)
		}
		m := ICMP(b)
		eq(t, "Valid", m.Valid(), true)
		eq(t, "Type", m.Type(), ICMPEcho)
		eq(t, "Code", m.Code(), 0)
		eq(t, "ID", m.ID(), uint16(e.ID))
		eq(t, "Seq", m.Seq(), uint16(e.Seq))
		eq(t, "Error", m.Error(), false)
		eq(t, "ChecksumOK", m.ChecksumOK(), true)
		eqBytes(t, "Payload", m.Payload(), e.Data)
		mine := append(AppendICMP(nil, ICMPEcho, 0, uint32(e.ID)<<16|uint32(e.Seq)), e.Data...)
		ICMP(mine).SetChecksum(g.u16()) // what was there does not count
		ICMP(mine).FillChecksum()
		eqBytes(t, "AppendICMP and FillChecksum", mine, b)
		mine[4] ^= 1
		eq(t, "ChecksumOK after a change", ICMP(mine).ChecksumOK(), false)
	}
}

func TestICMPErrorsAreReadByTheGoPackageAsWritten(t *testing.T) {
	quoted := append(AppendIPv4(nil, &IPv4Header{TTL: 1, Proto: ProtoUDP, PayloadLen: 8}), AppendUDP(nil, 1, 2, 0)...)
	for _, c := range []struct {
		typ, code uint8
		rest      uint32
	}{
		{ICMPUnreachable, ICMPNetUnreachable, 0},
		{ICMPUnreachable, ICMPHostUnreachable, 0},
		{ICMPUnreachable, ICMPProtoUnreachable, 0},
		{ICMPUnreachable, ICMPPortUnreachable, 0},
		{ICMPUnreachable, ICMPFragmentationNeeded, 1400},
		{ICMPUnreachable, ICMPAdminProhibited, 0},
		{ICMPTimeExceeded, 0, 0},
		{ICMPParamProblem, 0, 0},
		{ICMPRedirect, 0, 0x01020304},
	} {
		b := append(AppendICMP(nil, c.typ, c.code, c.rest), quoted...)
		ICMP(b).FillChecksum()
		eq(t, "Error", ICMP(b).Error(), true)
		eq(t, "MTU", ICMP(b).MTU(), uint16(c.rest))
		eqBytes(t, "Payload", ICMP(b).Payload(), quoted)
		m, err := icmp.ParseMessage(1, b)
		if err != nil {
			t.Fatal(err)
		}
		eq(t, "type", m.Type.(ipv4.ICMPType), ipv4.ICMPType(c.typ))
		eq(t, "code", m.Code, int(c.code))
		eq(t, "checksum", m.Checksum, int(ICMP(b).Checksum()))
		decode(t, b, layers.LayerTypeICMPv4)
	}
	for _, typ := range []uint8{ICMPEcho, ICMPEchoReply, 13, 14} {
		eq(t, "Error", ICMP(AppendICMP(nil, typ, 0, 0)).Error(), false)
	}
}

func TestICMPv6ReadsAndWritesAsTheGoPackage(t *testing.T) {
	g := newGen(21)
	for range rounds {
		src, dst := g.addr6(), g.addr6()
		ph := icmp.IPv6PseudoHeader(net.IP(src[:]), net.IP(dst[:]))
		e := icmp.Echo{ID: int(g.u16()), Seq: int(g.u16()), Data: g.payload()}
		b, err := (&icmp.Message{Type: ipv6.ICMPTypeEchoReply, Body: &e}).Marshal(ph)
		if err != nil {
			t.Fatal(err)
		}
		pseudo := PseudoHeader6(src, dst, ProtoICMPv6, uint32(len(b)))
		m := ICMPv6(b)
		eq(t, "Valid", m.Valid(), true)
		eq(t, "Type", m.Type(), ICMPv6EchoReply)
		eq(t, "Code", m.Code(), 0)
		eq(t, "ID", m.ID(), uint16(e.ID))
		eq(t, "Seq", m.Seq(), uint16(e.Seq))
		eq(t, "Error", m.Error(), false)
		eq(t, "ChecksumOK", m.ChecksumOK(pseudo), true)
		eqBytes(t, "Payload", m.Payload(), e.Data)
		mine := append(AppendICMP(nil, ICMPv6EchoReply, 0, uint32(e.ID)<<16|uint32(e.Seq)), e.Data...)
		ICMPv6(mine).SetChecksum(g.u16()) // what was there does not count
		ICMPv6(mine).FillChecksum(pseudo)
		eqBytes(t, "AppendICMP and FillChecksum", mine, b)
		mine[4] ^= 1
		eq(t, "ChecksumOK after a change", ICMPv6(mine).ChecksumOK(pseudo), false)

		mtu := g.Uint32()
		b, err = (&icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: int(mtu), Data: e.Data}}).Marshal(ph)
		if err != nil {
			t.Fatal(err)
		}
		eq(t, "MTU", ICMPv6(b).MTU(), mtu)
		eq(t, "Error", ICMPv6(b).Error(), true)
		eq(t, "Checksum", ICMPv6(b).Checksum(), binary.BigEndian.Uint16(b[2:]))
	}
}

// nd returns what gopacket writes above the IPv6 header for a neighbor discovery message.
func nd(t *testing.T, typ uint8, body gopacket.SerializableLayer) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: net.IPv6loopback, DstIP: net.IPv6loopback}
	m := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	_ = m.SetNetworkLayerForChecksum(ip)
	b := serialize(t, ip, m, body)
	if !ICMPv6(b[IPv6Len:]).ChecksumOK(IPv6(b).Pseudo()) {
		t.Fatal("checksum of gopacket is not OK")
	}
	return b[IPv6Len:]
}

func TestNeighborSolicitationReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(22)
	for range rounds {
		target, mac := g.addr6(), g.mac()
		b := nd(t, ICMPv6NeighborSolicit, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: ip6(target),
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac[:]}},
		})
		ns := NeighborSolicit(b)
		eq(t, "Valid", ns.Valid(), true)
		eq(t, "Target", ns.Target(), target)
		eq(t, "TargetAddr", ns.TargetAddr().As16(), target)
		got, ok := ns.SourceMAC()
		eq(t, "SourceMAC", got, mac)
		eq(t, "SourceMAC ok", ok, true)
		_, ok = ns[:NeighborSolicitLen].SourceMAC()
		eq(t, "SourceMAC of none", ok, false)
		mine := AppendNeighborSolicit(nil, target, mac)
		ICMPv6(mine).SetChecksum(ICMPv6(b).Checksum())
		eqBytes(t, "AppendNeighborSolicit", mine, b)
	}
}

func TestNeighborAdvertisementReadsAndWritesAsGopacket(t *testing.T) {
	g := newGen(23)
	for range rounds {
		target, mac, flags := g.addr6(), g.mac(), NAFlags(g.u8()&0xe0)
		b := nd(t, ICMPv6NeighborAdvert, &layers.ICMPv6NeighborAdvertisement{
			Flags: uint8(flags), TargetAddress: ip6(target),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac[:]}},
		})
		na := NeighborAdvert(b)
		eq(t, "Valid", na.Valid(), true)
		eq(t, "Flags", na.Flags(), flags)
		eq(t, "Target", na.Target(), target)
		eq(t, "TargetAddr", na.TargetAddr().As16(), target)
		got, ok := na.TargetMAC()
		eq(t, "TargetMAC", got, mac)
		eq(t, "TargetMAC ok", ok, true)
		mine := AppendNeighborAdvert(nil, target, mac, flags)
		ICMPv6(mine).SetChecksum(ICMPv6(b).Checksum())
		eqBytes(t, "AppendNeighborAdvert", mine, b)
	}
}

func TestRouterMessagesReadAsGopacketWroteThem(t *testing.T) {
	g := newGen(24)
	for range rounds {
		mac, prefix, mtu := g.mac(), g.addr6(), g.Uint32()
		info := append([]byte{64, g.u8() & 0xc0}, g.bytes(12)...)
		info = append(info, prefix[:]...)
		want := &layers.ICMPv6RouterAdvertisement{
			HopLimit: g.u8(), Flags: g.u8(), RouterLifetime: g.u16(),
			ReachableTime: g.Uint32(), RetransTimer: g.Uint32(),
			Options: layers.ICMPv6Options{ // gopacket writes them last first
				{Type: layers.ICMPv6OptPrefixInfo, Data: info},
				{Type: layers.ICMPv6OptMTU, Data: binary.BigEndian.AppendUint32([]byte{0, 0}, mtu)},
				{Type: layers.ICMPv6OptSourceAddress, Data: mac[:]},
			},
		}
		ra := RouterAdvert(nd(t, ICMPv6RouterAdvert, want))
		eq(t, "Valid", ra.Valid(), true)
		eq(t, "HopLimit", ra.HopLimit(), want.HopLimit)
		eq(t, "Managed", ra.Managed(), want.ManagedAddressConfig())
		eq(t, "OtherConfig", ra.OtherConfig(), want.OtherConfig())
		eq(t, "Preference", ra.Preference(), [4]int{0, 1, 0, -1}[want.Flags>>3&3])
		eq(t, "Lifetime", ra.Lifetime(), want.RouterLifetime)
		eq(t, "ReachableTime", ra.ReachableTime(), want.ReachableTime)
		eq(t, "RetransTimer", ra.RetransTimer(), want.RetransTimer)
		got, ok := ra.SourceMAC()
		eq(t, "SourceMAC", got, mac)
		eq(t, "SourceMAC ok", ok, true)
		seen := 0
		for it := ra.OptionIter(); it.Next(); seen++ {
			switch it.Type() {
			case NDOptMTU:
				m, ok := ParseNDMTU(it.Data())
				eq(t, "MTU ok", ok, true)
				eq(t, "MTU", m, mtu)
			case NDOptPrefix:
				p, ok := ParseNDPrefix(it.Data())
				eq(t, "prefix ok", ok, true)
				eq(t, "prefix", p, NDPrefix{
					Bits: 64, OnLink: info[1]&0x80 != 0, Autonomous: info[1]&0x40 != 0,
					Valid: binary.BigEndian.Uint32(info[2:]), Preferred: binary.BigEndian.Uint32(info[6:]), Prefix: prefix,
				})
			}
		}
		eq(t, "options", seen, 3)

		rs := nd(t, ICMPv6RouterSolicit, &layers.ICMPv6RouterSolicitation{
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac[:]}},
		})
		eq(t, "Valid", RouterSolicit(rs).Valid(), true)
		got, _ = RouterSolicit(rs).SourceMAC()
		eq(t, "SourceMAC", got, mac)
		mine := AppendRouterSolicit(nil, mac)
		ICMPv6(mine).SetChecksum(ICMPv6(rs).Checksum())
		eqBytes(t, "AppendRouterSolicit", mine, rs)
	}
}
