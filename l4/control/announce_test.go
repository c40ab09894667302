package control

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestAddressesAreAnnouncedInTheirNetworks(t *testing.T) {
	w := newWorld(t, fill(""))
	list := w.g.Announcements([]Network{
		{netip.MustParsePrefix("198.18.1.0/24"), 0, 0},
		{netip.MustParsePrefix("198.18.2.0/24"), 1, 7},
		{netip.MustParsePrefix("2001:db8:1::/64"), 0, 100},
		{netip.MustParsePrefix("2001:db8:9::/64"), 0, 0},
	})
	want := []struct {
		addr string
		port uint8
		vlan uint16
		mac  [6]byte
	}{{"198.18.1.1", 0, 0, macGw0}, {"2001:db8:1::1", 0, 100, macGw0}, {"198.18.2.1", 1, 7, macGw1}}
	if len(list) != len(want) {
		t.Fatalf("%d announcements: %v", len(list), list)
	}
	for i, c := range want {
		a := list[i]
		pk := gopacket.NewPacket(a.Frame, layers.LayerTypeEthernet, gopacket.Default)
		if a.Dev != c.port || pk.ErrorLayer() != nil || pk.LinkLayer().LinkFlow().Src().String() != layers.NewMACEndpoint(c.mac[:]).String() {
			t.Errorf("%s: port %d, %v", c.addr, a.Dev, pk)
		}
		vlan := uint16(0)
		if tag, ok := pk.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
			vlan = tag.VLANIdentifier
		}
		if vlan != c.vlan {
			t.Errorf("%s: VLAN %d, want %d", c.addr, vlan, c.vlan)
		}
		switch m := pk.Layers()[len(pk.Layers())-1].(type) {
		case *layers.ARP:
			if src, dst := netip.AddrFrom4([4]byte(m.SourceProtAddress)), netip.AddrFrom4([4]byte(m.DstProtAddress)); src.String() != c.addr || dst != src || [6]byte(m.SourceHwAddress) != c.mac || m.Operation != layers.ARPRequest {
				t.Errorf("%+v", m)
			}
		case *layers.ICMPv6NeighborAdvertisement:
			ip := pk.NetworkLayer().(*layers.IPv6)
			if m.TargetAddress.String() != c.addr || m.Flags != 0x20 || [6]byte(m.Options[0].Data) != c.mac ||
				ip.SrcIP.String() != c.addr || ip.DstIP.String() != "ff02::1" || ip.HopLimit != 255 {
				t.Errorf("%+v %+v", ip, m)
			}
		default:
			t.Errorf("%s: %v", c.addr, pk)
		}
	}
}
