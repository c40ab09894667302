package nexthop

import (
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/internal/testnet"
)

// hopLog keeps the latest hops that a resolver reported.
type hopLog struct {
	mu   sync.Mutex
	hops map[netip.Addr]Hop
}

func (l *hopLog) changed(a netip.Addr, h Hop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hops[a] = h
}

// until waits for a to have the hop that ok accepts.
func (l *hopLog) until(t *testing.T, a, what string, ok func(Hop) bool) {
	t.Helper()
	var hop Hop
	for range 400 {
		l.mu.Lock()
		h, known := l.hops[netip.MustParseAddr(a)]
		l.mu.Unlock()
		if hop = h; known && ok(h) {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Errorf("%s: %s, but the hop is %+v", a, what, hop)
}

// gw eth1 198.18.2.1/24, 2001:db8:2::1/64 --- eth0 198.18.2.11, 2001:db8:2::11 backend
// gw eth2 198.18.5.1/24 is not one of the gateway's devices 198.18.3.0/24 is routed by
// the backend
func TestKernelReportsNextHops(t *testing.T) {
	n := testnet.For(t, "mr-gwhop")
	gw, be := n.Namespace("gw"), n.Namespace("be")
	for _, err := range []error{
		n.Link(gw, "eth1", be, "eth0"), n.Link(gw, "eth2", be, "eth9"),
		gw.Up("eth1", "198.18.2.1/24", "2001:db8:2::1/64"), gw.Up("eth2", "198.18.5.1/24"),
		be.Up("eth0", "198.18.2.11/24", "2001:db8:2::11/64"), be.Up("eth9"),
		gw.Route("198.18.3.0/24", "198.18.2.11"), gw.Route("2001:db8:3::/64", "2001:db8:2::11"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	setMAC := func(mac string) {
		t.Helper()
		if _, err := be.Run("ip", "link", "set", "eth0", "address", mac); err != nil {
			t.Fatal(err)
		}
	}
	setMAC("02:00:00:00:00:0b")
	var r *Kernel
	if err := gw.Do(func() (err error) { r, err = NewKernel([]string{"eth0", "eth1"}); return err }); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log := &hopLog{hops: map[netip.Addr]Hop{}}
	var addrs []netip.Addr
	for _, s := range []string{"198.18.2.11", "2001:db8:2::11", "198.18.3.7", "2001:db8:3::7", "198.18.2.99", "198.18.5.2", "198.18.9.9", "198.18.2.1"} {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	r.Watch(addrs, log.changed)

	is := func(want Hop) func(Hop) bool { return func(h Hop) bool { return h == want } }
	be1 := Hop{MAC: [6]byte{2, 0, 0, 0, 0, 0x0b}, Dev: 1, State: Ready}
	log.until(t, "198.18.2.11", "is a neighbour", is(be1))
	log.until(t, "2001:db8:2::11", "is a neighbour", is(be1))
	log.until(t, "198.18.3.7", "is behind the backend", is(be1))
	log.until(t, "2001:db8:3::7", "is behind the backend", is(be1))
	log.until(t, "198.18.2.99", "does not exist", is(Hop{Dev: 1}))
	log.until(t, "198.18.5.2", "is behind another device", is(Hop{State: NoRoute}))
	log.until(t, "198.18.9.9", "has no route", is(Hop{State: NoRoute}))
	log.until(t, "198.18.2.1", "is the machine itself", is(Hop{State: NoRoute}))

	if err := gw.Route("198.18.9.0/24", "198.18.2.11"); err != nil {
		t.Fatal(err)
	}
	log.until(t, "198.18.9.9", "has got a route", is(be1))

	setMAC("02:00:00:00:00:0c") // the kernel finds out when the next probe goes unanswered
	if _, err := gw.Run("ip", "neigh", "flush", "dev", "eth1"); err != nil {
		t.Fatal(err)
	}
	be2 := Hop{MAC: [6]byte{2, 0, 0, 0, 0, 0x0c}, Dev: 1, State: Ready}
	log.until(t, "198.18.2.11", "has another link address", is(be2))
	log.until(t, "2001:db8:3::7", "has another link address", is(be2))

	if _, err := gw.Run("ip", "link", "set", "eth1", "down"); err != nil {
		t.Fatal(err)
	}
	log.until(t, "198.18.2.11", "is behind a link that is down", is(Hop{State: NoRoute}))
}

func TestVLANInterfaceIsADeviceAndATag(t *testing.T) {
	attrs := func(name string, index, parent int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent}
	}
	tagged := func(name string, index, parent, id int, proto netlink.VlanProtocol) *netlink.Vlan {
		return &netlink.Vlan{LinkAttrs: attrs(name, index, parent), VlanId: id, VlanProtocol: proto}
	}
	got := linksOf([]string{"eth0", "eth1"}, []netlink.Link{
		tagged("eth1.200", 12, 2, 200, netlink.VLAN_PROTOCOL_8021Q), // before its parent
		&netlink.Device{LinkAttrs: attrs("eth0", 1, 0)}, &netlink.Device{LinkAttrs: attrs("eth1", 2, 0)}, &netlink.Device{LinkAttrs: attrs("eth2", 3, 0)},
		tagged("eth0.100", 10, 1, 100, netlink.VLAN_PROTOCOL_8021Q),
		tagged("eth2.100", 13, 3, 100, netlink.VLAN_PROTOCOL_8021Q),  // of another device
		tagged("service", 14, 1, 100, netlink.VLAN_PROTOCOL_8021AD),  // a service tag
		tagged("eth0.100.7", 15, 10, 7, netlink.VLAN_PROTOCOL_8021Q), // two tags
	})
	want := map[int]link{1: {0, 0}, 2: {1, 0}, 10: {0, 100}, 12: {1, 200}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
