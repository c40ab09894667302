package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/statesync"
	"github.com/millrace/millrace/node/nexthop"
)

// Errors of the gateway.
var (
	ErrClosed  = errors.New("gateway is closed")
	ErrRestart = errors.New("the change needs a restart")

	ErrUnknownService = errors.New("unknown service")
	ErrUnknownBackend = errors.New("unknown backend")
	ErrLastBackend    = errors.New("it is the last backend")
)

// Options hold settings that are not in the configuration file.
type Options struct {
	Devices  []datapath.Device // as all loops have them; required
	Resolver nexthop.Resolver  // of the next hops to backends; required, closed by Close
	Dialer   health.Dialer     // of health checks; nil is the kernel's stack
	// OnPortsShort is called at most once in a minute with the SNAT addresses whose ports are nearly used up; as OnEvent.
	OnPortsShort func([]SNATStatus)
	OnPeer       func(statesync.Event) // called when a stream to or from the other gateway comes up or goes down; may be nil
	// Policy returns the number of an inspection policy by its name, for datapath.Service.Inspection; nil: nothing is inspected.
	Policy func(name string) uint8
	// Neighbor is called with the sender of each ARP request and neighbour solicitation that the loops have answered, which the
	// kernel has not seen; nil: not reported.
	Neighbor func(netip.Addr, nexthop.Hop)

	// Inherited are the states of backends in the process that this one replaces, of which Down counts here; see Restore.
	Inherited []BackendState

	// SyncListener is the socket at sync.listen of the process that this one replaces; nil without one. Open takes it.
	SyncListener net.Listener

	// KernelAddrs reads the addresses of the kernel; nil is nexthop.KernelAddrs. No packet from outside may have one as its source.
	KernelAddrs func() (own, broadcasts map[netip.Addr]bool, err error)

	// OnAvailability is called when AvailabilityOf may return something else, as OnEvent; may be nil.
	OnAvailability func()

	OnEvent func(Event) // called on changes, from any goroutine, with a lock held: it must not call the gateway; may be nil
}

// Event is a change of a backend.
type Event struct {
	Service string
	Backend string
	Address config.AddrPorts
	What    string // "healthy" or "unhealthy" by its checks, "ejected" or "returned" by clients' connections; the state of the hop: "ready", "unresolved", "no route"; a State, "removed" or "weight"
	Cause   error  // why, where that is known
	Why     string // of states and weights: what changed it, such as "operator" or "configuration"
	Weight  int    // with "weight": the new one
}

// Gateway is the L4 load balancer: the handlers of its loops and what they share. Its methods may
// be called from any goroutine.
type Gateway struct {
	opt         Options
	ports       config.PortRange // of SNAT addresses
	peer        *statesync.Peer  // nil: none
	synced      *syncTable       // the same
	peerAwaited chan struct{}    // see PeerAwaited
	answers     *answering       // nil: always
	snap        atomic.Pointer[datapath.Snapshot]
	handlers    []*datapath.Handler

	reload sync.Mutex // one Reload at a time, so that the resolver watches for the last

	mu    sync.Mutex // guards all below; never taken by a loop
	cfg   *config.Config
	reg   *registry
	pools datapath.PoolCache

	services  []*serviceState            // of services, by number
	departed  serviceSums                // of services while they were not listed, until they were, or their numbers were released
	endpoints []endpointState            // of backends, by number
	wanted    map[uint32]*config.Service // while a snapshot is built: services that change
	indexed   []netip.Addr               // SNAT addresses of the last index
	round     int                        // reloads so far
	lists     *config.SourceTables       // of the last snapshot

	unreleased bool // a backend that is gone from the configuration has its number still

	planned map[uint32]time.Time // services that time alone will change
	alarm   time.Time            // when timer runs; zero is never
	timer   *time.Timer

	dirty  map[netip.Addr]nexthop.Hop // hops that changed and are not in the snapshot yet: with those of before
	held   bool                       // they wait for flushHops
	window time.Time                  // when burst began to count changes of hops
	burst  int
	down   map[uint32]bool // backends that fail their checks
	cut    map[uint32]bool // backends that a reload removed, with `removed: drop`
	hops   map[netip.Addr]nexthop.Hop
	own    ownAddrs
	closed bool

	portsWarned time.Time // when OnPortsShort was called

	clientsAsked chan struct{} // a loop asks for the way to clients

	checks    *health.Checker
	detectors map[poolKey]*outlierDetector
	ejected   map[uint32]*ejection
	wake      chan struct{}      // the checker has something
	stop      context.CancelFunc // of watch
	watched   sync.WaitGroup
}

