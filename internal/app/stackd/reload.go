package stackd

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// Errors of Reload.
var (
	ErrRestart = errors.New("the change needs a restart")
	ErrNoFile  = errors.New("the stack has no configuration file to read again")
)

// ReloadFile reads the configuration file again and makes it the configuration. On an error the old one stays.
func (d *Daemon) ReloadFile() error {
	if d.opt.Load == nil {
		return ErrNoFile
	}
	cfg, err := d.opt.Load()
	if err != nil {
		return err
	}
	return d.Reload(cfg)
}

// reloadCode returns the HTTP status of an error of ReloadFile.
func reloadCode(err error) int {
	switch {
	case errors.Is(err, ErrRestart), errors.Is(err, ErrNoFile):
		return http.StatusConflict
	case errors.As(err, new(*ConfigError)):
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// Reload makes cfg the configuration: addresses, routes, neighbours and services that are new come up, those that
// it lacks go, and all others stay as they are, with their connections. Other changes are an ErrRestart, and
// nothing changes then.
func (d *Daemon) Reload(cfg *Config) error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.mu.Lock()
	old := d.cfg
	d.mu.Unlock()
	if err := mayReload(old, cfg); err != nil {
		return err
	}
	if err := d.node.SetMetrics(cfg.Metrics.Listen); err != nil {
		return err
	}
	var gone []*listener
	for _, l := range d.listeners() {
		if !slices.Contains(cfg.Services, l.Service) {
			gone = append(gone, l)
		}
	}
	d.forget(gone)
	shutdown(gone)
	if err := d.reconcile(old, cfg); err != nil {
		return err
	}
	for _, s := range cfg.Services {
		if !slices.ContainsFunc(d.listeners(), func(l *listener) bool { return l.Service == s }) {
			if err := d.openService(s); err != nil {
				return err
			}
		}
	}
	d.mu.Lock()
	d.cfg = cfg
	d.mu.Unlock()
	return d.node.Update()
}

// forget removes services from the list.
func (d *Daemon) forget(gone []*listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services = slices.DeleteFunc(d.services, func(l *listener) bool { return slices.Contains(gone, l) })
}

// mayReload reports what of cfg cannot take effect while the loops run.
func mayReload(old, cfg *Config) error {
	if len(old.Devices) != len(cfg.Devices) {
		return fmt.Errorf("devices: %w", ErrRestart)
	}
	for i, v := range cfg.Devices {
		was := old.Devices[i]
		was.Addresses, v.Addresses = nil, nil
		if !reflect.DeepEqual(was, v) {
			return fmt.Errorf("device %s: %w", v.Name, ErrRestart)
		}
		if old.Devices[i].wants6() != cfg.Devices[i].wants6() {
			return fmt.Errorf("device %s: the first IPv6 address: %w", v.Name, ErrRestart)
		}
	}
	for _, part := range []struct {
		name     string
		old, new any
	}{
		{"engine", old.Engine, cfg.Engine},
		{"cpus", old.CPUs, cfg.CPUs},
		{"extra_processor", old.ExtraProcessor, cfg.ExtraProcessor},
		{"tcp", old.TCP, cfg.TCP},
		{"control", old.Control, cfg.Control},
		{"shim", old.Shim, cfg.Shim},
		{"rdma", old.RDMA, cfg.RDMA},
	} {
		if !reflect.DeepEqual(part.old, part.new) {
			return fmt.Errorf("%s: %w", part.name, ErrRestart)
		}
	}
	return nil
}

// reconcile gives the host the addresses, routes and neighbours of cfg in the place of those of old.
func (d *Daemon) reconcile(old, cfg *Config) error {
	g := d.stack.Group()
	for i := range cfg.Devices {
		var had []netip.Prefix
		if i < len(old.Devices) {
			had = old.Devices[i].Addresses
		}
		if err := reconcileAddrs(g, uint8(i), had, cfg.Devices[i].Addresses); err != nil {
			return err
		}
	}
	was, want := routes(old), routes(cfg)
	for _, r := range was {
		if !slices.Contains(want, r) {
			_ = g.DelRoute(r) // it may have gone with its address
		}
	}
	for _, r := range want {
		if !slices.Contains(was, r) {
			if err := g.AddRoute(r); err != nil {
				return fmt.Errorf("route to %s: %w", r.Prefix, err)
			}
		}
	}
	return reconcileNeighbors(g, old, cfg)
}

// reconcileAddrs brings new addresses of a device up and takes old ones away.
func reconcileAddrs(g *host.Group, dev uint8, had, want []netip.Prefix) error {
	for _, p := range had {
		if !slices.Contains(want, p) {
			if err := g.DelAddr(dev, wire.AddrFrom(p.Addr())); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
	}
	for _, p := range want {
		if !slices.Contains(had, p) {
			if err := g.AddAddr(dev, p, ip.Static, true); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
	}
	return nil
}

// routes returns the routes of a configuration as the host has them.
func routes(c *Config) (list []ip.Route) {
	for _, r := range c.Routes {
		out := ip.Route{Prefix: r.To, Dev: uint8(c.port(r.Device, r.Via)), Metric: r.Metric}
		if r.Via.IsValid() {
			out.Gateway = wire.AddrFrom(r.Via)
		}
		list = append(list, out)
	}
	return list
}

// reconcileNeighbors enters the neighbours of cfg, and removes those of old that it lacks.
func reconcileNeighbors(g *host.Group, old, cfg *Config) error {
	for _, n := range old.Neighbors {
		if !slices.ContainsFunc(cfg.Neighbors, func(o Neighbor) bool { return reflect.DeepEqual(n, o) }) {
			err := g.Each(func(now clock.Time, h *host.Host) error {
				return h.IP.DelNeighbor(now, uint8(old.port(n.Device, n.Address)), wire.AddrFrom(n.Address))
			})
			if err != nil {
				return fmt.Errorf("neighbour %s: %w", n.Address, err)
			}
		}
	}
	for _, n := range cfg.Neighbors {
		if err := g.AddNeighbor(uint8(cfg.port(n.Device, n.Address)), wire.AddrFrom(n.Address), wire.MAC(n.MAC)); err != nil {
			return fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
	}
	return nil
}
