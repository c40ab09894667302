package stackd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/rtnl"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// engineOps are the operations of the engine that a host uses; the hash names the loop of a flow.
const engineOps = gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash

// Options hold settings that are not in the configuration.
type Options struct {
	Log        *slog.Logger  // of changes; required. It must not block: some records come from loops
	LogDropped func() uint64 // see node.Config
	Build      metrics.Build

	Metrics func(*metrics.Registry) http.Handler // serves the metrics where the configuration has an address for them
	Load    func() (*Config, error)              // reads the configuration again, for reloads; nil where there is no file
	GPU     cuda.Options
}

// Daemon is a host with its services, on a node.
type Daemon struct {
	opt   Options
	node  *node.Node
	stack *socket.Stack
	shim  atomic.Pointer[shim.Server] // nil where no programs are served
	rdma  rdmaDevice

	leases  []*dhcpClient
	changes chan ip.Change
	quit    chan struct{} // Stop has been called
	ended   chan error    // result of the node's Run
	stop    context.CancelFunc

	reloading sync.Mutex // one Reload at a time
	mu        sync.Mutex // guards all below
	cfg       *Config
	services  []*listener
}

// Open opens everything that the configuration names, and starts the loops and the services.
func Open(cfg *Config, opt Options) (*Daemon, error) {
	d := &Daemon{cfg: cfg, opt: opt, quit: make(chan struct{}, 1), changes: make(chan ip.Change, 256), ended: make(chan error, 1)}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open() error {
	for _, step := range []func() error{d.openNode, d.openHost, d.openRDMA, d.start, d.openLeases, d.openServices, d.openShim, d.openPrograms} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// errInUse is the error of Open where another stack has the control socket.
var errInUse = errors.New(`a stack is running there (give this one another with --socket or control.socket, or "" for none)`)

// nodeConfig is the node that the configuration describes, without devices.
func (d *Daemon) nodeConfig() node.Config {
	return node.Config{
		Loops: d.cfg.Devices[0].Queues, CPUs: d.cfg.CPUs, ExtraProcessor: d.cfg.ExtraProcessor,
		Engine: d.cfg.Engine, Ops: engineOps, GPU: d.opt.GPU,
		Log: d.opt.Log, LogDropped: d.opt.LogDropped, Build: d.opt.Build, Metrics: d.cfg.Metrics.Listen, Exposition: d.opt.Metrics,
		Control:       d.cfg.Control.Socket,
		ControlInUse:  errInUse,
		ControlServer: func(*node.Node) http.Handler { return d.handler() },
	}
}

func (d *Daemon) openNode() (err error) {
	c := d.nodeConfig()
	for i := range d.cfg.Devices {
		v := &d.cfg.Devices[i]
		all, err := takesAll(v)
		if err != nil {
			return err
		}
		c.Devices = append(c.Devices, node.Device{Name: v.Name, Driver: device.Driver(v.Driver), Mode: v.Mode, All: all, Ring: v.Ring})
	}
	d.node, err = node.Open(c)
	return err
}

// takesAll reports whether every packet of an interface is the host's. It rejects an address that the kernel has as
// well: both would answer for it.
func takesAll(v *Device) (whole bool, err error) {
	if devargs.Excepts(v.Name) && (v.DHCP || v.SLAAC) {
		return false, fmt.Errorf("%s: the kernel gets what is not for a known address, so that none can be learned (name addresses, or leave out exception=)", v.Name)
	}
	if devargs.Is(v.Name) && devargs.Below(v.Name) == "" {
		return !devargs.Excepts(v.Name), nil // the kernel does not have it
	}
	link, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByName(devargs.Below(v.Name)) })
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)) && v.Driver == string(device.TAP):
		return true, nil // the driver makes it
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return false, node.FindInterface(devargs.Below(v.Name))
	case err != nil:
		return false, fmt.Errorf("interface %s: %w", v.Name, err)
	}
	addrs, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("addresses of %s: %w", v.Name, err)
	}
	var kernels []string
	for _, a := range addrs {
		for _, p := range v.Addresses {
			if a.IP.Equal(p.Addr().AsSlice()) {
				return false, fmt.Errorf("%s: the kernel has the address %s itself (`ip addr del %s dev %s`, or give the host another one)",
					v.Name, p.Addr(), a.IPNet, v.Name)
			}
		}
		if !a.IP.IsLinkLocalUnicast() {
			kernels = append(kernels, a.IPNet.String())
		}
	}
	if devargs.Is(v.Name) {
		return !devargs.Excepts(v.Name), nil
	}
	if v.Take != TakeAuto {
		return v.Take == TakeAll, nil
	}
	if len(kernels) > 0 && (v.DHCP || v.SLAAC) {
		return false, fmt.Errorf("%s: the kernel uses it too (%s), so that only packets to known addresses are taken, and none can be learned "+
			"(name addresses, or write take: all, which leaves the kernel without packets there)", v.Name, kernels[0])
	}
	return len(kernels) == 0, nil
}

