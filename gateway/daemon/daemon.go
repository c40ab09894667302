// Package daemon runs a gateway on this machine: it opens the devices that the configuration names,
// makes one loop per queue, follows the kernel's routes and neighbours, serves the metrics, reloads,
// and takes everything down again.
//
//	d, err := daemon.Open(file, daemon.Options{Log: log})
//	err = d.Run(ctx) // until ctx ends
//	fmt.Print(d.Summary())
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/datapath"
	"github.com/millrace/millrace/gateway/nexthop"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// steerEvery is how often the drivers are told what the gateway wants: addresses that a reload
// removed are given back to the kernel when their last connection has ended.
const steerEvery = time.Second

// Options are what the configuration file does not say.
type Options struct {
	Log      *slog.Logger // of changes; required
	Build    metrics.Build
	Metrics  func(*metrics.Registry) http.Handler // serves the metrics where the configuration has an address for them
	Admin    bool                                 // serve the control socket that the configuration names
	Affinity [][]int                              // CPUs of each loop; nil is by the configuration's cpus
	Engine   string                               // instead of the configuration's engine; "" is that one
	GPU      cuda.Options
}

// Daemon is a gateway with its devices, memory and loops.
type Daemon struct {
	file string
	opt  Options

	arena   *ring.Arena
	pools   []*ring.Pool
	devices []*device.Device
	gate    *gateway.Gateway
	opener  *choose.Opener
	engines []gpukern.Engine
	loops   []*stack.Loop
	listen  net.Listener // of the metrics; nil without
	admin   net.Listener // of the control socket; nil without

	quit     chan struct{} // Stop has been called
	announce chan struct{} // asks announceLoop
	ended    chan struct{} // the loops have ended
	started  time.Time

	reloading sync.Mutex // one Reload at a time, so that the last file read is the one in use; and none beside Close

	mu      sync.Mutex // guards all below: reloads, the timer and scrapes meet here
	steered []pmd.Rule
	whole   bool   // large packets pass whole
	links   []link // of the devices
	reload  reload
}

// reload is what became of the last reload; the start counts as one.
type reload struct {
	err error     // why the last one was refused; nil when it was not
	at  time.Time // of the last that succeeded
}

