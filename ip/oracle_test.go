package ip

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/wire"
)

// decode has gopacket read a frame that a node sent: it must understand all of it, and find the checksums
// right.
func decode(t testing.TB, frame []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("gopacket cannot read %x: %v", frame, e.Error())
	}
	if l, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		if wire.SumPlain(l.Contents, 0) != 0xffff || int(l.Length) != len(l.Contents)+len(l.Payload) {
			t.Fatalf("IPv4 header of %x: checksum or length", frame)
		}
		if l.Protocol == layers.IPProtocolICMPv4 && l.FragOffset == 0 && l.Flags&layers.IPv4MoreFragments == 0 && wire.SumPlain(l.Payload, 0) != 0xffff {
			t.Fatalf("ICMP checksum of %x", frame)
		}
	}
	if l, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		ip6 := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		m := append(append([]byte(nil), l.Contents...), l.Payload...)
		if p.Layer(layers.LayerTypeIPv6Fragment) == nil &&
			wire.SumPlain(m, wire.PseudoHeader6([16]byte(ip6.SrcIP), [16]byte(ip6.DstIP), wire.ProtoICMPv6, uint32(len(m)))) != 0xffff {
			t.Fatalf("ICMPv6 checksum of %x", frame)
		}
	}
	return p
}
