package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
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

// ports returns the ports by interface index, which changes when a device comes back.
func (r *KernelResolver) ports() map[int]uint8 {
	m := map[int]uint8{}
	for i, name := range r.devices {
		if link, err := r.nl.LinkByName(name); err == nil {
			m[link.Attrs().Index] = uint8(i)
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
func (r *KernelResolver) resolve(a netip.Addr, ports map[int]uint8, neighs map[onLink]netlink.Neigh) Hop {
	routes, err := r.nl.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return Hop{State: HopNoRoute}
	}
	port, ours := ports[routes[0].LinkIndex]
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
		return Hop{Port: port, State: HopUnresolved}
	}
	return Hop{MAC: [6]byte(n.HardwareAddr), Port: port, State: HopReady}
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
