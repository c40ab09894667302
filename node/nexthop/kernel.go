package nexthop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
)

// Kernel resolves by the kernel's routes and neighbour table. The kernel does ARP and
// neighbour discovery: its stack keeps running beside the drivers.
type Kernel struct {
	devices []string // by index
	known   []int    // the kernel's index of each; 0 before it has been seen
	nl      kernelTables
	wake    chan struct{} // something may have changed
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	addrs   []netip.Addr
	changed func(netip.Addr, Hop)
	anew    bool // Watch was called since resolveAll last began

	finds  Finds
	learnt chan learnt

	// These belong to resolveLoop.
	reported   map[netip.Addr]Hop
	lastLinks  map[int]link                  // as last read whole; nil before
	lastNeighs map[neighborKey]netlink.Neigh // the same
}

// kernelTables is the part of netlink.Handle that the resolver uses, so that tests can interrupt it.
type kernelTables interface {
	LinkList() ([]netlink.Link, error)
	NeighList(linkIndex, family int) ([]netlink.Neigh, error)
	RouteGet(destination net.IP) ([]netlink.Route, error)
	NeighSet(*netlink.Neigh) error
	Close()
}

// The resolver looks again after a netlink notification, but not more often than
// resolveGap. Without one it looks every resolveEvery, so that the kernel probes
// entries that went stale.
const (
	resolveGap   = 20 * time.Millisecond
	resolveEvery = 5 * time.Second
	resolveSoon  = 500 * time.Millisecond // while a hop is unresolved: ask the kernel again
)

// maxFinds is the number of addresses of Find that are tried at once: what is beyond is dropped, and asked for again by
// those that still want it.
const maxFinds = 1 << 16

// NewKernel returns a resolver for the network namespace of the calling thread. devices
// are the interfaces that frames may leave by; Hop.Dev is an index into them. It needs
// CAP_NET_ADMIN to make the kernel probe neighbours.
func NewKernel(devices []string) (*Kernel, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Kernel{
		devices: devices, known: make([]int, len(devices)), nl: nl, stop: stop,
		wake: make(chan struct{}, 1), done: make(chan struct{}), reported: map[netip.Addr]Hop{},
		finds: Finds{Most: maxFinds}, learnt: make(chan learnt, 128),
	}
	if err := r.subscribe(ctx); err != nil {
		stop()
		nl.Close()
		return nil, err
	}
	go r.resolveLoop(ctx)
	return r, nil
}

// subscribe wakes the loop on every change of routes, neighbours and links.
func (r *Kernel) subscribe(ctx context.Context) error {
	neighs, routes, links := make(chan netlink.NeighUpdate), make(chan netlink.RouteUpdate), make(chan netlink.LinkUpdate)
	if err := netlink.NeighSubscribe(neighs, ctx.Done()); err != nil {
		return fmt.Errorf("watch neighbours: %w", err)
	}
	go wakeLoop(r, neighs)
	if err := netlink.RouteSubscribe(routes, ctx.Done()); err != nil {
		return fmt.Errorf("watch routes: %w", err)
	}
	go wakeLoop(r, routes)
	if err := netlink.LinkSubscribe(links, ctx.Done()); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	go wakeLoop(r, links)
	return nil
}

// wakeLoop wakes the loop for each update until the subscription ends. If the kernel
// ends it, by an overflow of the socket, the loop still looks every resolveEvery.
func wakeLoop[T any](r *Kernel, updates <-chan T) {
	for range updates {
		r.notify()
	}
}

func (r *Kernel) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Watch implements Resolver.
func (r *Kernel) Watch(addrs []netip.Addr, changed func(netip.Addr, Hop)) {
	r.mu.Lock()
	r.addrs, r.changed, r.anew = addrs, changed, true
	r.mu.Unlock()
	r.notify()
}

// Find implements Resolver.
func (r *Kernel) Find(addrs []netip.Addr, found func(netip.Addr, Hop)) {
	r.finds.Add(addrs, found)
	r.notify()
}

// Close implements Resolver.
func (r *Kernel) Close() error {
	r.stop()
	<-r.done
	return nil
}

