package millrace

import (
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// How often next hops are looked up: soon while one is unresolved, since answers take
// less than a millisecond on a link.
const (
	lookupSoon  = 20 * time.Millisecond
	lookupEvery = time.Second
)

// maxFinds is the number of addresses of Find that are tried at once.
const maxFinds = 4096

// NextHops returns a resolver that takes next hops from the routes and neighbours of a
// stack, as nexthop.Kernel takes them from the kernel's. It serves a gateway on devices
// whose every packet the node takes, so that the kernel resolves nothing there. It is
// closed before the stack.
func NextHops(s *socket.Stack) nexthop.Resolver {
	r := &nextHops{host: s.Group().Hosts[0], wake: make(chan struct{}, 1), quit: make(chan struct{}), reported: map[netip.Addr]nexthop.Hop{}, finds: nexthop.Finds{Most: maxFinds}}
	r.running.Go(r.run)
	return r
}

// nextHops implements nexthop.Resolver. One goroutine looks up and reports.
type nextHops struct {
	host    *host.Host // speaks ARP and neighbour discovery for all loops
	wake    chan struct{}
	quit    chan struct{}
	running sync.WaitGroup
	once    sync.Once

	reported map[netip.Addr]nexthop.Hop // owned by run

	mu      sync.Mutex
	addrs   []netip.Addr
	changed func(netip.Addr, nexthop.Hop)
	anew    bool // Watch was called since the last report

	finds nexthop.Finds
}

// Watch implements nexthop.Resolver.
func (r *nextHops) Watch(addrs []netip.Addr, changed func(netip.Addr, nexthop.Hop)) {
	r.mu.Lock()
	r.addrs, r.changed, r.anew = addrs, changed, true
	r.mu.Unlock()
	r.notify()
}

// Find implements nexthop.Resolver.
func (r *nextHops) Find(addrs []netip.Addr, found func(netip.Addr, nexthop.Hop)) {
	r.finds.Add(addrs, found)
	r.notify()
}

func (r *nextHops) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // run has not looked yet
	}
}

// Close implements nexthop.Resolver.
func (r *nextHops) Close() error {
	r.once.Do(func() { close(r.quit) })
	r.running.Wait()
	return nil
}

func (r *nextHops) run() {
	for {
		pause := lookupEvery
		if !r.report() {
			pause = lookupSoon
		}
		t := time.NewTimer(pause)
		select {
		case <-r.quit:
			t.Stop()
			return
		case <-r.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// report reports the hops that changed, and whether every hop that has a route is
// known.
func (r *nextHops) report() bool {
	r.mu.Lock()
	addrs, changed, anew := r.addrs, r.changed, r.anew
	r.anew = false
	r.mu.Unlock()
	all, now := true, make(map[netip.Addr]nexthop.Hop, len(addrs))
	for _, a := range addrs {
		hop := r.lookup(a)
		all = all && hop.State != nexthop.Unresolved
		now[a] = hop
		if old, known := r.reported[a]; !known || anew || old != hop {
			changed(a, hop)
		}
	}
	r.reported = now
	return r.finds.Try(func(a netip.Addr) (nexthop.Hop, bool) { return r.lookup(a), true }) && all
}

// lookup asks the host for the next hop to an address.
func (r *nextHops) lookup(a netip.Addr) nexthop.Hop {
	now := r.host.Enter()
	defer r.host.Exit() // sends what asks for the link address
	p, _ := r.host.IP.Resolve(now, wire.AddrFrom(a))
	switch {
	case p == nil || p.Kind != ip.Unicast || p.Dev == ip.LoopDev:
		return nexthop.Hop{State: nexthop.NoRoute}
	case !p.Resolved:
		return nexthop.Hop{Dev: p.Dev, State: nexthop.Unresolved}
	}
	return nexthop.Hop{MAC: wire.Ethernet(p.Header[:]).Dst(), Dev: p.Dev, State: nexthop.Ready}
}
