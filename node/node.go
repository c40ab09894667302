// Package node is the runtime of a process that moves packets, whatever it serves:
// memory, devices, engines, loops, the address table and the steering that follows from
// it, link state, metrics, the control socket and an orderly end. A gateway, a host, a
// bridge, and several of them on the same queues, are services of a node.
//
//	n, err := node.Open(node.Config{Devices: []node.Device{{Name: "eth1"}}, Log: log})
//	n.Add(node.Service{Name: "web", Handlers: handlers, Claims: claims})
//	err = n.Run(ctx) // until ctx ends
//	err = n.Close()
//
// Packets come from the devices' queues, one loop for each, and go to the service whose
// claim names them (stack.AddressTable). What no service claims stays with the kernel,
// which keeps its own addresses, ssh and routing on the same interface.
//
// A node does not know what its services are: it imports neither gateway nor socket.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/controlsocket"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// Config describes a node. Devices is required. Nothing here names a service: what a
// process serves is added by Node.Add.
type Config struct {
	Devices []Device

	// WithoutDevices makes a node of no devices and no loops: its services run beside it (Service.Background), and it has the
	// metrics, the control socket and the end in common with others.
	WithoutDevices bool

	Loops int           // one for each queue of every device; QueuesAuto is as many as the devices receive on
	CPUs  CPUs          // that loops are bound to
	Spin  time.Duration // how long a loop polls in vain before it sleeps; 0 as stack.Config.Spin
	Burst int           // packets that a loop takes at once; 0 is stack.DefaultBurst, or more for devices with large packets

	// ExtraProcessor gives the process one processor (GOMAXPROCS) more for each loop, as
	// stack.Config.ExtraProcessor.
	ExtraProcessor bool

	// OpenDevice opens the devices instead of device.Open: with drivers that package
	// device does not know, such as memory, or with wrappers around them. It may be
	// nil. The pools are lent until the device is closed.
	OpenDevice func(c Device, pools []*ring.Pool) (*device.Device, error)

	// Engine is "cpu" (and ""), "cuda" or "auto": what parses headers. Ops is the union
	// of what the services read from descriptors: one engine for each loop serves them
	// all, and each operation costs every packet.
	Engine string
	Ops    gpukern.Ops
	GPU    cuda.Options

	// SearchOnGPU has engines with a GPU search payloads for Literals (gpukern.OpLiterals; Node.LoadLiterals replaces them).
	// Without a GPU nothing is searched: who reads Batch.Matches searches what it needs, which costs a core less than
	// to search every packet.
	SearchOnGPU bool
	Literals    *literal.Set

	Log        *slog.Logger  // of changes; nil discards. A call of it that blocks delays what it reports, and the end
	LogDropped func() uint64 // records that the log has dropped so far, for the metrics; nil: it drops none
	Build      metrics.Build

	Metrics    string                               // address of the HTTP server for metrics, such as "127.0.0.1:9100"; "" is none
	Exposition func(*metrics.Registry) http.Handler // renders them; required with Metrics

	Pages        string                   // address of the HTTP server of PagesHandler; "" is none
	PagesHandler func(*Node) http.Handler // required with Pages

	Control       string // path of the control socket; "" is none
	ControlInUse  error  // required with Control: Open wraps it if a process listens there
	ControlServer func(*Node) http.Handler

	Inherited []Socket // that another process has passed, see Node.Sockets. Open takes those that it needs

	// BeforeDevices is called when the memory is there and the devices are to be opened, which another process may have until it
	// returns. nil: they are free. With an error nothing is opened.
	BeforeDevices func() error
}

// Node is an open node. Its methods may be called from any goroutine, but for Add and
// Start, which come before Run.
//
// It owns the arena, the pools, the devices, the engines and the loops, in this order,
// and closes them in the reverse one: a device returns its frames to the pools, and
// the audit of the arena then finds every frame free, or reports the one that is lost.
type Node struct {
	cfg    Config
	log    *slog.Logger
	table  *stack.AddressTable
	arena  *ring.Arena
	pools  []*ring.Pool
	loops  []*stack.Loop
	cpus   [][]int // by loop
	opener *choose.Opener

	takesAll []bool // by device: every packet is a service's
	engines  []gpukern.Engine

	netlink     *netlink.Handle
	linkUpdates <-chan netlink.LinkUpdate // nil without

	scrapes   scrapes // of the metrics
	pages     scrapes
	control   *controlsocket.Listener // nil without
	started   time.Time
	checksums checksumWatch                              // belongs to watch
	losses    lossWatch                                  // the same
	recovery  []recovery                                 // by device; belongs to watch
	namespace *os.File                                   // the network namespace of the devices; nil is the process's
	opened    func(i int, dev *device.Device, index int) // see OnOpened; nil: nothing
	connected bool                                       // Start has given the loops their handlers
	draining  atomic.Bool                                // services finish what they have begun
	quit      chan struct{}                              // Stop has been called
	ended     chan struct{}                              // the loops have ended
	closed    chan struct{}                              // Close has been called

	closing  sync.Once
	closeErr error // result of Close

	suspending sync.Mutex // is held while devices are watched, suspended or resumed
	suspended  bool       // see SuspendDevices

	updating sync.Mutex // one Update at a time; taken before mu

	mu         sync.Mutex // guards all below; not held while a service is called, which may call the node
	services   []Service
	devices    []*device.Device // written by Open and watch
	earlier    [][]pmd.Stats    // by device and queue: of drivers that it had before
	joining    []*device.Device // that some loops have and others may not
	steered    []pmd.Rule
	inSoftware map[*device.Device]bool // devices for which logSteering has
	inSync     bool                    // the table and the steering are those of the last claims
	links      []Link
	offload    bool     // devices pass large packets whole
	asked      struct { // of SetOffload
		large bool
		join  stack.GRO
	}
}

