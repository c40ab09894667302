package control

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func arpFor(target string, op uint16) []byte {
	p := serialize(
		&layers.Ethernet{SrcMAC: macClient[:], DstMAC: broadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: op, SourceHwAddress: macClient[:], SourceProtAddress: []byte{198, 18, 0, 9},
			DstHwAddress: make([]byte, 6), DstProtAddress: netip.MustParseAddr(target).AsSlice(),
		})
	return p
}

func TestARPIsAnsweredForTheGatewaysAddresses(t *testing.T) {
	w := newWorld(t, fill(""))
	for _, target := range []string{"198.18.1.1", "198.18.2.1"} {
		out := w.expect(0, arpFor(target, layers.ARPRequest), 0)
		pk := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
		eth := pk.LinkLayer().(*layers.Ethernet)
		arp := pk.Layer(layers.LayerTypeARP).(*layers.ARP)
		if !bytes.Equal(eth.DstMAC, macClient[:]) || !bytes.Equal(eth.SrcMAC, macGw0[:]) ||
			arp.Operation != layers.ARPReply || !bytes.Equal(arp.SourceHwAddress, macGw0[:]) ||
			!bytes.Equal(arp.SourceProtAddress, netip.MustParseAddr(target).AsSlice()) ||
			!bytes.Equal(arp.DstHwAddress, macClient[:]) || !bytes.Equal(arp.DstProtAddress, []byte{198, 18, 0, 9}) {
			t.Errorf("answer for %s: %v %+v", target, eth, arp)
		}
	}
	w.refused(0, arpFor("198.18.1.2", layers.ARPRequest), packet.DropNoService)
	w.refused(0, arpFor("198.18.2.11", layers.ARPRequest), packet.DropNoService)
	w.refused(0, arpFor("198.18.1.1", layers.ARPReply), packet.DropUnsupported)
	w.refused(0, arpFor("198.18.1.1", layers.ARPRequest)[:40], packet.DropUnsupported)
}

// solicit returns a neighbour solicitation; mac says whether it names its sender's link address.
func solicit(src, dst, target string, mac bool, hops uint8) []byte {
	to := netip.MustParseAddr(dst).AsSlice()
	ip := &layers.IPv6{
		Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolICMPv6,
		SrcIP: netip.MustParseAddr(src).AsSlice(), DstIP: to,
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	icmp.SetNetworkLayerForChecksum(ip)
	ns := &layers.ICMPv6NeighborSolicitation{TargetAddress: netip.MustParseAddr(target).AsSlice()}
	if mac {
		ns.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: macClient[:]}}
	}
	return serialize(
		&layers.Ethernet{SrcMAC: macClient[:], DstMAC: net.HardwareAddr{0x33, 0x33, to[12], to[13], to[14], to[15]}, EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, ns)
}

func TestNeighbourSolicitationsAreAnswered(t *testing.T) {
	const vip, multicast = "2001:db8:1::1", "ff02::1:ff00:1"
	for _, c := range []struct {
		name, src string
		mac       bool
		dst       string // of the answer
		dstMAC    net.HardwareAddr
		flags     uint8 // solicited 0x40, override 0x20
	}{
		{"with the sender's link address", "2001:db8::9", true, "2001:db8::9", macClient[:], 0x60},
		{"without", "2001:db8::9", false, "2001:db8::9", macClient[:], 0x60},
		{"detection of duplicates", "::", false, "ff02::1", net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, 0x20},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fill(""))
			out := w.expect(0, solicit(c.src, multicast, vip, c.mac, 255), 0)
			pk := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
			eth, ip := pk.LinkLayer().(*layers.Ethernet), pk.NetworkLayer().(*layers.IPv6)
			na := pk.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
			if !bytes.Equal(eth.DstMAC, c.dstMAC) || !bytes.Equal(eth.SrcMAC, macGw0[:]) ||
				ip.SrcIP.String() != vip || ip.DstIP.String() != c.dst || ip.HopLimit != 255 ||
				na.TargetAddress.String() != vip || na.Flags != c.flags ||
				len(na.Options) != 1 || !bytes.Equal(na.Options[0].Data, macGw0[:]) {
				t.Errorf("%v %+v %+v", eth, ip, na)
			}
			icmp := pk.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
			icmp.SetNetworkLayerForChecksum(ip)
			if want := serialize(eth, ip, icmp, na); !bytes.Equal(out, want) {
				t.Errorf("got\n%x\nwant\n%x", out, want)
			}
		})
	}
	w := newWorld(t, fill(""))
	w.refused(0, solicit("2001:db8::9", multicast, "2001:db8:1::7", true, 255), packet.DropNoService)
	w.refused(0, solicit("2001:db8::9", multicast, vip, true, 64), packet.DropUnsupported) // came over a router
	bad := solicit("2001:db8::9", multicast, vip, true, 255)
	bad[len(bad)-1] ^= 1
	w.refused(0, bad, packet.DropUnsupported) // wrong checksum
}
