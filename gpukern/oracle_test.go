package gpukern_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/capture"
	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// frames returns the packets of a capture as Ethernet frames, up to the first damage, and at most
// a thousand; a hundred in short tests.
func frames(t testing.TB, path string) [][]byte {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Logf("%s: %v", path, err)
		return nil
	}
	defer r.Close()
	most := 1000
	if testing.Short() {
		most = 100
	}
	var all [][]byte
	for len(all) < most {
		rec, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Logf("%s: %v", path, err)
			}
			break
		}
		f, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
		if err == nil && len(f) <= 0xffff {
			all = append(all, append([]byte(nil), f...))
		}
	}
	return all
}

// largeBatch is batchOf for packets of any size.
func largeBatch(packets [][]byte) *packet.Batch {
	a := &packet.Arena{Shift: 16, Mem: make([]byte, len(packets)<<16)}
	b := packet.NewBatch(a, len(packets))
	for i, p := range packets {
		copy(a.Mem[i<<16:], p)
		b.Append(packet.Desc{Off: uint32(i << 16), Len: uint16(len(p))})
	}
	return b
}

func TestCapturesAgreeWithTheReferenceAndGopacket(t *testing.T) {
	g := kernref.NewGenerator(5)
	l := kernref.Lists{Rules: g.Rules(50), Routes: g.Routes(50)}
	l.Rules = append(l.Rules, acl.Rule{DstPorts: acl.PortRange(443, 443)}, acl.Rule{Proto: wire.ProtoTCP}, acl.Rule{SrcPorts: acl.PortRange(53, 53)})
	c := NewCPU(Config{Tables: compile(t, l)})
	var seen, judged, ok int
	for _, path := range testpcaps.Files(t) {
		for all := frames(t, path); len(all) > 0; {
			n := min(len(all), 64)
			b := largeBatch(all[:n])
			agree(t, b, c, l)
			for i := range b.D {
				seen++
				if oracle(t, path, b.Bytes(i), b.D[i]) {
					judged++
				}
				if b.D[i].Flags.Has(packet.FlagL4ChecksumOK) {
					ok++
				}
			}
			all = all[n:]
		}
	}
	t.Logf("%d packets, %d with fields judged by gopacket, %d with right transport checksums", seen, judged, ok)
	if judged < seen*8/10 {
		t.Errorf("only %d of %d packets were judged", judged, seen)
	}
}

// want is what gopacket says about a packet.
type want struct {
	l3, l4, payload int
	proto           uint8
	sport, dport    uint16
	ports           bool
}

// oracle compares d with what gopacket says, and reports whether it said anything. Packets that
// the engine finds damaged, and those that gopacket cannot decode, are left out.
func oracle(t *testing.T, name string, p []byte, d packet.Desc) bool {
	t.Helper()
	if d.Flags&(packet.FlagMalformed|packet.FlagTruncated) != 0 {
		return false
	}
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.NoCopy)
	w, l4, ok := outer(pk)
	if !ok {
		return false
	}
	got := want{l3: int(d.L3), l4: int(d.L4), payload: int(d.Payload), proto: d.Proto, ports: w.ports}
	if w.ports {
		got.sport, got.dport = wire.UDP(p[d.L4:]).SrcPort(), wire.UDP(p[d.L4:]).DstPort()
	}
	if w.l4 == 0 { // gopacket knows no such header
		got.l4, got.payload = 0, 0
	}
	if got != w {
		t.Errorf("%s: engine %+v, gopacket %+v\n% x", name, got, w, p)
	}
	if l4 >= 0 && d.Payload != 0 && d.Flags&packet.FlagFragment == 0 {
		checksums(t, name, pk, l4, d)
	}
	return true
}

// outer returns what gopacket says about the outermost IP packet and the index of its transport
// layer, -1 for none.
func outer(pk gopacket.Packet) (w want, l4 int, ok bool) { return describe(pk.Layers(), 0) }

// describe is outer for layers that begin at an offset.
func describe(all []gopacket.Layer, at int) (w want, l4 int, ok bool) {
	ip := false
	for i, l := range all {
		switch l := l.(type) {
		case *layers.IPv4:
			if ip {
				return w, -1, true
			}
			w.l3, w.proto, ip = at, uint8(l.Protocol), true
			if l.FragOffset != 0 {
				return w, -1, true
			}
		case *layers.IPv6:
			if ip {
				return w, -1, true
			}
			w.l3, w.proto, ip = at, uint8(l.NextHeader), true
		case *layers.IPv6HopByHop:
			w.proto = uint8(l.NextHeader)
		case *layers.IPv6Routing:
			w.proto = uint8(l.NextHeader)
		case *layers.IPv6Destination:
			w.proto = uint8(l.NextHeader)
		case *layers.IPv6Fragment:
			w.proto = uint8(l.NextHeader)
			if l.FragmentOffset != 0 {
				return w, -1, true
			}
		case *layers.TCP:
			w.l4, w.payload, w.ports = at, at+len(l.Contents), true
			w.sport, w.dport = uint16(l.SrcPort), uint16(l.DstPort)
			return w, i, ip
		case *layers.UDP:
			w.l4, w.payload, w.ports = at, at+8, true
			w.sport, w.dport = uint16(l.SrcPort), uint16(l.DstPort)
			return w, i, ip
		case *layers.SCTP:
			w.l4, w.payload, w.ports = at, at+12, true
			w.sport, w.dport = uint16(l.SrcPort), uint16(l.DstPort)
			return w, -1, ip
		case *layers.ICMPv4:
			w.l4, w.payload = at, at+8
			return w, i, ip
		case *layers.ICMPv6:
			w.l4, w.payload = at, at+8
			return w, i, ip
		case *layers.Ethernet, *layers.Dot1Q:
		default:
			return w, -1, ip
		}
		at += len(l.LayerContents())
	}
	return w, -1, ip
}

