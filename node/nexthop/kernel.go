package nexthop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel resolves by the kernel's routes and neighbour table. The kernel does ARP and
// neighbour discovery: its stack keeps running beside the drivers.
type Kernel struct {
	devices []string // by index
	nl      *netlink.Handle
	wake    chan struct{} // something may have changed
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	addrs   []netip.Addr
	changed func(netip.Addr, Hop)

	reported map[netip.Addr]Hop // owned by resolveLoop
}

// The resolver looks again after a netlink notification, but not more often than
// resolveGap. Without one it looks every resolveEvery, so that the kernel probes
// entries that went stale.
const (
	resolveGap   = 20 * time.Millisecond
	resolveEvery = 5 * time.Second
	resolveSoon  = 500 * time.Millisecond // while a hop is unresolved: ask the kernel again
)

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
		devices: devices, nl: nl, stop: stop,
		wake: make(chan struct{}, 1), done: make(chan struct{}), reported: map[netip.Addr]Hop{},
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
	r.addrs, r.changed = addrs, changed
	r.mu.Unlock()
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
// is known.
func (r *Kernel) resolveAll() bool {
	r.mu.Lock()
	addrs, changed := r.addrs, r.changed
	r.mu.Unlock()
	links, neighs := r.links(), r.neighbors()
	reported, all := map[netip.Addr]Hop{}, true
	for _, a := range addrs {
		hop := r.resolve(a, links, neighs)
		all = all && hop.State != Unresolved
		if old, ok := r.reported[a]; !ok || old != hop {
			changed(a, hop)
		}
		reported[a] = hop
	}
	r.reported = reported
	return all
}

// link is how frames of an interface leave: by a device, and with a tag if the
// interface is a VLAN.
type link struct {
	dev  uint8
	vlan uint16
}

// links returns the interfaces that are in the list of devices, or 802.1Q VLANs on top
// of one, by interface index. The index changes when a device comes back.
func (r *Kernel) links() map[int]link {
	list, err := r.nl.LinkList()
	if err != nil {
		return nil // as if there were none; the next look is soon
	}
	return linksOf(r.devices, list)
}

func linksOf(devices []string, list []netlink.Link) map[int]link {
	m := map[int]link{}
	for _, l := range list {
		if i := slices.Index(devices, l.Attrs().Name); i >= 0 {
			m[l.Attrs().Index] = link{uint8(i), 0}
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
func (r *Kernel) neighbors() map[neighborKey]netlink.Neigh {
	m := map[neighborKey]netlink.Neigh{}
	list, err := r.nl.NeighList(0, unix.AF_UNSPEC)
	if err != nil {
		return m // as if none were known; the kernel is asked, and again soon
	}
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			m[neighborKey{n.LinkIndex, a.Unmap()}] = n
		}
	}
	return m
}

// States of a neighbour entry (RFC 4861 7.3.2). A stale link address may be used, but
// must be probed.
const (
	probed = netlink.NUD_REACHABLE | netlink.NUD_PERMANENT | netlink.NUD_DELAY | netlink.NUD_PROBE
	usable = probed | netlink.NUD_STALE
)

// resolve returns the hop to a. The kernel probes it if it is not known to be
// reachable.
func (r *Kernel) resolve(a netip.Addr, links map[int]link, neighs map[neighborKey]netlink.Neigh) Hop {
	routes, err := r.nl.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return Hop{State: NoRoute}
	}
	on, ok := links[routes[0].LinkIndex]
	if !ok {
		return Hop{State: NoRoute}
	}
	next := neighborKey{routes[0].LinkIndex, a}
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next.addr = gw.Unmap()
	}
	n := neighs[next]
	if n.State&probed == 0 {
		r.probe(next)
	}
	if n.State&usable == 0 || len(n.HardwareAddr) != 6 {
		return Hop{Dev: on.dev, VLAN: on.vlan, State: Unresolved}
	}
	return Hop{MAC: [6]byte(n.HardwareAddr), Dev: on.dev, VLAN: on.vlan, State: Ready}
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

// KernelAddrs returns the addresses of this machine's interfaces. Where they cannot be read none is
// known, as on a machine that has none. They are those of the calling thread's network namespace.
func KernelAddrs() map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			set[p.Addr()] = true
		}
	}
	return set
}
