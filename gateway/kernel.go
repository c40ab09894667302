package gateway

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

// KernelResolver finds next hops by the kernel's routes and its neighbour table, and has the kernel
// do ARP and neighbour discovery: its stack lives on beside the drivers, which take only the
// gateway's own addresses from it.
type KernelResolver struct {
	devices []string // by port
	nl      *netlink.Handle
	poke    chan struct{} // something may have changed
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	addrs   []netip.Addr
	changed func(netip.Addr, Hop)

	told map[netip.Addr]Hop // belongs to the loop
}

// The resolver looks again when the kernel tells of a change, but not more often than resolveGap,
// and every resolveEvery without being told, to have the kernel probe entries that went stale.
const (
	resolveGap   = 20 * time.Millisecond
	resolveEvery = 5 * time.Second
	resolveSoon  = 500 * time.Millisecond // while something is unresolved: ask the kernel again
)

// NewKernelResolver returns a resolver for the network namespace of the calling thread. devices are
// the interfaces of the gateway, in the order of its ports. It needs CAP_NET_ADMIN to have
// neighbours probed.
func NewKernelResolver(devices []string) (*KernelResolver, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &KernelResolver{
		devices: devices, nl: nl, stop: stop,
		poke: make(chan struct{}, 1), done: make(chan struct{}), told: map[netip.Addr]Hop{},
	}
	if err := r.subscribe(ctx); err != nil {
		stop()
		nl.Close()
		return nil, err
	}
	go r.resolveLoop(ctx)
	return r, nil
}

// subscribe has every change of routes, neighbours and links poke the loop.
func (r *KernelResolver) subscribe(ctx context.Context) error {
	neighs, routes, links := make(chan netlink.NeighUpdate), make(chan netlink.RouteUpdate), make(chan netlink.LinkUpdate)
	if err := netlink.NeighSubscribe(neighs, ctx.Done()); err != nil {
		return fmt.Errorf("watch neighbours: %w", err)
	}
	go pokeLoop(r, neighs)
	if err := netlink.RouteSubscribe(routes, ctx.Done()); err != nil {
		return fmt.Errorf("watch routes: %w", err)
	}
	go pokeLoop(r, routes)
	if err := netlink.LinkSubscribe(links, ctx.Done()); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	go pokeLoop(r, links)
	return nil
}

// pokeLoop pokes the loop for each update until the subscription ends. Should the kernel end it, by
// an overflow, the loop still looks every resolveEvery.
func pokeLoop[T any](r *KernelResolver, updates <-chan T) {
	for range updates {
		r.wake()
	}
}

func (r *KernelResolver) wake() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Watch implements Resolver.
func (r *KernelResolver) Watch(addrs []netip.Addr, changed func(netip.Addr, Hop)) {
	r.mu.Lock()
	r.addrs, r.changed = addrs, changed
	r.mu.Unlock()
	r.wake()
}

// Close implements Resolver.
func (r *KernelResolver) Close() error {
	r.stop()
	<-r.done
	return nil
}

// resolveLoop resolves all addresses again and again.
func (r *KernelResolver) resolveLoop(ctx context.Context) {
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
		case <-r.poke:
		case <-t.C:
		}
		t.Stop()
		if !sleep(ctx, resolveGap) { // so that a storm of changes is one
			return
		}
	}
}

// resolveAll tells what changed and reports whether every next hop that has a route is known.
func (r *KernelResolver) resolveAll() bool {
	r.mu.Lock()
	addrs, changed := r.addrs, r.changed
	r.mu.Unlock()
	ports, neighs := r.ports(), r.neighbors()
	told, all := map[netip.Addr]Hop{}, true
	for _, a := range addrs {
		hop := r.resolve(a, ports, neighs)
		all = all && hop.State != HopUnresolved
		if old, ok := r.told[a]; !ok || old != hop {
			changed(a, hop)
		}
		told[a] = hop
	}
	r.told = told
	return all
}

// kernelLink is how frames of an interface travel: by a port, and with a tag if the interface is a VLAN's.
type kernelLink struct {
	port uint8
	vlan uint16
}

// ports returns the interfaces that are devices of ours, or 802.1Q VLANs on top of one, by index, which
// changes when a device comes back.
func (r *KernelResolver) ports() map[int]kernelLink {
	links, err := r.nl.LinkList()
	if err != nil {
		return nil // as if there were none: soon again
	}
	return portsOf(r.devices, links)
}

func portsOf(devices []string, links []netlink.Link) map[int]kernelLink {
	m := map[int]kernelLink{}
	for _, l := range links {
		if i := slices.Index(devices, l.Attrs().Name); i >= 0 {
			m[l.Attrs().Index] = kernelLink{uint8(i), 0}
		}
	}
	for _, l := range links {
		v, ok := l.(*netlink.Vlan)
		if !ok || v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q {
			continue
		}
		if on, ours := m[v.ParentIndex]; ours && on.vlan == 0 { // a VLAN in a VLAN would need two tags
			m[v.Index] = kernelLink{on.port, uint16(v.VlanId)}
		}
	}
	return m
}

// onLink is an address on the link of an interface.
type onLink struct {
	index int
	addr  netip.Addr
}

// neighbors returns the kernel's neighbour table.
func (r *KernelResolver) neighbors() map[onLink]netlink.Neigh {
	m := map[onLink]netlink.Neigh{}
	list, err := r.nl.NeighList(0, unix.AF_UNSPEC)
	if err != nil {
		return m // as if none were known: the kernel is asked, and soon again
	}
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok {
			m[onLink{n.LinkIndex, a.Unmap()}] = n
		}
	}
	return m
}

// known are the states of a neighbour whose link address may be used (RFC 4861 7.3.2).
const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT

// resolve returns the hop to a, and has the kernel probe it when it is not known to be reachable.
func (r *KernelResolver) resolve(a netip.Addr, ports map[int]kernelLink, neighs map[onLink]netlink.Neigh) Hop {
	routes, err := r.nl.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return Hop{State: HopNoRoute}
	}
	on, ours := ports[routes[0].LinkIndex]
	if !ours {
		return Hop{State: HopNoRoute}
	}
	next := onLink{routes[0].LinkIndex, a}
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		next.addr = gw.Unmap()
	}
	n := neighs[next]
	if n.State&(netlink.NUD_REACHABLE|netlink.NUD_PERMANENT|netlink.NUD_DELAY|netlink.NUD_PROBE) == 0 {
		r.probe(next)
	}
	if n.State&known == 0 || len(n.HardwareAddr) != 6 {
		return Hop{Port: on.port, VLAN: on.vlan, State: HopUnresolved}
	}
	return Hop{MAC: [6]byte(n.HardwareAddr), Port: on.port, VLAN: on.vlan, State: HopReady}
}

// probe has the kernel resolve an address as if it had a packet to send there. An error is not
// told: the hop stays unresolved, which is.
func (r *KernelResolver) probe(a onLink) {
	_ = r.nl.NeighSet(&netlink.Neigh{
		LinkIndex: a.index, IP: net.IP(a.addr.AsSlice()), State: netlink.NUD_NONE, Flags: netlink.NTF_USE,
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
