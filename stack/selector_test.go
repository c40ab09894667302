package stack

import (
	"encoding/binary"
	gonet "net"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// select1 returns the selector of a frame that has one.
func select1(t *testing.T, frame []byte) selector {
	t.Helper()
	s, ok := selectorOf(frame)
	if !ok {
		t.Fatal("the frame has no selector")
	}
	return s
}

func TestTwoTagsAreSkippedAndNoMore(t *testing.T) {
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	for tags := range 4 {
		s, ok := selectorOf(frame)
		if want := tags <= 2; ok != want || ok && s.dport != 80 {
			t.Errorf("%d tags: %v, port %d", tags, ok, s.dport)
		}
		frame = slices.Insert(frame, 12, 0x88, 0xa8, 0, 7)
	}
}

func TestPortsAreReadWhereTheyAre(t *testing.T) {
	ports := []byte{0, 9, 0, 80}
	for _, tt := range []struct {
		what       string
		frame      []byte
		has, rest  bool
		fragmented bool
	}{
		{"four bytes of a first fragment", fragment4(t, "198.18.1.1", layers.IPProtocolUDP, 1, 0, ports)[:14+20+4], true, false, true},
		{"three bytes", fragment4(t, "198.18.1.1", layers.IPProtocolUDP, 1, 0, ports)[:14+20+3], false, false, true},
		{"the second fragment", fragment4(t, "198.18.1.1", layers.IPProtocolUDP, 1, 1, ports), false, true, true},
		{"a whole datagram", udp4(t, "198.18.1.1:9", "198.18.0.10:80"), true, false, false},
	} {
		s := select1(t, tt.frame)
		if s.hasPorts != tt.has || s.rest != tt.rest || s.fragment != tt.fragmented || tt.has && (s.sport != 9 || s.dport != 80) {
			t.Errorf("%s: %+v", tt.what, s)
		}
	}
}

// fragment6 returns the IPv6 header of a datagram of UDP and its fragment header (RFC 8200 4.5).
func fragment6(src string, offset uint16, id uint32) (*layers.IPv6, []byte) {
	h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Fragment, SrcIP: gonet.ParseIP(src), DstIP: gonet.ParseIP("2001:db8::10")}
	b := []byte{17, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], offset<<3|1) // more follow
	binary.BigEndian.PutUint32(b[4:], id)
	return h, b
}

func TestFragmentsOfIPv6HaveTheirIdentification(t *testing.T) {
	for offset := range uint16(2) {
		h, b := fragment6("2001:db8::1", offset, 0x01020304)
		s := select1(t, frameOf(t, layers.EthernetTypeIPv6, h, gopacket.Payload(append(b, 0, 9, 0, 80))))
		if !s.fragment || s.rest != (offset > 0) || s.id != 0x01020304 || s.proto != udp || s.hasPorts == s.rest {
			t.Errorf("offset %d: %+v", offset, s)
		}
	}
}

func TestErrorsNameThePacketThatTheyQuote(t *testing.T) {
	error4 := func(quote []byte) []byte {
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}
		return frameOf(t, layers.EthernetTypeIPv4, header4("198.18.1.1", "198.18.0.10", layers.IPProtocolICMPv4), icmp, gopacket.Payload(quote))
	}
	error6 := func(quote []byte) []byte {
		h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: gonet.ParseIP("2001:db8::1"), DstIP: gonet.ParseIP("2001:db8::10")}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}
		_ = icmp.SetNetworkLayerForChecksum(h)
		return frameOf(t, layers.EthernetTypeIPv6, h, icmp, gopacket.Payload(append(make([]byte, 4), quote...)))
	}
	quote6 := func(offset uint16) []byte {
		h, b := fragment6("2001:db8::10", offset, 1)
		return frameOf(t, layers.EthernetTypeIPv6, h, gopacket.Payload(append(b, 0, 53, 0, 9, 0, 0, 0, 0)))[14:]
	}
	tcp4 := frameOf(t, layers.EthernetTypeIPv4, header4("198.18.0.10", "198.18.1.1", layers.IPProtocolTCP), gopacket.Payload([]byte{0, 53, 0, 9, 0, 0, 0, 0}))[14:]
	for _, tt := range []struct {
		what   string
		frame  []byte
		proto  uint8
		quoted bool
	}{
		{"UDP", error4(udp4(t, "198.18.0.10:53", "198.18.1.1:9")[14:42]), udp, true},
		{"TCP", error4(tcp4), tcp, true},
		{"a first fragment", error4(fragment4(t, "198.18.0.10", layers.IPProtocolUDP, 1, 0, []byte{0, 53, 0, 9, 0, 0, 0, 0})[14:]), udp, true},
		{"a later fragment", error4(fragment4(t, "198.18.0.10", layers.IPProtocolUDP, 1, 1, []byte{0, 53, 0, 9, 0, 0, 0, 0})[14:]), 0, false},
		{"a first fragment of IPv6", error6(quote6(0)), udp, true},
		{"a later fragment of IPv6", error6(quote6(1)), 0, false},
	} {
		s := select1(t, tt.frame)
		if s.quoted != tt.quoted || tt.quoted && (s.quotedProto != tt.proto || s.quotedPort != 53 || !s.quotedHasPort) {
			t.Errorf("%s: %+v", tt.what, s)
		}
	}
}

func TestNoClaimOfICMPv6IsForNeighborDiscovery(t *testing.T) {
	for typ := uint8(128); typ < 140; typ++ {
		h := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: gonet.ParseIP("2001:db8::1"), DstIP: gonet.ParseIP("2001:db8::10")}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
		_ = icmp.SetNetworkLayerForChecksum(h)
		s := select1(t, frameOf(t, layers.EthernetTypeIPv6, h, icmp, gopacket.Payload(append(make([]byte, 4), gonet.ParseIP("2001:db8::10")...))))
		if discovery := typ >= 133 && typ <= 137; (s.neighbor || s.proto == 0) != discovery { // RFC 4861 4
			t.Errorf("type %d: %+v", typ, s)
		}
	}
}
