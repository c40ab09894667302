package rolelink

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/wire"
)

var (
	own, other       = wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 2}
	vip4, vip6       = netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8:1::1")
	router4, router6 = netip.MustParseAddr("198.18.1.254"), netip.MustParseAddr("2001:db8:1::fe")
	host4            = wire.ARPHost{MAC: other, Addr: [4]byte{198, 18, 1, 9}}
)

func asked() *sock {
	return &sock{links: []Link{{Device: "a", MAC: own, Addrs: []netip.Addr{vip4, vip6}, Watch: []netip.Addr{router4, router6}}}, asks: []netip.Addr{vip4, vip6}}
}

func arpFrame(from wire.MAC, op uint16, sender, target wire.ARPHost) []byte {
	return wire.AppendARP(wire.AppendEthernet(nil, wire.Broadcast, from, wire.EtherTypeARP), op, sender, target)
}

func advert(from wire.MAC, target netip.Addr, hops uint8) []byte {
	b := wire.AppendEthernet(nil, wire.MulticastMAC6(wire.AllNodes), from, wire.EtherTypeIPv6)
	n := len(b)
	b = wire.AppendIPv6(b, &wire.IPv6Header{Src: target.As16(), Dst: wire.AllNodes, NextHeader: wire.ProtoICMPv6, HopLimit: hops, PayloadLen: wire.NeighborAdvertLen + 8})
	b = wire.AppendNeighborAdvert(b, target.As16(), from, wire.NAOverride)
	wire.ICMPv6(b[n+wire.IPv6Len:]).FillChecksum(wire.IPv6(b[n:]).Pseudo())
	return b
}