// takes says which packets a device brings.
func takes(whole bool) Take {
	if whole {
		return TakeAll
	}
	return TakeAddresses
}

// openHost makes the host on the loops of the node, with its addresses, routes and neighbours.
func (d *Daemon) openHost() error {
	c := host.Config{Loops: d.node.Loops(), Dispatched: true, Changed: d.changed}
	c.TCP.Defaults = d.cfg.TCP.Options
	c.TCP.Budget, c.TCP.MaxConns = d.cfg.TCP.Memory, d.cfg.TCP.Connections
	for i, v := range d.cfg.Devices {
		l := d.node.Links()[i]
		c.Links = append(c.Links, ip.Link{MAC: wire.MAC(l.MAC), MTU: l.MTU, Accept: v.SLAAC, LinkLocal: v.wants6()})
	}
	group, err := host.New(c)
	if err != nil {
		return err
	}
	d.stack = socket.Attach(group, socket.AttachConfig{
		Nagle: d.cfg.TCP.Nagle, Done: d.node.Ended(),
		KeepAlive: -1, // the configuration says so where it wants it
	})
	if err := d.reconcile(&Config{}, d.cfg); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return d.node.Add(node.Service{
		Name: "host", Handlers: group.Handlers(), Claims: group.Claims, Fallback: true, Entered: true,
		LinkChanged: func(dev int, l node.Link) { group.SetLink(uint8(dev), l.MAC, l.MTU) },
		Metrics:     d.writeMetrics, Background: d.follow, Shutdown: d.shutdown,
	})
}

// writeMetrics writes the series of the stack and of the programs that it serves.
func (d *Daemon) writeMetrics(w *metrics.Writer) {
	d.stack.WriteMetrics(w)
	if s := d.shim.Load(); s != nil {
		s.WriteMetrics(w)
	}
	if s := d.rdma.programs.Load(); s != nil {
		s.WriteMetrics(w)
	}
}

// wants6 reports whether the host speaks IPv6 on the device.
func (v *Device) wants6() bool {
	for _, p := range v.Addresses {
		if p.Addr().Is6() {
			return true
		}
	}
	return v.SLAAC
}

// start runs the node, so that services can listen.
func (d *Daemon) start() error {
	if _, err := d.node.ReceiveLarge(true); err != nil {
		return err
	}
	if err := d.node.Start(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() { d.ended <- d.node.Run(ctx) }()
	return nil
}

// changed passes on what happened to addresses. A loop calls it, which it does not hold up: where the channel is
// full there is enough to look at already.
func (d *Daemon) changed(_ clock.Time, c ip.Change) {
	switch c.Kind {
	case ip.AddrUp, ip.AddrDown, ip.AddrDuplicate:
		select {
		case d.changes <- c:
		default:
		}
	}
}

// Run serves until ctx ends, Stop is called, or no device is left.
func (d *Daemon) Run(ctx context.Context) error {
	leases, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	for _, l := range d.leases {
		clients.Go(func() { l.run(leases) })
	}
	var err error
	select {
	case <-ctx.Done():
	case <-d.quit:
	case err = <-d.ended:
		err = errors.Join(errors.New("the loops have ended: no device is left"), err)
		d.ended <- nil // for Close
	}
	stop()
	clients.Wait() // they give their leases back while packets still leave
	return err
}

// Stop ends Run.
func (d *Daemon) Stop() {
	select {
	case d.quit <- struct{}{}:
	default: // it has been asked before
	}
}

// shutdown ends the services and closes the host while the loops still run. What the services have written arrives,
// within shutdownLimit.
func (d *Daemon) shutdown() {
	d.closeServices()
	if err := errors.Join(d.closeShim(), d.closeRDMA()); err != nil {
		d.opt.Log.Warn("shutdown", "error", err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	if err := d.stack.Shutdown(ctx); err != nil {
		d.opt.Log.Warn("shutdown", "error", err.Error(), "limit", shutdownLimit.String())
	}
}

// Close ends the services and releases everything: sockets, steering and XDP programs, frames, memory. Run has
// returned. An error reports a lost frame, too.
func (d *Daemon) Close() error {
	var errs []error
	if d.stop != nil {
		d.stop()
		errs = append(errs, <-d.ended)
		d.shutdown() // the node has waited for it, unless its devices failed
	}
	if d.node != nil {
		errs = append(errs, d.node.Close())
	}
	return errors.Join(errs...)
}