// resolveLoop resolves all addresses again and again.
func (r *Kernel) resolveLoop(ctx context.Context) {
	defer close(r.done)
	defer r.nl.Close()
	for {
		pause := resolveEvery
		if !r.resolveAll() {
			pause = resolveSoon
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-r.wake:
		case <-t.C:
		}
		t.Stop()
		if !sleep(ctx, resolveGap) { // so that a storm of changes is one
			return
		}
	}
}

// resolveAll reports what changed, and returns whether every next hop that has a route
// is known. What the kernel does not answer stays as it was: hops that were good stay in
// use while interfaces that come and go interrupt its dumps.
func (r *Kernel) resolveAll() bool {
	r.mu.Lock()
	addrs, changed, anew := r.addrs, r.changed, r.anew
	r.anew = false
	r.mu.Unlock()
	view := r.look()
	r.enterLearnt(&view)
	reported, all := map[netip.Addr]Hop{}, !view.stale
	for _, a := range addrs {
		old, known := r.reported[a]
		hop, ok := r.resolve(a, &view)
		if !ok {
			all = false
			if known {
				reported[a] = old
			}
			if known && anew {
				changed(a, old)
			}
			continue
		}
		all = all && hop.State != Unresolved
		if !known || anew || old != hop {
			changed(a, hop)
		}
		reported[a] = hop
	}
	r.reported = reported
	return r.finds.Try(func(a netip.Addr) (Hop, bool) { return r.resolve(a, &view) }) && all
}

// view is the kernel's interfaces and neighbours at one time.
type view struct {
	links  map[int]link
	neighs map[neighborKey]netlink.Neigh
	stale  bool // one of them is of an earlier time, because it could not be read
}

// look returns the present view, with an earlier table in place of one that cannot be read.
func (r *Kernel) look() view {
	stale := false
	if links, err := r.links(); err == nil {
		r.lastLinks = links
	} else {
		stale = true
	}
	if neighs, err := r.neighbors(); err == nil {
		r.lastNeighs = neighs
	} else {
		stale = true
	}
	return view{r.lastLinks, r.lastNeighs, stale}
}

// link describes the egress of an interface: a device, and a tag if the
// interface is a VLAN.
type link struct {
	dev  uint8
	vlan uint16
}

// links returns the interfaces that are in the list of devices, or 802.1Q VLANs on top
// of one, by interface index. The index changes when a device is deleted and made again.
func (r *Kernel) links() (map[int]link, error) {
	list, err := rtnl.Dump(r.nl.LinkList)
	if err != nil {
		return nil, err
	}
	findDevices(r.devices, r.known, list)
	return linksOf(r.known, list), nil
}

// findDevices enters the index of each device. An interface that has been renamed is
// still the device that the driver has open, also where another one has its name now.
func findDevices(devices []string, known []int, list []netlink.Link) {
	byName, exists := map[string]int{}, map[int]bool{}
	for _, l := range list {
		byName[l.Attrs().Name], exists[l.Attrs().Index] = l.Attrs().Index, true
	}
	for i, name := range devices {
		if !exists[known[i]] {
			known[i] = byName[name]
		}
	}
}

func linksOf(known []int, list []netlink.Link) map[int]link {
	m := map[int]link{}
	for i, index := range known {
		if index != 0 {
			m[index] = link{uint8(i), 0}
		}
	}
	for _, l := range list {
		v, ok := l.(*netlink.Vlan)
		if !ok || v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q {
			continue
		}
		if parent, ok := m[v.ParentIndex]; ok && parent.vlan == 0 { // a VLAN in a VLAN would need two tags
			m[v.Index] = link{parent.dev, uint16(v.VlanId)}
		}
	}
	return m
}

// neighborKey is an address on the link of an interface.
type neighborKey struct {
	index int
	addr  netip.Addr
}

// neighbors returns the kernel's neighbour table.
func (r *Kernel) neighbors() (map[neighborKey]netlink.Neigh, error) {
	list, err := rtnl.Dump(func() ([]netlink.Neigh, error) { return r.nl.NeighList(0, unix.AF_UNSPEC) })
	if err != nil {
		return nil, err
	}
	m := make(map[neighborKey]netlink.Neigh, len(list))
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			m[neighborKey{n.LinkIndex, a.Unmap()}] = n
		}
	}
	return m, nil
}

