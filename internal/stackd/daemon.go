package stackd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// engineOps is what a host wants to know of packets; the hash names the loop of a flow.
const engineOps = gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash

// shutdownLimit is how long services may take to finish what they have begun.
const shutdownLimit = 2 * time.Second

// Options are what the configuration does not say.
type Options struct {
	Log     *slog.Logger // of changes; required
	Version string       // of the program, for Status
	GPU     cuda.Options
}

// Daemon is a host with its devices, memory, loops and services.
type Daemon struct {
	cfg *Config
	opt Options

	arena   *ring.Arena
	pools   []*ring.Pool
	devices []*device.Device
	links   *links
	whole   []bool // by device: every packet is ours
	opener  *choose.Opener
	engines []gpukern.Engine
	stack   *socket.Stack
	doors   []*door
	lessees []*lessee
	control net.Listener // nil without

	quit    chan struct{} // Stop has been called
	changes chan ip.Change
	started time.Time

	mu      sync.Mutex
	steered []pmd.Rule
}

// Open opens everything that the configuration names, and starts the services.
func Open(cfg *Config, opt Options) (*Daemon, error) {
	d := &Daemon{cfg: cfg, opt: opt, quit: make(chan struct{}, 1), changes: make(chan ip.Change, 256)}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open() error {
	for _, step := range []func() error{
		d.findInterfaces, d.openEngine, d.openControl, d.openDevices, d.openLinks, d.openStack, d.steer, d.openLeases, d.openServices,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	d.started = time.Now()
	return nil
}

// findInterfaces makes sure that the devices exist before anything is touched, and settles Device.Take.
func (d *Daemon) findInterfaces() error {
	for _, v := range d.cfg.Devices {
		link, err := netlink.LinkByName(v.Name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			if v.Driver == string(device.TAP) { // is made
				d.whole = append(d.whole, true)
				continue
			}
			return fmt.Errorf("there is no interface %q here (it has: %s)", v.Name, interfaceNames())
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", v.Name, err)
		}
		whole, err := d.settleTake(&v, link)
		if err != nil {
			return err
		}
		d.whole = append(d.whole, whole)
	}
	return nil
}

// interfaceNames lists the machine's interfaces.
func interfaceNames() (s string) {
	all, _ := net.Interfaces()
	for i, in := range all {
		if i > 0 {
			s += ", "
		}
		s += in.Name
	}
	return s
}

// settleTake says whether every packet of an interface is ours. An address that the kernel has as well would be
// answered by both.
func (d *Daemon) settleTake(v *Device, link netlink.Link) (whole bool, err error) {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
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
	if v.Take != TakeAuto {
		return v.Take == TakeAll, nil
	}
	if len(kernels) > 0 && (v.DHCP || v.SLAAC) {
		return false, fmt.Errorf("%s: the kernel uses it too (%s), so that only packets to known addresses are taken, and none can be learned "+
			"(name addresses, or write take: all, which makes the kernel deaf there)", v.Name, kernels[0])
	}
	return len(kernels) == 0, nil
}

func (d *Daemon) openEngine() (err error) {
	kind, err := choose.ParseKind(d.cfg.Engine)
	if err != nil {
		return err
	}
	d.opener, err = choose.NewOpener(choose.OpenConfig{
		Kind: kind, Device: d.opt.GPU,
		Lost: func(err error) {
			d.opt.Log.Error("engine", "result", "the CPU does the GPU's work", "error", err.Error())
		},
		Without: func(err error) {
			d.opt.Log.Warn("engine", "result", "the CPU does all work of a loop", "error", err.Error())
		},
	})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if kind != choose.KindCPU {
		d.opt.Log.Info("engine", "using", d.opener.String())
	}
	return nil
}

func (d *Daemon) openDevices() (err error) {
	var names []string
	for _, v := range d.cfg.Devices {
		names = append(names, v.Name)
	}
	if d.arena, d.pools, err = device.NewArena(d.cfg.Devices[0].Queues, names...); err != nil {
		return err
	}
	for i, v := range d.cfg.Devices {
		dev, err := device.Open(device.Config{
			Name: v.Name, Driver: device.Driver(v.Driver), Mode: v.Mode, Pools: d.pools, All: d.whole[i],
		})
		if err != nil {
			return err
		}
		d.devices = append(d.devices, dev)
		info := dev.Queues[0].Info()
		d.opt.Log.Info("device", "name", v.Name, "driver", string(dev.Driver), "queues", len(dev.Queues),
			"mtu", info.MTU, "granted", info.Negotiated, "takes", takes(d.whole[i]))
		if dev.Why != "" {
			d.opt.Log.Warn("not AF_XDP", "device", v.Name, "using", string(dev.Driver), "why", dev.Why)
		}
	}
	return nil
}

// takes says which packets a device brings.
func takes(whole bool) Take {
	if whole {
		return TakeAll
	}
	return TakeAddresses
}

// openStack makes a loop of queue i of every device, and the host on them.
func (d *Daemon) openStack() (err error) {
	c := socket.Config{Nagle: d.cfg.TCP.Nagle, Host: host.Config{Changed: d.changed}}
	c.Host.TCP.Defaults = d.cfg.TCP.Options
	c.KeepAlive = -1 // the configuration says so where it wants it
	c.Host.TCP.Budget, c.Host.TCP.MaxConns = d.cfg.TCP.Memory, d.cfg.TCP.Connections
	for i, pool := range d.pools {
		l := stack.Config{Pool: pool}
		for _, dev := range d.devices {
			l.Devices = append(l.Devices, dev.Queues[i])
		}
		if l.Engine, err = d.opener.Open(gpukern.Config{Ops: engineOps}, d.arena); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		d.engines = append(d.engines, l.Engine)
		c.Loops = append(c.Loops, l)
	}
	for i, v := range d.cfg.Devices {
		info := d.devices[i].Queues[0].Info()
		c.Host.Links = append(c.Host.Links, ip.Link{MAC: wire.MAC(info.MAC), MTU: info.MTU, Accept: v.SLAAC, LinkLocal: v.wants6()})
		for _, p := range v.Addresses {
			c.Addrs = append(c.Addrs, socket.Address{Device: uint8(i), Prefix: p})
		}
	}
	for _, r := range d.cfg.Routes {
		c.Routes = append(c.Routes, d.route(r))
	}
	if d.stack, err = socket.New(c); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	for _, n := range d.cfg.Neighbors {
		if err := d.stack.Group().AddNeighbor(uint8(d.cfg.port(n.Device, n.Address)), wire.AddrFrom(n.Address), wire.MAC(n.MAC)); err != nil {
			return fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
	}
	return nil
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

// route returns r as the host has it.
func (d *Daemon) route(r Route) ip.Route {
	out := ip.Route{Prefix: r.To, Dev: uint8(d.cfg.port(r.Device, r.Via)), Metric: r.Metric}
	if r.Via.IsValid() {
		out.Gateway = wire.AddrFrom(r.Via)
	}
	return out
}

// changed passes on what happened to addresses. It is called by a loop, which it does not hold up: where the
// channel is full there is enough to look at already.
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() { d.follow(ctx) })
	for _, l := range d.lessees {
		background.Go(func() { l.run(ctx) })
	}
	if d.control != nil {
		background.Go(func() { d.serveControl(ctx) })
	}
	var err error
	select {
	case <-ctx.Done():
	case <-d.quit:
	case <-d.stack.Done():
		err = errors.New("the loops have ended: no device is left")
	}
	d.closeServices()
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

// Close gives everything back: sockets, steering and XDP programs, frames, memory. Run has returned. An error tells of a
// frame that is lost, too.
func (d *Daemon) Close() error {
	d.closeServices()
	var errs []error
	if d.control != nil {
		if err := d.control.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.stack != nil {
		errs = append(errs, d.stack.Close())
	}
	if d.links != nil {
		d.links.close()
	}
	for _, dev := range slices.Backward(d.devices) {
		errs = append(errs, dev.Close())
	}
	for _, e := range d.engines {
		errs = append(errs, e.Close())
	}
	if d.opener != nil {
		errs = append(errs, d.opener.Close())
	}
	if d.arena != nil {
		holders := make([]ring.Holder, len(d.pools))
		for i, p := range d.pools {
			holders[i] = p
		}
		errs = append(errs, ring.Audit(d.arena, holders...), d.arena.Close())
	}
	return errors.Join(errs...)
}