// Open starts a gateway with a checked configuration: its health checks, the search for next hops,
// and one handler per loop, which the caller runs. A configuration without devices has no services either, and no handlers.
func Open(c *config.Config, opt Options) (*Gateway, error) {
	if len(opt.Devices) == 0 && len(c.Devices) > 0 || len(opt.Devices) > 255 || opt.Resolver == nil {
		return nil, fmt.Errorf("gateway: 1 to 255 ports and a resolver are required")
	}
	if err := c.ReadLists(); err != nil {
		return nil, err
	}
	loops := c.Loops()
	if loops == config.QueuesAuto && len(c.Devices) > 0 {
		return nil, fmt.Errorf("gateway: `queues: auto` is to be settled by Config.SetQueues before")
	}
	if len(c.SNAT) > 0 && c.SNATPorts.Size() < loops*c.Gateways() {
		return nil, fmt.Errorf("gateway: snat_ports has %d ports for %d loops of %d gateways", c.SNATPorts.Size(), loops, c.Gateways())
	}
	g := &Gateway{
		opt: opt, cfg: c, ports: c.SNATPorts,
		reg:    newRegistry(loops),
		wanted: map[uint32]*config.Service{}, planned: map[uint32]time.Time{}, dirty: map[netip.Addr]nexthop.Hop{},
		down: map[uint32]bool{}, cut: map[uint32]bool{}, hops: map[netip.Addr]nexthop.Hop{},
		ejected: map[uint32]*ejection{}, wake: make(chan struct{}, 1), clientsAsked: make(chan struct{}, 1),
	}
	if c.Sync != nil && c.Sync.Role != nil {
		g.answers = new(answering)
	}
	g.own = ownAddrs{map[netip.Addr]bool{}, map[netip.Addr]bool{}}
	g.kernelAddrs()
	g.checks = g.newChecker()
	g.snap.Store(g.build(&datapath.Snapshot{Devices: slices.Clone(opt.Devices), HoldResets: c.Sync != nil}, c))
	for i := range loops {
		o := handlerOptions(c, i)
		if g.answers != nil {
			o.Active = g.answers.now
		}
		h := datapath.New(o, &g.snap)
		h.ResolveClients(g.askForClients)
		if opt.Neighbor != nil {
			h.ReportSenders(g.askForClients)
		}
		g.handlers = append(g.handlers, h)
	}
	datapath.Join(g.handlers)
	if err := g.openSync(c); err != nil {
		g.checks.Close()
		return nil, fmt.Errorf("listen for the peer: %w", err)
	}
	g.mu.Lock()
	g.startChecks()
	g.startPassive()
	addrs := g.backendAddrs(g.snap.Load())
	g.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.watched.Go(func() { g.watch(ctx) })
	g.watchHops(addrs)
	return g, nil
}

// askForClients wakes ResolveClients. A loop calls it.
func (g *Gateway) askForClients() {
	select {
	case g.clientsAsked <- struct{}{}:
	default: // it is awake already
	}
}

func handlerOptions(c *config.Config, loop int) datapath.Options {
	o := datapath.Options{
		Loop: loop, Loops: c.Loops(), Table: c.Table.Size, HalfOpen: c.Table.HalfOpen, Fragments: c.Table.Fragments,
		SNATPorts: datapath.PortRange(c.SNATPorts), Gateways: c.Gateways(),
	}
	if c.Sync != nil {
		o.Gateway = c.Sync.Index
	}
	return o
}

// Handlers returns the handler of each loop.
func (g *Gateway) Handlers() []*datapath.Handler { return g.handlers }

// Reload replaces the configuration. Connections keep their backends, also those that the new
// configuration lacks, unless their service has `removed: drop`; new connections follow the new
// configuration. ErrRestart is returned, and the old configuration stays, where config.NeedsRestart names a key.
func (g *Gateway) Reload(c *config.Config) error {
	g.reload.Lock()
	defer g.reload.Unlock()
	if err := c.ReadLists(); err != nil {
		return err
	}
	g.mu.Lock()
	if err := g.mayReload(c); err != nil {
		g.mu.Unlock()
		return err
	}
	g.release() // so that it serves this reload
	g.cfg = c
	g.forgetHealth(c)
	g.snap.Store(g.build(g.snap.Load(), c))
	g.startChecks()
	g.startPassive()
	addrs := g.backendAddrs(g.snap.Load())
	g.mu.Unlock()
	g.watchHops(addrs)
	return nil
}

// CheckReload returns the error that Reload would, and changes nothing.
func (g *Gateway) CheckReload(c *config.Config) error {
	if err := c.ReadLists(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mayReload(c)
}

// watchHops watches the hops to addrs. Those that the resolver knows at once enter one snapshot together.
func (g *Gateway) watchHops(addrs []netip.Addr) {
	hold := func(on bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = on
		g.flushHops()
	}
	g.forgetHops(addrs)
	hold(true)
	g.opt.Resolver.Watch(addrs, g.hopChanged)
	hold(false)
}

// forgetHops forgets the hops to addresses that are not watched any more and that nothing refers to, each time they have
// become many.
func (g *Gateway) forgetHops(watched []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.hops) < 2*len(watched)+64 {
		return
	}
	keep := make(map[netip.Addr]bool, len(watched))
	for _, a := range watched {
		keep[a] = true
	}
	maps.DeleteFunc(g.hops, func(a netip.Addr, _ nexthop.Hop) bool { return !keep[a] && g.reg.byAddr[a] == nil })
}

