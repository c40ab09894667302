package control

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/datapath"
)

func TestSteeringNamesWhatTheGatewayServes(t *testing.T) {
	two := `
devices: [{name: gw0, queues: 2}, {name: gw1, queues: 2}]
snat: [198.18.2.1]
snat_ports: 1000-1999
services:
  - {name: web, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:8080}]}
`
	one := `
devices: [{name: gw0}, {name: gw1}]
services:
  - {name: dns, protocol: udp, source: client, address: "[2001:db8:1::1]:53", backends: [{address: "[2001:db8:2::11]:53"}]}
`
	vip4, vip6, snat := netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("198.18.2.1")
	want := []Steer{
		{Addr: vip4, Proto: 6, Ports: datapath.PortRange{First: 80, Last: 80}, Neighbor: true, Loop: -1},
		{Addr: snat, Proto: 6, Ports: datapath.PortRange{First: 1000, Last: 1499}, Neighbor: true, Loop: 0},
		{Addr: snat, Proto: 6, Ports: datapath.PortRange{First: 1500, Last: 1999}, Neighbor: true, Loop: 1},
		{Addr: snat, Proto: 17, Ports: datapath.PortRange{First: 1000, Last: 1499}, Neighbor: true, Loop: 0},
		{Addr: snat, Proto: 17, Ports: datapath.PortRange{First: 1500, Last: 1999}, Neighbor: true, Loop: 1},
		{Addr: vip4, Proto: 6, Loop: -1},
		{Addr: vip4, Proto: 17, Loop: -1},
	}
	want = append(want, messages4(vip4, 6)...)
	want = append(want, messages4(snat, 6, 17)...)
	if diff := cmp.Diff(want, newWorld(t, two).g.Steering(), addrs); diff != "" {
		t.Error(diff)
	}
	want = []Steer{
		{Addr: vip6, Proto: 17, Ports: datapath.PortRange{First: 53, Last: 53}, Neighbor: true, Loop: -1},
		{Addr: netip.MustParseAddr("2001:db8:2::11"), Proto: 17, Ports: datapath.PortRange{First: 53, Last: 53}, Source: true, Loop: -1},
		{Addr: vip6, Proto: 6, Loop: -1},
		{Addr: vip6, Proto: 17, Loop: -1},
		{Addr: vip6, Proto: 58, Ports: datapath.PortRange{First: 1, Last: 4}, Loop: -1},
		{Addr: vip6, Proto: 58, Ports: datapath.PortRange{First: 128, Last: 128}, Loop: -1},
		{Addr: vip6, Proto: 17, LaterFragments: true, Loop: -1},
		{Addr: vip6, Proto: 58, LaterFragments: true, Loop: -1},
		{Addr: netip.MustParseAddr("2001:db8:2::11"), Proto: 58, Ports: datapath.PortRange{First: 1, Last: 4}, Source: true, Loop: -1},
		{Addr: netip.MustParseAddr("2001:db8:2::11"), Proto: 17, LaterFragments: true, Source: true, Loop: -1},
	}
	got := slices.DeleteFunc(newWorld(t, one).g.Steering(), func(s Steer) bool { return s.Keep }) // those of this machine
	if diff := cmp.Diff(want, got, addrs); diff != "" {
		t.Error(diff)
	}
}

// messages4 are the ICMP messages and fragments for an IPv4 address.
func messages4(a netip.Addr, protos ...uint8) []Steer {
	list := []Steer{{Proto: 1, Ports: datapath.PortRange{First: 3, Last: 12}}}
	for i, p := range protos {
		list = append(list, Steer{Proto: p, LaterFragments: true})
		if i == 0 {
			list = append(list, Steer{Proto: 1, LaterFragments: true})
		}
	}
	for i := range list {
		list[i].Addr, list[i].Loop = a, -1
	}
	return list
}

func TestErrorsAboutTunnelsAreSteered(t *testing.T) {
	list := newWorld(t, fmt.Sprintf(tunnelConfig, "ipip", backend4)).g.Steering()
	for _, want := range []Steer{
		{Addr: netip.MustParseAddr("198.18.5.0"), Bits: 24, Proto: 1, Loop: -1},
		{Addr: netip.MustParseAddr("2001:db8:5::"), Bits: 64, Proto: 58, Loop: -1},
	} {
		if !slices.Contains(list, want) {
			t.Errorf("no %+v in %+v", want, list)
		}
	}
}

// ARP for an address that the kernel has must stay with it: steered away, the kernel's own requests
// from that address would never see their answers.
func TestTheKernelKeepsARPForItsOwnAddresses(t *testing.T) {
	n := testnet.For(t, "mr-gwst")
	gw, peer := n.Namespace("gw"), n.Namespace("peer")
	if err := n.Link(gw, "eth1", peer, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := gw.Up("eth1", "198.18.2.1/24"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, withBackends("keep", 11))
	var list []Steer
	if err := gw.Do(func() error { list = w.g.Steering(); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if want := s.Addr.String() != "198.18.2.1" && s.Proto != 1 && s.Proto != 58 && s.Ports.Last != 0; s.Neighbor != want {
			t.Errorf("%+v", s)
		}
		if echo := s.Proto == 1 && (s.LaterFragments || s.Ports.Contains(8)); echo && s.Addr.String() == "198.18.2.1" {
			t.Errorf("the kernel does not get echo requests to its own address: %+v", s)
		}
	}
	if !slices.ContainsFunc(list, func(s Steer) bool { return s.Neighbor }) {
		t.Error("no address is answered for")
	}
}
