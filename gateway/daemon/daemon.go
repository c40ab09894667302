// Package daemon runs a gateway as a service of a node: it turns the configuration file into that of the
// node, follows the kernel's routes and neighbours, announces addresses, opens the workers of listeners, reloads,
// and answers the control socket.
//
//	d, err := daemon.Open(file, daemon.Options{Log: log})
//	err = d.Run(ctx) // until ctx ends
//	fmt.Print(d.Summary())
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/gateway/upgrade"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/heapfloor"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/l4/rolelink"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// engineOps returns the operations of the engine that the gateway uses. Of a host with several loops the hash names the loop of a flow.
func engineOps(cfg *config.Config) gpukern.Ops {
	ops := gpukern.OpParse | gpukern.OpChecksum
	if cfg.Stack == config.StackDevices {
		ops |= gpukern.OpHash
	}
	return ops
}

// Options hold settings that are not in the configuration file.
type Options struct {
	Log        *slog.Logger // of changes; required. Where it blocks, records of backends wait and the gateway goes on
	Build      metrics.Build
	LogDropped func() uint64 // see node.Config

	// Config makes the configuration, at the start and for each reload, in place of reading the file; nil reads it.
	Config func() (*config.Config, error)

	Metrics func(*metrics.Registry) http.Handler // serves the metrics where the configuration has an address for them
	Admin   bool                                 // serve the control socket that the configuration names
	Engine  string                               // instead of the configuration's engine; "" is that one

	ExtraProcessor bool // also where the configuration does not say so
	GPU            cuda.Options

	// Firewall reads rules of web application firewalls; nil: the program has no engine for them.
	Firewall waf.Compiler

	// Predecessor is the process that this one replaces, nil for none. Open takes it.
	Predecessor *upgrade.Predecessor
	// Program returns the command line of this gateway, with another configuration file unless that is "". nil: it cannot be upgraded.
	Program func(file string) upgrade.Program
	// Notify reports a state of sd_notify(3) to the service manager; nil: there is none.
	Notify func(state string) error
}

// Daemon is a gateway on a node.
type Daemon struct {
	file string
	opt  Options
	node *node.Node
	gate *l4control.Gateway

	workers *l7control.Set   // nil without listeners
	floor   *heapfloor.Floor // while there are workers
	host    *socket.Stack    // whose connections they have with `stack: devices`; nil otherwise

	before     prefilters // of the devices: those of defence and flows
	flows      kernelFlows
	inspection *inspection.Inspector // nil without services
	defence    *defence.Defence      // nil: none

	defended []string               // devices with the defence
	drives   atomic.Pointer[drives] // what the gateway has the defence do

	role       *rolelink.Runner             // nil: none
	watched    atomic.Pointer[[]netip.Addr] // sync.role.watch
	roles      roles                        // how the role goes from one process to the next
	roleLeft   chan struct{}                // leaveRole has been called
	roleSteer  chan struct{}                // asks steerRole
	roleEvents chan rolelink.Event          // for logRole

	announce  chan struct{} // asks announceLoop
	announcer announcer
	events    *eventLog // changes of backends that are to be logged

	upgrading upgrading
	looks     looks
	takeover  takeover

	reloading sync.Mutex     // one Reload at a time, so that the last file read is the one in use; and none beside Close
	cfg       *config.Config // in use; guarded by reloading

	mu     sync.Mutex // guards reload: scrapes and requests read it
	reload reload
}

// reload is the result of the last reload; the start counts as one.
type reload struct {
	err error     // why the last one was rejected; nil when it was not
	at  time.Time // of the last that succeeded
}