// SetDevice changes the link address or the MTU of device i.
func (g *Gateway) SetDevice(i int, p datapath.Device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := *g.snap.Load()
	if s.Devices[i] == p {
		return
	}
	s.Devices = slices.Clone(s.Devices)
	s.Devices[i] = p
	g.snap.Store(&s)
}

// mayReload reports what of c cannot take effect while the loops run.
func (g *Gateway) mayReload(c *config.Config) error {
	if g.closed {
		return ErrClosed
	}
	if key := config.NeedsRestart(g.cfg, c); key != "" {
		return fmt.Errorf("%s: %w", key, ErrRestart)
	}
	return g.rangesFit(c)
}

// nameOfBackend returns what names an address of a backend of a service.
func nameOfBackend(s *config.Service, backend string, at config.AddrPorts) backendName {
	return backendName{s.Name, backend, at.First(), protoOf(s.Protocol)}
}

// backendsOf returns the backends of a service, one for each address.
func backendsOf(s *config.Service) []backendName {
	var list []backendName
	for _, b := range s.Backends {
		for _, ap := range b.Addresses {
			list = append(list, nameOfBackend(s, b.Name, ap))
		}
	}
	return list
}

// hopChanged is called by the resolver.
func (g *Gateway) hopChanged(a netip.Addr, hop nexthop.Hop) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if hop.State == nexthop.Ready && int(hop.Dev) >= len(g.opt.Devices) {
		hop = nexthop.Hop{State: nexthop.NoRoute}
	}
	old, known := g.hops[a]
	if g.closed || known && old == hop || g.reg.byAddr[a] == nil { // nil: no longer watched
		return
	}
	if !known {
		old.State = hopUnknown
	}
	if _, ok := g.dirty[a]; !ok {
		g.dirty[a] = old
	}
	g.hops[a] = hop
	if g.mayFlush(time.Now()) {
		g.flushHops()
	}
}

// hopOf returns what handlers know of a next hop.
func hopOf(h nexthop.Hop) datapath.Hop {
	return datapath.Hop{MAC: h.MAC, VLAN: h.VLAN, Dev: h.Dev, State: datapath.HopState(h.State)}
}

// hopUnknown is the state of a hop that the resolver has not reported yet. No Hop has it.
const hopUnknown nexthop.State = 255

// A resolver that starts reports thousands of hops, one by one. So hopBurst changes in hopWindow are
// entered at once, and more wait for its end.
const (
	hopBurst  = 8
	hopWindow = 50 * time.Millisecond
)

// mayFlush reports whether hops may be entered now; otherwise they will be soon.
func (g *Gateway) mayFlush(now time.Time) bool {
	if now.Sub(g.window) >= hopWindow {
		g.window, g.burst = now, 0
	}
	if g.burst++; g.burst == hopBurst+1 {
		time.AfterFunc(hopWindow, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if !g.closed {
				g.flushHops()
			}
		})
	}
	return g.burst <= hopBurst
}

// flushHops enters the hops that changed, unless more are about to come. The caller holds g.mu.
func (g *Gateway) flushHops() {
	if g.held || len(g.dirty) == 0 {
		return
	}
	s, touched := g.snap.Load().Clone(), map[uint32]bool{}
	s.Endpoints = slices.Clone(s.Endpoints)
	var events []Event
	for a, old := range g.dirty {
		hop := g.hops[a]
		for _, n := range g.reg.byAddr[a] {
			replace(s.Endpoints, n).Hop = hopOf(hop)
			if old.State == hop.State {
				continue
			}
			for _, b := range g.reg.users[n] {
				if s.Backends[b].Configured && s.Backends[b].Endpoint == n {
					touched[s.Backends[b].Service] = true
					events = append(events, g.event(b, hop.State.String(), nil))
				}
			}
		}
	}
	clear(g.dirty)
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Backend, b.Backend), a.Address.Compare(b.Address))
	})
	for _, e := range events {
		g.report(e)
	}
	for id := range touched {
		g.reconcile(s, id, "next hop")
	}
	g.snap.Store(s)
}

func (g *Gateway) report(e Event) {
	if g.opt.OnEvent != nil {
		g.opt.OnEvent(e)
	}
}

// Close ends the health checks and the resolver. The loops have ended before.
func (g *Gateway) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.stop()
	g.checks.Close()
	g.watched.Wait()
	if g.peer != nil {
		_ = g.peer.Close() // Sync may have closed it
	}
	return g.opt.Resolver.Close()
}