// shutdownLimit bounds how long services may hold the process unless they say otherwise (Service.ShutdownLimit): a service manager sends
// SIGKILL after 90 s by default, and operators interrupt earlier. It bounds the
// time between the end of Run's context and that of the loops.
const shutdownLimit = 5 * time.Second

// Open opens everything that the configuration names. No packet moves and nothing is
// steered before Run.
func Open(cfg Config) (*Node, error) {
	n := &Node{
		cfg: cfg, log: cfg.Log, table: stack.NewAddressTable(),
		quit: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{}), started: time.Now(),
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.scrapes.kind, n.scrapes.most, n.scrapes.path = MetricsSocket, maxScrapes, "/metrics"
	if cfg.Exposition != nil {
		n.scrapes.handler = func() http.Handler { return cfg.Exposition(n.Registry()) }
	}
	n.pages.kind, n.pages.most, n.pages.path = PagesSocket, maxPages, "/"
	if cfg.PagesHandler != nil {
		n.pages.handler = func() http.Handler { return cfg.PagesHandler(n) }
	}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// open takes what can be refused, such as addresses to listen on, before it touches an
// interface: a start that fails must not have taken a packet from the kernel.
func (n *Node) open() error {
	steps := []func() error{
		n.findDevices, n.saveNamespace, n.openNetlink, n.setQueues, n.placeLoops, n.openEngine, n.listenMetrics, n.listenPages, n.listenControl,
		n.openDevices, n.openLoops,
	}
	if n.cfg.WithoutDevices {
		steps = []func() error{n.listenMetrics, n.listenPages, n.listenControl}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// listenMetrics opens the port of the metrics.
func (n *Node) listenMetrics() error { return n.SetMetrics(n.cfg.Metrics) }

func (n *Node) listenPages() error { return n.SetPages(n.cfg.Pages) }

// listenControl takes the control socket, which also keeps a second process with the
// same configuration from taking the devices.
func (n *Node) listenControl() (err error) {
	if n.cfg.Control == "" {
		return nil
	}
	if f := n.inherit(ControlSocket, n.cfg.Control); f != nil {
		n.control, err = controlsocket.FileListener(f)
	} else {
		n.control, err = controlsocket.Listen(n.cfg.Control, n.cfg.ControlInUse)
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// openLoops makes loop i over queue i of every device, and joins them: a flow's packets
// may come by any queue.
func (n *Node) openLoops() error {
	for i, pool := range n.pools {
		engine, err := n.addEngine()
		if err != nil {
			return err
		}
		cfg := stack.Config{
			Pool: pool, Engine: engine, Burst: n.burst(), Spin: n.cfg.Spin, ExtraProcessor: n.cfg.ExtraProcessor,
			Replaceable: n.mayRecover(),
		}
		for _, dev := range n.devices {
			cfg.Devices = append(cfg.Devices, dev.Queues[i])
		}
		if i < len(n.cpus) {
			cfg.Affinity = n.cpus[i]
		}
		l, err := stack.NewLoop(cfg)
		if err != nil {
			return err
		}
		n.loops = append(n.loops, l)
	}
	if len(n.loops) > 1 {
		_, err := stack.Join(n.loops...)
		return err
	}
	return nil
}

// connect gives each loop its handler: that of the only service, or a dispatcher over
// all. A dispatcher in front of one service would cost each packet a look-up and find
// the same answer.
func (n *Node) connect() error {
	if len(n.services) == 0 {
		return errors.New("node: there is no service")
	}
	for i, l := range n.loops {
		if len(n.services) == 1 {
			l.SetHandler(n.services[0].Handlers[i])
			continue
		}
		handlers := make([]stack.Handler, len(n.services))
		for k, s := range n.services {
			handlers[k] = s.Handlers[i]
		}
		d, err := stack.NewDispatcher(n.table, handlers...)
		if err != nil {
			return err
		}
		n.setFallback(d)
		l.SetHandler(d)
	}
	return nil
}

// setFallback names the service that gets unclaimed packets. Only a device that takes
// every packet has any: from all others the kernel keeps them.
func (n *Node) setFallback(d *stack.Dispatcher) {
	for k, s := range n.services {
		if !s.Fallback {
			continue
		}
		d.SetLoopback(stack.ToHandler(k))
		for dev, all := range n.takesAll {
			if all {
				d.SetFallback(uint8(dev), stack.ToHandler(k))
			}
		}
	}
}

// Start is apart from Run for programs that answer "started" only once the packets are
// theirs, and then run the node elsewhere. It installs the services and steers their
// packets to the devices' queues, which hold them until Run.
func (n *Node) Start() error {
	if err := n.connect(); err != nil {
		return err
	}
	n.connected = true
	if n.cfg.WithoutDevices {
		n.started = time.Now()
		return nil
	}
	n.watchLinks()
	n.started = time.Now()
	return n.Update()
}

// Run moves packets until ctx ends, Stop is called or no device is left. It calls Start
// unless that has been done. When it returns every packet is accounted for and the
// counters are final. A device that is lost is logged; the others go on.
func (n *Node) Run(ctx context.Context) error {
	if !n.connected {
		if err := n.Start(); err != nil {
			return err
		}
	}
	// The loops outlive ctx by as long as the services take to finish: their last
	// packets, such as the FIN of a connection or the release of a DHCP lease, leave by
	// the loops.
	loopCtx, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	// What runs beside the loops ends with ctx, ahead of them.
	background, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	run := func(f func(context.Context)) { all.Go(func() { f(background) }) }
	if !n.cfg.WithoutDevices {
		run(n.watch)
	}
	all.Go(func() { n.pages.serveUntil(loopCtx, n) })
	all.Go(func() { n.scrapes.serveUntil(loopCtx, n) }) // also while services finish: /readyz reports that
	if n.control != nil && n.cfg.ControlServer != nil {
		run(func(ctx context.Context) {
			controlsocket.Serve(ctx, n.control, n.cfg.ControlServer(n), n.log, "control")
		})
	}
	for _, s := range n.services {
		if s.Background != nil {
			run(s.Background)
		}
	}
	all.Go(func() {
		select {
		case <-background.Done():
		case <-n.quit:
		}
		n.shutdown()
		stopLoops()
	})
	err := n.runLoops(loopCtx)
	close(n.ended)
	stop()
	all.Wait()
	return err
}

// runLoops runs the loops on threads of their own, or as goroutines where other
// goroutines enter them. The first saves a switch of goroutines for each wake-up; the
// second lets a socket call do its work in place (docs/design/008-transport.md).
func (n *Node) runLoops(ctx context.Context) error {
	if n.cfg.WithoutDevices {
		<-ctx.Done()
		return nil
	}
	for _, s := range n.services {
		if s.Entered {
			return stack.ServeAll(ctx, n.loops...)
		}
	}
	return stack.RunAll(ctx, n.loops...)
}

// shutdown lets the services finish what they have begun, all at once and within
// shutdownLimit, or the longest that one of them wants.
func (n *Node) shutdown() {
	n.draining.Store(true)
	limit := shutdownLimit
	for _, s := range n.services {
		if s.ShutdownLimit != nil {
			limit = max(limit, s.ShutdownLimit())
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, s := range n.services {
			if s.Shutdown != nil {
				all.Go(s.Shutdown)
			}
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-n.ended:
	case <-time.After(limit):
		n.log.Warn("shutdown", "error", "services have not finished in time", "limit", limit.String())
	}
}

// Stop ends Run as the end of its context does. It may be called before Run, and more
// than once.
func (n *Node) Stop() {
	select {
	case n.quit <- struct{}{}:
	default: // it has been asked before
	}
}

// Ended returns a channel that is closed when the loops have ended. From then on no
// service is called for a packet, and the counters do not change.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// Started is for uptimes. It returns when the node began to serve.
func (n *Node) Started() time.Time { return n.started }

// Loops returns the loops, in the order of the queues, for those who make handlers for
// them. They belong to the node: only it runs and closes them.
func (n *Node) Loops() []*stack.Loop { return n.loops }

// Arena borrows the memory of all loops. It is valid until Close.
func (n *Node) Arena() *ring.Arena { return n.arena }

// OnLoop is for requests that read the tables of a loop, which have no locks: it runs f
// in loop i between two iterations, and reports whether it has run: a loop that has
// ended runs nothing.
func (n *Node) OnLoop(i int, f func()) bool {
	done := make(chan struct{})
	for !n.loops[i].Do(func() { f(); close(done) }) {
		select {
		case <-n.ended:
			return false
		case <-time.After(time.Millisecond): // its command queue is full
		}
	}
	select {
	case <-done:
		return true
	case <-n.ended:
		return false
	}
}