// Open reads the configuration and opens everything that it names. A mistake in the file is a
// *config.Error; nothing is opened then.
func Open(file string, opt Options) (*Daemon, error) {
	d := newDaemon(file, opt)
	cfg, err := d.read()
	if err == nil {
		err = d.readState()
	}
	if err == nil {
		err = d.open(cfg)
	}
	if err := d.takeOver(err); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func newDaemon(file string, opt Options) *Daemon {
	d := &Daemon{file: file, opt: opt, announce: make(chan struct{}, 1), roleLeft: make(chan struct{}), roleSteer: make(chan struct{}, 1), roleEvents: make(chan rolelink.Event, 64)}
	d.announcer.open()
	d.opt.Log = slog.New(d.looks.recent.Handler(opt.Log.Handler()))
	d.events = newEventLog(d.opt.Log)
	d.upgrading.open(opt.Predecessor)
	return d
}

func (d *Daemon) open(cfg *config.Config) (err error) {
	if err := d.openInspection(cfg); err != nil {
		return err
	}
	d.useSettings(cfg)
	c := d.nodeConfig(cfg)
	c.Literals = d.inspection.Literals()
	if d.opt.Predecessor != nil {
		c.BeforeDevices = func() error { return d.beforeDevices(cfg) }
	}
	if d.node, err = node.Open(c); err != nil {
		return err
	}
	cfg.SetQueues(len(d.node.Loops()))
	d.inspection.SetLoops(len(d.node.Loops()))
	if err := d.openGateway(cfg); err != nil {
		return err
	}
	if _, err := d.node.SetOffload(!tunnels(cfg), joins(cfg)); err != nil {
		return err
	}
	d.reload.at = time.Now()
	return d.node.Start()
}

// errInUse is the error of Open where another gateway has the admin socket.
var errInUse = errors.New(`a gateway is running there (give this one another socket in admin.socket, or "")`)

// nodeConfig is the node that a configuration describes.
func (d *Daemon) nodeConfig(cfg *config.Config) node.Config {
	c := node.Config{
		WithoutDevices: len(cfg.Devices) == 0,
		Loops:          cfg.Loops(), CPUs: node.CPUs(cfg.CPUs), Spin: cfg.Spin, ExtraProcessor: d.opt.ExtraProcessor || cfg.ExtraProcessor,
		Engine: d.engine(cfg), Ops: engineOps(cfg), GPU: d.opt.GPU,
		SearchOnGPU: d.searchesOnGPU(cfg),
		Log:         d.opt.Log, LogDropped: d.opt.LogDropped, Build: d.opt.Build, Metrics: cfg.Metrics.Listen, Exposition: d.opt.Metrics,
		Pages: cfg.Admin.Listen, PagesHandler: func(*node.Node) http.Handler { return d.dashboardHandler() },
	}
	for _, dev := range cfg.Devices {
		c.Devices = append(c.Devices, node.Device{Name: dev.Name, Driver: device.Driver(dev.Driver), Mode: dev.Mode, Ring: dev.Ring})
	}
	if d.opt.Admin {
		c.Inherited = d.inheritedSockets()
		c.Control = cfg.Admin.Socket
		c.ControlInUse = errInUse
		c.ControlServer = func(*node.Node) http.Handler { return d.adminHandler() }
	}
	return c
}

// openGateway makes the L4 gateway, programs and L7 workers of the configuration, and adds them to the node.
func (d *Daemon) openGateway(cfg *config.Config) error {
	devices, names := make([]datapath.Device, len(cfg.Devices)), make([]string, len(cfg.Devices))
	for i, l := range d.node.Links() {
		devices[i], names[i] = datapath.Device{Name: l.Name, MAC: l.MAC, MTU: l.MTU}, devargs.Kernel(l.Name)
	}
	resolver, learn, err := resolverOf(names)
	if err != nil {
		return err
	}
	if d.gate, err = l4control.Open(cfg, l4control.Options{Devices: devices, Resolver: resolver, Policy: d.inspection.Number, OnEvent: d.events.add, OnPortsShort: d.events.addPorts, OnPeer: d.peerChanged, OnAvailability: d.wakeRoutes, Neighbor: learn, Inherited: d.takeover.state.Services, SyncListener: d.roles.sync}); err != nil {
		return errors.Join(err, resolver.Close())
	}
	d.cfg = cfg
	d.announcer.defaults.Store(cfg.BGP)
	d.announcer.listeners.Store(listenersOf(cfg))
	if err := d.openRole(cfg); err != nil {
		return err
	}
	d.gateOpened()
	if cfg.Defence != nil { // another process may have its program at the devices
		if err := d.beforeDevices(cfg); err != nil {
			return err
		}
	}
	if err := d.openPrograms(cfg); err != nil {
		return err
	}
	d.inheritVerdicts()
	if d.workers == nil { // it is not open yet
		if err := d.openWorkers(cfg); err != nil {
			return err
		}
	}
	if err := d.inheritConnections(); err != nil {
		return err
	}
	return d.node.Add(d.service())
}

// resolverOf returns what finds the next hops over devices, and what takes the neighbours that packets of the gateway name.
func resolverOf(devices []string) (nexthop.Resolver, func(netip.Addr, nexthop.Hop), error) {
	if len(devices) == 0 {
		return noHops{}, nil, nil
	}
	k, err := nexthop.NewKernel(devices)
	if err != nil {
		return nil, nil, err
	}
	return k, k.Learn, nil
}

// service is the gateway as the node serves it.
func (d *Daemon) service() node.Service {
	handlers := make([]stack.Handler, len(d.gate.Handlers()))
	for i, h := range d.gate.Handlers() {
		h.SetOutput(d.node.Loops()[i].Output())
		h.SetInspector(d.inspection.Loop(i).Inspect)
		if d.flows.table != nil {
			h.SetForwarder(d.flows.table.Loop(i))
		}
		if d.defence != nil {
			h.OnLimited(d.limitReporter())
		}
		handlers[i] = h
	}
	return node.Service{
		Name: "gateway", Handlers: handlers,
		Claims:      func() []pmd.Rule { return Rules(d.gate.Steering()) },
		LinkChanged: d.linkChanged,
		Metrics:     d.writeMetrics,
		Shutdown:    d.shutdown,

		ShutdownLimit: d.shutdownLimit,
		Background: func(ctx context.Context) {
			var all sync.WaitGroup
			all.Go(d.runWorkers)
			all.Go(d.serving)
			if d.defence != nil {
				all.Go(func() { d.defence.Run(ctx) })
			}
			all.Go(func() { d.runBGP(ctx) })
			if len(handlers) > 0 {
				all.Go(func() { d.announceLoop(ctx) })
				if d.role != nil {
					all.Go(func() { d.runRole(ctx) })
				}
				all.Go(func() { d.gate.Sync(ctx, stack.Now, d.node.OnLoop) })
				all.Go(func() { d.gate.ResolveClients(ctx, stack.Now, d.node.OnLoop) })
			}
			d.events.run(ctx)
			all.Wait()
		},
	}
}

// writeMetrics writes what the gateway counts.
func (d *Daemon) writeMetrics(w *metrics.Writer) {
	d.gate.WriteMetrics(w)
	d.flows.writeMetrics(w)
	d.writeInspection(w)
	if d.role != nil {
		d.role.WriteMetrics(w)
	}
	if d.defence != nil {
		d.defence.WriteMetrics(w)
	}
	if d.workers != nil {
		d.workers.WriteMetrics(w)
	}
	if s := d.announcer.speaker.Load(); s != nil && d.announcer.defaults.Load() != nil {
		s.WriteMetrics(w)
	}
	d.writeReload(w)
}

// Run moves packets until ctx ends, Stop is called or no device is left. When it returns every packet is
// accounted for and Summary is final.
func (d *Daemon) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		if d.Replaced() && d.workers != nil {
			l7control.Hurry(d.workers)
		}
	})
	defer stop()
	return d.node.Run(ctx)
}