// Open reads the configuration and opens everything that it names. A mistake in the file is a
// *config.Error; nothing is opened then.
func Open(file string, opt Options) (*Daemon, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	d := &Daemon{file: file, opt: opt, quit: make(chan struct{}, 1), announce: make(chan struct{}, 1), ended: make(chan struct{})}
	if err := d.open(cfg); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open(cfg *config.Config) error {
	if err := findInterfaces(cfg.Devices); err != nil {
		return err
	}
	if err := settleQueues(cfg, afxdp.RxQueues); err != nil {
		return err
	}
	if err := d.placeLoops(cfg); err != nil {
		return err
	}
	if err := d.openEngine(cmp.Or(d.opt.Engine, cfg.Engine)); err != nil {
		return err
	}
	if err := d.openMetrics(cfg.Metrics.Listen); err != nil {
		return err
	}
	if d.opt.Admin {
		if err := d.openAdmin(cfg.Admin.Socket); err != nil {
			return err
		}
	}
	if err := d.openDevices(cfg); err != nil {
		return err
	}
	if err := d.openGateway(cfg); err != nil {
		return err
	}
	if err := d.openLoops(cfg.Spin); err != nil {
		return err
	}
	if err := d.setOffload(!tunnels(cfg)); err != nil {
		return err
	}
	d.watchLinks()
	d.started = time.Now()
	d.reload.at = d.started
	return d.steer()
}

// openMetrics takes the port of the metrics, so that a start that cannot have it touches no interface.
func (d *Daemon) openMetrics(at string) (err error) {
	if at == "" {
		return nil
	}
	if d.opt.Metrics == nil {
		return errors.New("metrics: this program cannot serve them; remove `metrics` from the configuration")
	}
	if d.listen, err = net.Listen("tcp", at); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// openDevices makes the memory of all loops and opens the interfaces, which steer nothing yet.
func (d *Daemon) openDevices(cfg *config.Config) (err error) {
	var names []string
	for _, dev := range cfg.Devices {
		names = append(names, dev.Name)
	}
	if d.arena, d.pools, err = device.NewArena(cfg.Loops(), names...); err != nil {
		return err
	}
	for _, c := range cfg.Devices {
		dev, err := device.Open(device.Config{Name: c.Name, Driver: device.Driver(c.Driver), Mode: c.Mode, Pools: d.pools})
		if err != nil {
			return err
		}
		d.devices = append(d.devices, dev)
		l, err := d.newLink(c.Name, dev)
		if err != nil {
			return err
		}
		d.links = append(d.links, l)
		info := dev.Queues[0].Info()
		d.opt.Log.Info("device", "name", c.Name, "driver", string(dev.Driver), "queues", len(dev.Queues),
			"mtu", info.MTU, "granted", info.Negotiated)
		if dev.Why != "" {
			d.opt.Log.Warn("not AF_XDP", "device", c.Name, "using", string(dev.Driver), "why", dev.Why)
		}
	}
	d.compareMTUs()
	return nil
}

// compareMTUs warns of packets that will be dropped: what one device brings may be too big for another.
func (d *Daemon) compareMTUs() {
	first := d.devices[0].Queues[0].Info()
	for _, dev := range d.devices[1:] {
		if info := dev.Queues[0].Info(); info.MTU != first.MTU && info.MTU > 0 && first.MTU > 0 { // 0 is unknown
			d.opt.Log.Warn("MTUs differ: larger packets are dropped as too_big", "device", info.Device, "mtu", info.MTU,
				"other", first.Device, "other_mtu", first.MTU)
		}
	}
}

func (d *Daemon) openGateway(cfg *config.Config) error {
	var ports []datapath.Device
	var names []string
	for i, dev := range d.devices {
		info := dev.Queues[0].Info()
		ports = append(ports, datapath.Device{Name: cfg.Devices[i].Name, MAC: info.MAC, MTU: info.MTU})
		names = append(names, cfg.Devices[i].Name)
	}
	resolver, err := nexthop.NewKernel(names)
	if err != nil {
		return err
	}
	d.gate, err = gateway.Open(cfg, gateway.Options{Devices: ports, Resolver: resolver, OnEvent: d.event})
	if err != nil {
		return errors.Join(err, resolver.Close())
	}
	return nil
}

// openLoops makes loop i over queue i of every device, and joins them: a packet may come by any queue.
func (d *Daemon) openLoops(spin time.Duration) error {
	for i, pool := range d.pools {
		var ports []pmd.Driver
		for _, dev := range d.devices {
			ports = append(ports, dev.Queues[i])
		}
		engine, err := d.addEngine()
		if err != nil {
			return err
		}
		cfg := stack.Config{Devices: ports, Pool: pool, Engine: engine, Handler: d.gate.Handlers()[i], Burst: d.burst()}
		if i < len(d.opt.Affinity) {
			cfg.Affinity = d.opt.Affinity[i]
		}
		loop, err := stack.NewLoop(cfg)
		if err != nil {
			return err
		}
		d.loops = append(d.loops, loop)
	}
	if len(d.loops) > 1 {
		if _, err := stack.Join(d.loops...); err != nil {
			return err
		}
	}
	return nil
}

// event logs a change of a backend.
func (d *Daemon) event(e gateway.Event) {
	args := []any{"service", e.Service, "backend", e.Backend, "address", e.Address.String(), "state", e.What}
	if e.What == "weight" {
		args = append(args, "weight", e.Weight)
	}
	if e.Why != "" {
		args = append(args, "why", e.Why)
	}
	if e.Cause != nil {
		args = append(args, "cause", e.Cause.Error())
	}
	level := slog.LevelInfo
	switch e.What {
	case nexthop.Ready.String(), nexthop.Unresolved.String():
		level = slog.LevelDebug // comes with every start; the health check tells what it means
	case nexthop.NoRoute.String(), "unhealthy", "ejected":
		level = slog.LevelWarn
	}
	d.opt.Log.Log(context.Background(), level, "backend", args...)
}

// Run moves packets until ctx ends or no device is left. When it returns every packet has met its
// end and Summary is final. A device that is lost is logged; the others go on.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() { d.steerLoop(ctx) })
	background.Go(func() { d.announceLoop(ctx) })
	if d.listen != nil {
		background.Go(func() { d.serveMetrics(ctx) })
	}
	if d.admin != nil {
		background.Go(func() { d.serveAdmin(ctx) })
	}
	background.Go(func() {
		select {
		case <-ctx.Done():
		case <-d.quit:
			cancel()
		}
	})
	err := stack.RunAll(ctx, d.loops...)
	close(d.ended)
	cancel()
	background.Wait()
	return err
}

// Stop ends Run.
func (d *Daemon) Stop() {
	select {
	case d.quit <- struct{}{}:
	default: // it has been asked before
	}
}

// serveMetrics answers scrapes until ctx ends.
func (d *Daemon) serveMetrics(ctx context.Context) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", d.opt.Metrics(d.registry()))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	d.opt.Log.Info("metrics", "listen", "http://"+d.listen.Addr().String()+"/metrics")
	if err := srv.Serve(d.listen); !errors.Is(err, http.ErrServerClosed) {
		d.opt.Log.Error("metrics", "error", err.Error())
	}
}

// Reload reads the file again and makes it the configuration. On an error the old one stays.
func (d *Daemon) Reload() error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	err := d.tryReload()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reload.err = err; err == nil {
		d.reload.at = time.Now()
	}
	return err
}

func (d *Daemon) tryReload() error {
	cfg, err := config.Load(d.file)
	if err != nil {
		return err
	}
	cfg.SetQueues(len(d.loops)) // `queues: auto` is what it was at the start
	before := d.gate.Announced()
	if err := d.reconfigure(cfg); err != nil {
		return err
	}
	if err := d.steer(); err != nil {
		return err
	}
	for _, a := range d.gate.Announced() {
		if !slices.Contains(before, a) {
			d.Announce() // once what comes of it is steered
			break
		}
	}
	return nil
}

// Close gives everything back: steering and XDP programs, frames, memory. Run has returned.
func (d *Daemon) Close() error {
	d.reloading.Lock() // a request may have outlived serveAdmin's patience
	defer d.reloading.Unlock()
	var errs []error
	for _, l := range d.loops {
		errs = append(errs, l.Close())
	}
	if d.gate != nil {
		errs = append(errs, d.gate.Close())
	}
	for _, dev := range d.devices {
		errs = append(errs, dev.Close())
	}
	for _, e := range d.engines {
		errs = append(errs, e.Close())
	}
	if d.opener != nil {
		errs = append(errs, d.opener.Close())
	}
	for _, l := range []net.Listener{d.listen, d.admin} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, d.closeMemory())
	return errors.Join(errs...)
}

// closeMemory audits the frames and unmaps them. A frame that is missing is a bug that must not
// pass unseen.
func (d *Daemon) closeMemory() error {
	if d.arena == nil {
		return nil
	}
	holders := make([]ring.Holder, len(d.pools))
	for i, p := range d.pools {
		holders[i] = p
	}
	err := ring.Audit(d.arena, holders...)
	return errors.Join(err, d.arena.Close())
}