// checksums compares d's flags with gopacket's verification of layer l4 and of the IPv4 header.
func checksums(t *testing.T, name string, pk gopacket.Packet, l4 int, d packet.Desc) {
	t.Helper()
	for _, l := range pk.Layers()[:l4+1] {
		sum, ok := l.(gopacket.LayerWithChecksum)
		if !ok {
			continue
		}
		bit := packet.FlagL4ChecksumOK | packet.FlagL4NoChecksum
		if l.LayerType() == layers.LayerTypeIPv4 {
			bit = packet.FlagIPChecksumOK
		}
		if tl, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := tl.SetNetworkLayerForChecksum(pk.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
		err, res := sum.VerifyChecksum()
		if err != nil {
			continue
		}
		if u, ok := l.(*layers.UDP); ok && u.Checksum == 0 && d.Flags&packet.FlagIPv6 != 0 {
			res.Valid = false // RFC 8200 8.1
		}
		if res.Valid != (d.Flags&bit != 0) {
			t.Errorf("%s: %v checksum: engine %v, gopacket %v (%+v)", name, l.LayerType(), !res.Valid, res.Valid, res)
		}
	}
}

// TestPacketsThatGopacketMakesAreReadAndVerified serializes packets with gopacket's own checksums.
func TestPacketsThatGopacketMakesAreReadAndVerified(t *testing.T) {
	eth := func(t layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: t}
	}
	tag := func(t layers.EthernetType) *layers.Dot1Q { return &layers.Dot1Q{VLANIdentifier: 7, Type: t} }
	ip4 := func(p layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{198, 18, 0, 1}}
	}
	ip6 := func(p layers.IPProtocol) *layers.IPv6 {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
	}
	tcp, udp := &layers.TCP{SrcPort: 1025, DstPort: 80, SYN: true, Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}}, &layers.UDP{SrcPort: 53, DstPort: 5353}
	echo4 := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 1, Seq: 2}
	echo6 := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	v4, v6 := layers.EthernetTypeIPv4, layers.EthernetTypeIPv6
	ip4ok, ip6ok := packet.FlagIPv4|packet.FlagIPChecksumOK|packet.FlagL4ChecksumOK, packet.FlagIPv6|packet.FlagL4ChecksumOK
	for name, tc := range map[string]struct {
		layers []gopacket.SerializableLayer
		want   packet.Desc
	}{
		"TCP over IPv4":     {[]gopacket.SerializableLayer{eth(v4), ip4(6), tcp}, packet.Desc{L3: 14, L4: 34, Payload: 58, Proto: 6, Flags: ip4ok}},
		"UDP over IPv4":     {[]gopacket.SerializableLayer{eth(v4), ip4(17), udp}, packet.Desc{L3: 14, L4: 34, Payload: 42, Proto: 17, Flags: ip4ok}},
		"ICMP":              {[]gopacket.SerializableLayer{eth(v4), ip4(1), echo4}, packet.Desc{L3: 14, L4: 34, Payload: 42, Proto: 1, Flags: ip4ok}},
		"tagged TCP":        {[]gopacket.SerializableLayer{eth(layers.EthernetTypeDot1Q), tag(v6), ip6(6), tcp}, packet.Desc{L3: 18, L4: 58, Payload: 82, Proto: 6, Flags: ip6ok | packet.FlagVLAN}},
		"twice tagged UDP":  {[]gopacket.SerializableLayer{eth(layers.EthernetTypeQinQ), tag(layers.EthernetTypeDot1Q), tag(v4), ip4(17), udp}, packet.Desc{L3: 22, L4: 42, Payload: 50, Proto: 17, Flags: ip4ok | packet.FlagVLAN}},
		"UDP over IPv6":     {[]gopacket.SerializableLayer{eth(v6), ip6(17), udp}, packet.Desc{L3: 14, L4: 54, Payload: 62, Proto: 17, Flags: ip6ok}},
		"ICMPv6":            {[]gopacket.SerializableLayer{eth(v6), ip6(58), echo6}, packet.Desc{L3: 14, L4: 54, Payload: 62, Proto: 58, Flags: ip6ok}},
		"thrice tagged UDP": {[]gopacket.SerializableLayer{eth(layers.EthernetTypeQinQ), tag(layers.EthernetTypeDot1Q), tag(layers.EthernetTypeDot1Q), tag(v4), ip4(17), udp}, packet.Desc{L3: 22, Flags: packet.FlagVLAN}},
	} {
		buf := gopacket.NewSerializeBuffer()
		for _, l := range tc.layers {
			if s, ok := l.(interface {
				SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
			}); ok {
				for _, n := range tc.layers {
					if n, ok := n.(gopacket.NetworkLayer); ok {
						if err := s.SetNetworkLayerForChecksum(n); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
		ls := append(tc.layers, gopacket.Payload("an odd payload"))
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
			t.Fatal(name, err)
		}
		b := kernref.BatchOf(kernref.One(buf.Bytes()))
		if err := NewCPU(Config{Ops: OpChecksum}).Submit(b); err != nil {
			t.Fatal(err)
		}
		tc.want.Len = uint16(len(buf.Bytes()))
		if b.D[0] != tc.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, b.D[0], tc.want)
		}
	}
}