// Stop ends Run.
func (d *Daemon) Stop() { d.node.Stop() }

// Reload reads the file again, makes it the configuration and returns what has changed. On an error the old one stays.
func (d *Daemon) Reload() (admin.Changes, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if d.Replaced() {
		return admin.Changes{}, conflict(errReplaced)
	}
	changes, err := d.tryReload()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reload.err = err; err == nil {
		d.reload.at = time.Now()
	}
	return changes, err
}

// DryReload returns what Reload would change, and why it would fail. The error is one of the file.
func (d *Daemon) DryReload() (admin.Changes, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	cfg, err := d.load()
	if err != nil {
		return admin.Changes{}, err
	}
	if err := config.JoinErrors(inspection.Check(cfg), l7control.CheckFirewalls(cfg, d.opt.Firewall)); err != nil {
		return admin.Changes{}, err
	}
	changes := admin.NewChanges(config.Diff(d.cfg, cfg))
	switch err := d.gate.CheckReload(cfg); {
	case errors.As(err, new(*config.Error)): // of a list file
		return admin.Changes{}, err
	case err != nil:
		changes.Refused = err.Error()
	}
	return changes, nil
}

// read returns the configuration as it is now.
func (d *Daemon) read() (*config.Config, error) {
	if d.opt.Config != nil {
		return d.opt.Config()
	}
	return config.Load(d.file)
}