// What frames say of an address that was asked for.
func TestClassify(t *testing.T) {
	at := func(mac wire.MAC, a netip.Addr) wire.ARPHost { return wire.ARPHost{MAC: mac, Addr: a.As4()} }
	for _, c := range []struct {
		name  string
		frame []byte
		want  kind
	}{
		{"a reply", arpFrame(other, wire.ARPReply, at(other, vip4), wire.ARPHost{MAC: own}), answer},
		{"an announcement", arpFrame(other, wire.ARPRequest, at(other, vip4), at(wire.MAC{}, vip4)), answer},
		{"of another address", arpFrame(other, wire.ARPReply, host4, wire.ARPHost{MAC: own}), nothing},
		{"of this gateway", arpFrame(own, wire.ARPReply, at(own, vip4), wire.ARPHost{MAC: other}), nothing},
		{"a watched host's reply", arpFrame(other, wire.ARPReply, at(other, router4), wire.ARPHost{MAC: own}), watched},
		{"a watched host's advertisement", advert(other, router6, 255), watched},
		{"a probe for a watched address", question(router4, other, 0), nothing},
		{"a probe", arpFrame(other, wire.ARPRequest, wire.ARPHost{MAC: other}, at(wire.MAC{}, vip4)), rival},
		{"a probe of this gateway", arpFrame(own, wire.ARPRequest, wire.ARPHost{MAC: own}, at(wire.MAC{}, vip4)), nothing},
		{"a client's request", arpFrame(other, wire.ARPRequest, host4, at(wire.MAC{}, vip4)), nothing},
		{"a reply without a sender", arpFrame(other, wire.ARPReply, wire.ARPHost{MAC: other}, at(wire.MAC{}, vip4)), nothing},
		{"an advertisement", advert(other, vip6, 255), answer},
		{"an advertisement from afar", advert(other, vip6, 64), nothing},
		{"an advertisement of this gateway", advert(own, vip6, 255), nothing},
		{"a solicitation", question(vip6, other, 0), rival},
		{"a solicitation of this gateway", question(vip6, own, 0), nothing},
	} {
		mac, got := asked().classify(c.frame)
		if got != c.want || got != nothing && mac != other {
			t.Errorf("%s: %v of %v, want %v", c.name, got, mac, c.want)
		}
		for n := range c.frame { // cut frames are nothing, or what they were
			if _, k := asked().classify(c.frame[:n]); k != nothing && n < wire.EthernetLen+wire.ARPLen {
				t.Fatalf("%s: %d octets are taken", c.name, n)
			}
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(advert(other, vip6, 255))
	f.Add(question(vip4, other, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if mac, k := asked().classify(b); k != nothing && mac == own {
			t.Error("its own frame is another's")
		}
	})
}

// Questions are ARP probes and solicitations for duplicate address detection, tagged where the network is.
func TestQuestions(t *testing.T) {
	for _, vlan := range []uint16{0, 7} {
		for _, a := range []netip.Addr{vip4, vip6} {
			p := gopacket.NewPacket(question(a, own, vlan), layers.LayerTypeEthernet, gopacket.Default)
			if e := p.ErrorLayer(); e != nil {
				t.Fatal(e.Error())
			}
			if tag, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok != (vlan != 0) || ok && tag.VLANIdentifier != vlan {
				t.Errorf("%v, VLAN %d: %v", a, vlan, p)
			}
			switch m := p.Layers()[len(p.Layers())-1].(type) {
			case *layers.ARP:
				if m.Operation != layers.ARPRequest || !slices.Equal(m.SourceProtAddress, make([]byte, 4)) || !slices.Equal(m.DstProtAddress, a.AsSlice()) {
					t.Errorf("%+v", m)
				}
			case *layers.ICMPv6NeighborSolicitation:
				ip := p.NetworkLayer().(*layers.IPv6)
				if !m.TargetAddress.Equal(a.AsSlice()) || len(m.Options) != 0 || !ip.SrcIP.IsUnspecified() || ip.HopLimit != 255 || ip.DstIP.String() != "ff02::1:ff00:1" {
					t.Errorf("%+v, %+v", ip, m)
				}
				sum := wire.ICMPv6(ip.Payload)
				if _, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); !ok || binary.BigEndian.Uint16(sum[2:]) == 0 {
					t.Error("no checksum")
				}
			default:
				t.Errorf("%v: %v", a, p)
			}
		}
	}
}

// A claim counts where another gateway sends it, for an address that this one has on the link.
func TestClaimFrames(t *testing.T) {
	c := role.Claim{State: role.Probing, Priority: 9, Able: true, From: role.Incarnation{1}, Window: 50 * time.Millisecond}
	elsewhere := netip.MustParseAddr("198.18.1.77")
	for _, k := range []struct {
		name string
		link Link
		want bool
	}{
		{"both", Link{MAC: other, Addrs: []netip.Addr{vip4, vip6}}, true},
		{"tagged", Link{MAC: other, VLAN: 7, Addrs: []netip.Addr{vip6}}, true},
		{"its own", Link{MAC: own, Addrs: []netip.Addr{vip4}}, false},
		{"of another address", Link{MAC: other, Addrs: []netip.Addr{elsewhere}}, false},
		{"of none", Link{MAC: other}, false},
	} {
		b := claimFrame(c, &k.link)
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		e := p.LinkLayer().(*layers.Ethernet)
		kind := e.EthernetType
		if k.link.VLAN != 0 {
			tag := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q)
			if kind = tag.Type; tag.VLANIdentifier != k.link.VLAN {
				t.Errorf("%s: %+v", k.name, tag)
			}
			b = append(b[:12:12], b[16:]...) // the kernel removes it
		}
		if kind != etherTypeClaim || e.DstMAC.String() != "ff:ff:ff:ff:ff:ff" {
			t.Errorf("%s: %+v", k.name, e)
		}
		mac, got, ok := asked().claimOf(b)
		if ok != k.want || ok && (mac != other || got.From != c.From || !slices.Equal(got.Addrs, k.link.Addrs)) {
			t.Errorf("%s: %v, %+v of %v", k.name, ok, got, mac)
		}
		for n := range b {
			if _, _, ok := asked().claimOf(b[:n]); ok {
				t.Fatalf("%s: %d octets are taken", k.name, n)
			}
		}
	}
}
