package wire

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// perCapture bounds the packets that are read of a capture.
const perCapture = 500

// TestCapturesReadAsGopacketReadsThem reads real packets with views and with gopacket, and compares every
// field of the headers up to the transport, the verdict on checksums included.
func TestCapturesReadAsGopacketReadsThem(t *testing.T) {
	seen := map[string]int{}
	for _, name := range testpcaps.Files(t) {
		t.Run(filepath.Base(name), func(t *testing.T) { compareCapture(t, name, seen) })
	}
	t.Log("compared:", seen)
	for _, kind := range []string{"ethernet", "vlan", "arp", "ipv4", "ipv4 fragment", "ipv6", "ipv6 extension", "tcp", "tcp options", "udp", "icmp", "icmpv6", "l4 checksum right", "l4 checksum wrong"} {
		if seen[kind] == 0 {
			t.Errorf("no %s in the captures", kind)
		}
	}
}

type packetReader interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// openCapture returns nil where gopacket cannot read the file.
func openCapture(t *testing.T, name string) packetReader {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if r, err := pcapgo.NewReader(f); err == nil {
		return r
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Log("gopacket cannot read it:", err)
		return nil
	}
	return r
}

func compareCapture(t *testing.T, name string, seen map[string]int) {
	r := openCapture(t, name)
	if r == nil {
		return
	}
	compare := compareFrame
	switch r.LinkType() {
	case layers.LinkTypeEthernet:
	case layers.LinkTypeRaw:
		compare = compareRaw
	default:
		t.Log("not compared: link type", r.LinkType())
		return
	}
	for range perCapture {
		b, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "EOF") {
			return
		}
		if err != nil {
			t.Log("gopacket stops reading:", err)
			return
		}
		if info.CaptureLength == info.Length { // gopacket guesses at what was cut off
			compare(t, b, seen)
		}
	}
}

func compareFrame(t *testing.T, b []byte, seen map[string]int) {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	typ, off, ok := Network(b)
	e, isEthernet := p.LinkLayer().(*layers.Ethernet)
	if !ok || !isEthernet {
		return
	}
	seen["ethernet"]++
	eq(t, "Dst", Ethernet(b).Dst(), MAC(e.DstMAC))
	eq(t, "Src", Ethernet(b).Src(), MAC(e.SrcMAC))
	if q, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok && IsTag(Ethernet(b).EtherType()) {
		seen["vlan"]++
		eq(t, "ID", VLAN(b[14:]).ID(), q.VLANIdentifier)
		eq(t, "Priority", VLAN(b[14:]).Priority(), q.Priority)
	}
	second := p.Layers()[min(1+(off-EthernetLen)/VLANLen, len(p.Layers())-1)]
	switch want := second.(type) {
	case *layers.ARP:
		if a := ARP(b[off:]); a.Valid() {
			seen["arp"]++
			eq(t, "Op", a.Op(), want.Operation)
			eq(t, "Sender", a.Sender(), [4]byte(want.SourceProtAddress))
			eq(t, "SenderMAC", a.SenderMAC(), MAC(want.SourceHwAddress))
			eq(t, "Target", a.Target(), [4]byte(want.DstProtAddress))
			eq(t, "TargetMAC", a.TargetMAC(), MAC(want.DstHwAddress))
		}
	case *layers.IPv4:
		eq(t, "EtherType", typ, EtherTypeIPv4)
		compareIPv4(t, IPv4(b[off:]), want, seen)
	case *layers.IPv6:
		eq(t, "EtherType", typ, EtherTypeIPv6)
		compareIPv6(t, IPv6(b[off:]), want, p, seen)
	}
}

// compareRaw compares a packet without link layer.
func compareRaw(t *testing.T, b []byte, seen map[string]int) {
	t.Helper()
	first := layers.LayerTypeIPv4
	if Version(b) == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.DecodeOptions{NoCopy: true})
	switch want := p.NetworkLayer().(type) {
	case *layers.IPv4:
		compareIPv4(t, b, want, seen)
	case *layers.IPv6:
		compareIPv6(t, b, want, p, seen)
	}
}

func compareIPv4(t *testing.T, ip IPv4, want *layers.IPv4, seen map[string]int) {
	t.Helper()
	if !ip.Valid() {
		return
	}
	seen["ipv4"]++
	eq(t, "HeaderLen", ip.HeaderLen(), int(want.IHL)*4)
	eq(t, "TOS", ip.TOS(), want.TOS)
	eq(t, "TotalLen", ip.TotalLen(), want.Length)
	eq(t, "ID", ip.ID(), want.Id)
	eq(t, "FragmentOffset", ip.FragmentOffset(), int(want.FragOffset)*8)
	eq(t, "MoreFragments", ip.MoreFragments(), want.Flags&layers.IPv4MoreFragments != 0)
	eq(t, "TTL", ip.TTL(), want.TTL)
	eq(t, "Proto", ip.Proto(), uint8(want.Protocol))
	eq(t, "Src", ip.Src(), [4]byte(want.SrcIP))
	eq(t, "Dst", ip.Dst(), [4]byte(want.DstIP))
	eqBytes(t, "Payload", ip.Payload(), want.Payload)
	_, sum := want.VerifyChecksum()
	eq(t, "ChecksumOK", ip.ChecksumOK(), sum.Valid)
	if ip.Fragment() {
		seen["ipv4 fragment"]++
		return
	}
	compareTransport(t, ip.Proto(), ip.Payload(), want, ip.Pseudo(), seen)
}