// load reads the file again.
func (d *Daemon) load() (*config.Config, error) {
	cfg, err := d.read()
	if err != nil {
		return nil, err
	}
	cfg.SetQueues(len(d.gate.Handlers())) // `queues: auto` is what it was at the start
	return cfg, nil
}

// tryReload reads the file and puts it into effect: inspection first, then listeners, defence and services. After an error everything is as
// it was.
func (d *Daemon) tryReload() (admin.Changes, error) {
	cfg, err := d.load()
	if err != nil {
		return admin.Changes{}, err
	}
	before := d.gate.Announced()
	if err := d.gate.CheckReload(cfg); err != nil {
		return admin.Changes{}, err
	}
	rules, err := d.inspection.Plan(cfg)
	if err != nil {
		return admin.Changes{}, err
	}
	if err := d.serveAt(cfg); err != nil {
		rules.Discard()
		return admin.Changes{}, err
	}
	d.inspection.Swap(rules) // ahead of the listeners and services that name new policies
	if err := d.reloadWorkers(cfg); err != nil {
		rules.Discard()
		return admin.Changes{}, errors.Join(err, d.restoreMetrics())
	}
	if err := d.reloadDefence(cfg); err != nil {
		rules.Discard()
		return admin.Changes{}, errors.Join(err, d.reloadDefence(d.cfg), d.reloadWorkers(d.cfg), d.restoreMetrics())
	}
	if err := d.reconfigure(cfg); err != nil {
		rules.Discard()
		return admin.Changes{}, errors.Join(err, d.reloadDefence(d.cfg), d.reloadWorkers(d.cfg), d.restoreMetrics())
	}
	if err := d.node.Update(); err != nil { // a driver does not take the rules, such as AF_PACKET very many addresses
		rules.Discard()
		return admin.Changes{}, errors.Join(err, d.restore())
	}
	d.loadLiterals()
	if err := d.inspection.Finish(rules); err != nil {
		d.opt.Log.Error("inspection", "error", err.Error())
	}
	d.logFits()
	changes := admin.NewChanges(config.Diff(d.cfg, cfg))
	d.cfg = cfg
	d.useSettings(cfg)
	d.reloadBGP()
	if d.role != nil {
		d.watched.Store(&cfg.Sync.Role.Watch)
		d.role.Configure(roleOf(cfg.Sync))
		d.role.AddrsChanged()
	}
	for _, a := range d.gate.Announced() {
		if !slices.Contains(before, a) {
			d.Announce() // once its packets are steered here
			break
		}
	}
	return changes, nil
}

// restoreMetrics serves metrics and dashboard where the configuration in use has them.
func (d *Daemon) restoreMetrics() error { return d.serveAt(d.cfg) }

// restore puts the configuration of before back. While addresses of the other one have not been released, the devices keep
// the rules that they have: the node tries again every second.
func (d *Daemon) restore() error {
	err := errors.Join(d.reloadWorkers(d.cfg), d.reloadDefence(d.cfg), d.reconfigure(d.cfg), d.restoreMetrics())
	_ = d.node.Update()
	return err
}

// Close releases everything. Run has returned, or was never called.
func (d *Daemon) Close() error {
	d.upgrading.stop(errStopping)
	d.reloading.Lock() // a request may have outlived the time-out of the control server
	defer d.reloading.Unlock()
	d.upgrading.close()
	errs := []error{d.flows.detach(&d.before), d.closeWorkers()}
	if d.role != nil {
		d.role.Leaves() // of a process that has not begun to serve another has it
		d.endRole()
		_ = d.role.Close() // Run may have closed it
	}
	if d.gate != nil {
		errs = append(errs, d.gate.Close())
	}
	if d.node != nil {
		errs = append(errs, d.node.Close())
	}
	if d.inspection != nil { // the loops have ended
		errs = append(errs, d.inspection.Close())
	}
	return errors.Join(append(errs, d.flows.close(), d.closeDefence())...)
}