// States of a neighbour entry (RFC 4861 7.3.2). A stale link address may be used, but
// must be probed.
const (
	probed = netlink.NUD_REACHABLE | netlink.NUD_PERMANENT | netlink.NUD_DELAY | netlink.NUD_PROBE
	usable = probed | netlink.NUD_STALE
)

// resolve returns the hop to a; false when the kernel does not say. The kernel probes a
// hop that is not known to be reachable.
func (r *Kernel) resolve(a netip.Addr, v *view) (Hop, bool) {
	routes, err := r.nl.RouteGet(a.AsSlice())
	if err != nil && !unroutable(err) {
		return Hop{}, false
	}
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return Hop{State: NoRoute}, true
	}
	on, ok := v.links[routes[0].LinkIndex]
	if !ok {
		return Hop{State: NoRoute}, !v.stale // it may be newer than the view
	}
	next := neighborKey{routes[0].LinkIndex, a}
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next.addr = gw.Unmap()
	}
	n := v.neighs[next]
	if n.State&probed == 0 {
		r.probe(next)
	}
	if n.State&usable == 0 || len(n.HardwareAddr) != 6 {
		return Hop{Dev: on.dev, VLAN: on.vlan, State: Unresolved}, !v.stale
	}
	return Hop{MAC: [6]byte(n.HardwareAddr), Dev: on.dev, VLAN: on.vlan, State: Ready}, true
}

// unroutable reports whether an error of RouteGet is an answer: there is no route, or one that
// discards (blackhole EINVAL, unreachable EHOSTUNREACH, prohibit EACCES; route(8)). Any other, such as
// ENOBUFS, says nothing of routes.
func unroutable(err error) bool {
	for _, e := range []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.ESRCH, unix.ENETDOWN, unix.ENODEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// probe makes the kernel resolve an address as if it had a packet to send there. The
// error is ignored: the hop stays unresolved, and that is reported.
func (r *Kernel) probe(k neighborKey) {
	_ = r.nl.NeighSet(&netlink.Neigh{
		LinkIndex: k.index, IP: net.IP(k.addr.AsSlice()), State: netlink.NUD_NONE, Flags: netlink.NTF_USE,
	})
}

// sleep waits for d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// KernelAddrs returns the addresses of this machine's interfaces, those of the calling thread's network namespace, and
// the directed broadcasts of their networks. An error is not an answer: a caller that takes it for none would claim the
// machine's own.
func KernelAddrs() (own, broadcasts map[netip.Addr]bool, err error) { return rtnl.Addrs() }

// Broadcast returns the directed broadcast of an IPv4 network; false where it has none.
func Broadcast(p netip.Prefix) (netip.Addr, bool) { return rtnl.Broadcast(p) }

// learnt is a neighbour of which a packet has said where it is.
type learnt struct {
	addr netip.Addr
	hop  Hop
}

// Learn corrects the kernel's entry of a neighbour by a packet to this machine that the kernel has not seen: an ARP
// request or a neighbour solicitation. hop is ready. What the caller reports faster than it can be entered is forgotten.
func (r *Kernel) Learn(a netip.Addr, hop Hop) {
	select {
	case r.learnt <- learnt{a, hop}:
		r.notify()
	default:
	}
}

// enterLearnt enters what Learn has noted since the last time. As the kernel does with requests, it changes entries that are
// there, makes them stale, so that the kernel probes the new address before it trusts it, and leaves alone those that an
// administrator has made (arp_process, ndisc_recv_ns).
func (r *Kernel) enterLearnt(v *view) {
	for {
		select {
		case l := <-r.learnt:
			for index, on := range v.links {
				n, ok := v.neighs[neighborKey{index, l.addr}]
				if on != (link{l.hop.Dev, l.hop.VLAN}) || !ok || n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 || bytes.Equal(n.HardwareAddr, l.hop.MAC[:]) {
					continue
				}
				n.HardwareAddr, n.State, n.Flags = net.HardwareAddr(l.hop.MAC[:]), netlink.NUD_STALE, 0
				if r.nl.NeighSet(&n) == nil {
					v.neighs[neighborKey{index, l.addr}] = n
				}
			}
		default:
			return
		}
	}
}
