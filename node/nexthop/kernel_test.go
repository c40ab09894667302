package nexthop

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
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
	list := []netlink.Link{
		tagged("eth1.200", 12, 2, 200, netlink.VLAN_PROTOCOL_8021Q), // before its parent
		&netlink.Device{LinkAttrs: attrs("eth0", 1, 0)}, &netlink.Device{LinkAttrs: attrs("eth1", 2, 0)}, &netlink.Device{LinkAttrs: attrs("eth2", 3, 0)},
		tagged("eth0.100", 10, 1, 100, netlink.VLAN_PROTOCOL_8021Q),
		tagged("eth2.100", 13, 3, 100, netlink.VLAN_PROTOCOL_8021Q),  // of another device
		tagged("service", 14, 1, 100, netlink.VLAN_PROTOCOL_8021AD),  // a service tag
		tagged("eth0.100.7", 15, 10, 7, netlink.VLAN_PROTOCOL_8021Q), // two tags
	}
	known := make([]int, 2)
	findDevices([]string{"eth0", "eth1"}, known, list)
	got := linksOf(known, list)
	want := map[int]link{1: {0, 0}, 2: {1, 0}, 10: {0, 100}, 12: {1, 200}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestARenamedInterfaceStaysTheDevice(t *testing.T) {
	devices, known := []string{"eth0", "eth1"}, make([]int, 2)
	dev := func(name string, index int) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}}
	}
	for _, step := range []struct {
		what string
		list []netlink.Link
		want map[int]link
	}{
		{"both are there", []netlink.Link{dev("eth0", 1), dev("eth1", 2)}, map[int]link{1: {0, 0}, 2: {1, 0}}},
		{"one is renamed, another takes its name", []netlink.Link{dev("eth0", 1), dev("old", 2), dev("eth1", 3)}, map[int]link{1: {0, 0}, 2: {1, 0}}},
		{"it is deleted", []netlink.Link{dev("eth0", 1)}, map[int]link{1: {0, 0}}},
		{"it is made again", []netlink.Link{dev("eth0", 1), dev("eth1", 7)}, map[int]link{1: {0, 0}, 7: {1, 0}}},
	} {
		findDevices(devices, known, step.list)
		if got := linksOf(known, step.list); !maps.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}

// interrupted is kernel tables whose dumps and look-ups fail while err is set.
type interrupted struct {
	mu   sync.Mutex
	err  error
	mac  net.HardwareAddr
	asks int // of links
}

func (k *interrupted) set(err error, mac string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	k.mac, _ = net.ParseMAC(mac)
}

func (k *interrupted) LinkList() ([]netlink.Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asks++
	if k.err != nil {
		return nil, k.err
	}
	return []netlink.Link{&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 4}}}, nil
}

func (k *interrupted) NeighList(int, int) ([]netlink.Neigh, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	return []netlink.Neigh{{LinkIndex: 4, IP: net.IPv4(198, 18, 2, 11), HardwareAddr: k.mac, State: netlink.NUD_REACHABLE}}, nil
}

func (k *interrupted) RouteGet(net.IP) ([]netlink.Route, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil && !errors.Is(k.err, netlink.ErrDumpInterrupted) { // it is no dump
		return nil, k.err
	}
	return []netlink.Route{{LinkIndex: 4, Type: unix.RTN_UNICAST}}, nil
}

func (k *interrupted) NeighSet(*netlink.Neigh) error { return nil }
func (k *interrupted) Close()                        {}

// TestWhatTheKernelDoesNotAnswerStaysAsItWas interrupts all that the resolver asks: a hop that was good
// stays, and a new one is reported as soon as there is an answer.
func TestWhatTheKernelDoesNotAnswerStaysAsItWas(t *testing.T) {
	for _, cause := range []error{netlink.ErrDumpInterrupted, unix.ENOMEM} {
		k := &interrupted{}
		k.set(nil, "02:00:00:00:00:0b")
		r := &Kernel{devices: []string{"eth0"}, known: make([]int, 1), nl: k, reported: map[netip.Addr]Hop{}}
		var reports []Hop
		a, b := netip.MustParseAddr("198.18.2.11"), netip.MustParseAddr("198.18.2.12")
		watch := func(addrs ...netip.Addr) {
			r.addrs, r.changed = addrs, func(_ netip.Addr, h Hop) { reports = append(reports, h) }
		}
		watch(a)
		good := Hop{MAC: [6]byte{2, 0, 0, 0, 0, 0x0b}, State: Ready}
		if !r.resolveAll() || len(reports) != 1 || reports[0] != good {
			t.Fatalf("a good view: %v", reports)
		}
		k.set(cause, "")
		watch(a, b) // the second is new: nothing is known of it
		if r.resolveAll() || len(reports) != 1 {
			t.Errorf("%v: reported %v", cause, reports[1:])
		}
		k.set(nil, "02:00:00:00:00:0c")
		if r.resolveAll(); len(reports) != 3 || reports[1].MAC[5] != 0x0c || reports[2].State != Unresolved {
			t.Errorf("after %v: reported %v", cause, reports[1:])
		}
	}
	k, first := &interrupted{}, 0
	k.set(netlink.ErrDumpInterrupted, "")
	r := &Kernel{devices: []string{"eth0"}, known: make([]int, 1), nl: k, reported: map[netip.Addr]Hop{}}
	r.addrs, r.changed = []netip.Addr{netip.MustParseAddr("198.18.2.11")}, func(netip.Addr, Hop) { first++ }
	if r.resolveAll() || first != 0 {
		t.Error("an interrupted first look reports something")
	}
	if k.asks < 2 {
		t.Error("an interrupted dump is not made again")
	}
}

// TestInterfacesThatComeAndGoTakeNoHopAway makes and deletes interfaces beside the device, which interrupts
// the kernel's dumps.
func TestInterfacesThatComeAndGoTakeNoHopAway(t *testing.T) {
	n := testnet.For(t, "mr-gwchurn")
	gw, be := n.Namespace("gw"), n.Namespace("be")
	for _, err := range []error{n.Link(gw, "eth1", be, "eth0"), gw.Up("eth1", "198.18.2.1/24"), be.Up("eth0", "198.18.2.11/24")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var r *Kernel
	var churn *netlink.Handle
	if err := gw.Do(func() (err error) {
		if r, err = NewKernel([]string{"eth1"}); err != nil {
			return err
		}
		churn, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer churn.Close()
	pair := func(name string) *netlink.Veth {
		return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "p" + name}
	}
	for i := range 40 { // so that a dump takes several messages, between which it can be interrupted
		if err := churn.LinkAdd(pair(fmt.Sprint("still", i))); err != nil {
			t.Fatal(err)
		}
	}
	log := &hopLog{hops: map[netip.Addr]Hop{}}
	var lost atomic.Int32
	var ready atomic.Bool
	r.Watch([]netip.Addr{netip.MustParseAddr("198.18.2.11")}, func(a netip.Addr, h Hop) {
		if ready.Load() && h.State != Ready {
			lost.Add(1)
		}
		log.changed(a, h)
	})
	log.until(t, "198.18.2.11", "is a neighbour", func(h Hop) bool { return h.State == Ready })
	ready.Store(true)
	for i := range 30 {
		l := pair(fmt.Sprint("churn", i))
		if err := errors.Join(churn.LinkAdd(l), churn.LinkDel(l)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if k := lost.Load(); k > 0 {
		t.Errorf("the hop was lost %d times", k)
	}
}