func compareIPv6(t *testing.T, ip IPv6, want *layers.IPv6, p gopacket.Packet, seen map[string]int) {
	t.Helper()
	if !ip.Valid() {
		return
	}
	seen["ipv6"]++
	eq(t, "TrafficClass", ip.TrafficClass(), want.TrafficClass)
	eq(t, "FlowLabel", ip.FlowLabel(), want.FlowLabel)
	eq(t, "PayloadLen", ip.PayloadLen(), want.Length)
	eq(t, "NextHeader", ip.NextHeader(), uint8(want.NextHeader))
	eq(t, "HopLimit", ip.HopLimit(), want.HopLimit)
	eq(t, "Src", ip.Src(), [16]byte(want.SrcIP))
	eq(t, "Dst", ip.Dst(), [16]byte(want.DstIP))
	proto, off, frag, ok := Upper6(ip)
	if !ok || !frag.Unfragmented() {
		return
	}
	if off > IPv6Len {
		seen["ipv6 extension"]++
		if u := p.TransportLayer(); u != nil && proto != ProtoIPIP && proto != ProtoIPv6 {
			eqBytes(t, "transport header", ip[off:off+len(u.LayerContents())], u.LayerContents())
		}
	}
	rest := ip[off : IPv6Len+int(ip.PayloadLen())]
	compareTransport(t, proto, rest, want, PseudoHeader6(ip.Src(), ip.Dst(), proto, uint32(len(rest))), seen)
}

func compareTransport(t *testing.T, proto uint8, b []byte, ip gopacket.NetworkLayer, pseudo uint32, seen map[string]int) {
	t.Helper()
	switch proto {
	case ProtoTCP:
		var want layers.TCP
		if s := TCP(b); s.Valid() && want.DecodeFromBytes(b, noFeedback{}) == nil {
			seen["tcp"]++
			_ = want.SetNetworkLayerForChecksum(ip)
			compareTCP(t, s, &want, seen)
			_, sum := want.VerifyChecksum()
			eqChecksum(t, s.ChecksumOK(pseudo), sum.Valid, seen)
		}
	case ProtoUDP:
		var want layers.UDP
		if u := UDP(b); u.Valid() && int(u.Len()) == len(b) && want.DecodeFromBytes(b, noFeedback{}) == nil {
			seen["udp"]++
			_ = want.SetNetworkLayerForChecksum(ip)
			eq(t, "SrcPort", u.SrcPort(), uint16(want.SrcPort))
			eq(t, "DstPort", u.DstPort(), uint16(want.DstPort))
			eqBytes(t, "Payload", u.Payload(), want.Payload)
			if _, sum := want.VerifyChecksum(); u.Checksum() != 0 {
				eqChecksum(t, u.ChecksumOK(pseudo), sum.Valid, seen)
			}
		}
	case ProtoICMP:
		var want layers.ICMPv4
		if m := ICMP(b); m.Valid() && want.DecodeFromBytes(b, noFeedback{}) == nil {
			seen["icmp"]++
			eq(t, "Type", m.Type(), want.TypeCode.Type())
			eq(t, "Code", m.Code(), want.TypeCode.Code())
			_, sum := want.VerifyChecksum()
			eqChecksum(t, m.ChecksumOK(), sum.Valid, seen)
		}
	case ProtoICMPv6:
		var want layers.ICMPv6
		if m := ICMPv6(b); m.Valid() && want.DecodeFromBytes(b, noFeedback{}) == nil {
			seen["icmpv6"]++
			_ = want.SetNetworkLayerForChecksum(ip)
			eq(t, "Type", m.Type(), want.TypeCode.Type())
			_, sum := want.VerifyChecksum()
			eqChecksum(t, m.ChecksumOK(pseudo), sum.Valid, seen)
		}
	case ProtoGRE:
		var want layers.GRE
		if v := GRE(b); v.Valid() && want.DecodeFromBytes(b, noFeedback{}) == nil {
			seen["gre"]++
			eq(t, "EtherType", v.EtherType(), uint16(want.Protocol))
			eq(t, "Key", v.Key(), want.Key)
			eqBytes(t, "Payload", v.Payload(), want.Payload)
		}
	}
}

func compareTCP(t *testing.T, s TCP, want *layers.TCP, seen map[string]int) {
	t.Helper()
	eq(t, "SrcPort", s.SrcPort(), uint16(want.SrcPort))
	eq(t, "DstPort", s.DstPort(), uint16(want.DstPort))
	eq(t, "Seq", s.Seq(), want.Seq)
	eq(t, "Ack", s.Ack(), want.Ack)
	eq(t, "SYN", s.Flags().Has(FlagSYN), want.SYN)
	eq(t, "FIN", s.Flags().Has(FlagFIN), want.FIN)
	eq(t, "ACK", s.Flags().Has(FlagACK), want.ACK)
	eq(t, "Window", s.Window(), want.Window)
	eqBytes(t, "Payload", s.Payload(), want.Payload)
	it := s.OptionIter()
	for _, o := range want.Options {
		if o.OptionType > 1 && o.OptionMultipath == 0 && it.Next() {
			seen["tcp options"]++
			eq(t, "Kind", it.Kind(), uint8(o.OptionType))
			if o.OptionData != nil {
				eqBytes(t, "Data", it.Data(), o.OptionData)
			}
		}
	}
}

func eqChecksum(t *testing.T, got, want bool, seen map[string]int) {
	t.Helper()
	eq(t, "ChecksumOK", got, want)
	if got {
		seen["l4 checksum right"]++
	} else {
		seen["l4 checksum wrong"]++
	}
}
