package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/heapfloor"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/node/nexthop"
)

// openWorkers opens the listeners of a configuration, if it has some.
func (d *Daemon) openWorkers(cfg *config.Config) (err error) {
	if len(cfg.Listeners) == 0 {
		return nil
	}
	inherited, err := d.inherit()
	if err != nil {
		return err
	}
	opt := l7control.Options{Log: d.opt.Log, Version: d.opt.Build.Version, OnEvent: d.poolChanged, Inspect: d.inspectors, Policy: d.inspection.Number, FieldNames: d.inspection.FieldNames, Inherited: inherited, Firewall: d.opt.Firewall}
	if cfg.Defence != nil { // it may be opened later
		opt.OnRefused = d.refusalReporter
	}
	if cfg.Stack == config.StackDevices {
		if opt.Loops, err = d.openStack(cfg); err != nil {
			return err
		}
		opt.QUIC = quicconn.OverStack(d.host)
	}
	if d.workers, err = l7control.Open(cfg, opt); err == nil {
		d.floor = heapfloor.Hold(heapFloor)
	}
	return err
}

// heapFloor is the least memory in use of a gateway with listeners. Without a floor its heap is collected every 600 handshakes.
const heapFloor = 32 << 20

// runWorkers runs the workers until Shutdown has ended them: they outlive the context by the time that they drain.
func (d *Daemon) runWorkers() {
	if d.workers == nil {
		return
	}
	if err := d.workers.Run(); err != nil {
		d.opt.Log.Error("listeners", "error", err.Error())
	}
}

// reloadWorkers gives the workers a configuration.
func (d *Daemon) reloadWorkers(cfg *config.Config) error {
	if d.workers == nil {
		return nil
	}
	return d.workers.Reload(cfg)
}

// ReopenLogs opens the file of the access log again, after it was renamed.
func (d *Daemon) ReopenLogs() error {
	if d.workers == nil {
		return nil
	}
	return d.workers.ReopenLog()
}

// closeWorkers ends workers that were opened and perhaps never run.
func (d *Daemon) closeWorkers() error {
	if d.workers == nil {
		return nil
	}
	d.floor.Release()
	return d.workers.Close()
}

// poolChanged logs a change of a pool's backend.
func (d *Daemon) poolChanged(e pool.Event) {
	at := e.Backend.Address()
	d.events.add(l4control.Event{
		Service: e.Backend.Pool().Name(), Backend: e.Backend.Name(), What: poolChanges[e.Change], Cause: e.Cause,
		Address: config.AddrPortsFrom(at.Addr(), config.PortRange{First: at.Port(), Last: at.Port()}),
	})
}

// poolChanges are the words that services have for changes.
var poolChanges = map[pool.Change]string{pool.Rose: "healthy", pool.Fell: "unhealthy", pool.Ejected: "ejected", pool.Returned: "returned"}

// ofPool reports whether a command names a pool.
func (d *Daemon) ofPool(name string) bool { return d.workers != nil && d.workers.Has(name) }

// onlyPools reports whether all that could be named are pools: then an unknown name is an unknown pool.
func (d *Daemon) onlyPools() bool { return d.workers != nil && len(d.gate.ServiceNames()) == 0 }

// statusOf returns the state of what a selection chooses: services and pools have their names in common.
func (d *Daemon) statusOf(sel l4control.Selection) (l4control.Status, *l7control.Status, error) {
	if d.workers == nil {
		st, err := d.gate.StatusOf(sel)
		return st, nil, err
	}
	named := len(sel.Services) > 0
	var pools []string
	sel.Services = slices.DeleteFunc(slices.Clone(sel.Services), func(name string) bool {
		if d.workers.Has(name) {
			pools = append(pools, name)
			return true
		}
		return false
	})
	if d.onlyPools() && len(sel.Services) > 0 {
		_, err := d.workers.BackendNames(sel.Services[0])
		return l4control.Status{}, nil, err
	}
	all, none := func(string) bool { return true }, named && len(sel.Services) == 0
	if named {
		all = func(name string) bool { return slices.Contains(pools, name) }
	}
	web := d.workers.Status(all)
	if sel.Backend != "" {
		onlyBackend(&web, sel.Backend)
	}
	if sel.Summary {
		for i := range web.Pools {
			web.Pools[i].Summarize()
		}
	}
	if none = none || d.onlyPools(); none {
		all := sel.Backend
		sel.Backend = ""
		if all != "" && len(web.Pools) == 0 {
			return l4control.Status{}, nil, fmt.Errorf("%w %q", l7control.ErrUnknownBackend, all)
		}
	}
	st, err := d.gate.StatusOf(sel)
	if errors.Is(err, l4control.ErrUnknownBackend) && len(web.Pools) > 0 { // pools have it
		sel.Backend = ""
		st, err = d.gate.StatusOf(sel)
		none = true
	}
	if none {
		st.Services = []l4control.ServiceStatus{}
	}
	return st, &web, err
}

// onlyBackend leaves the backends of a name, and the pools that have one.
func onlyBackend(st *l7control.Status, name string) {
	for i := range st.Pools {
		st.Pools[i].Backends = slices.DeleteFunc(st.Pools[i].Backends, func(b l7control.BackendStatus) bool { return b.Name != name })
	}
	st.Pools = slices.DeleteFunc(st.Pools, func(p l7control.PoolStatus) bool { return len(p.Backends) == 0 })
}

// names returns the names of services and pools.
func (d *Daemon) names() []string {
	names := d.gate.ServiceNames()
	if d.workers != nil {
		names = append(names, d.workers.Pools()...)
	}
	return names
}

// backendNames returns the names of the backends of a service or pool, of all for "".
func (d *Daemon) backendNames(of string) ([]string, error) {
	if d.workers == nil || of != "" && !d.workers.Has(of) && !d.onlyPools() {
		return d.gate.BackendNames(of)
	}
	names, err := d.workers.BackendNames(of)
	if err != nil || of != "" {
		return names, err
	}
	more, err := d.gate.BackendNames(of)
	names = append(names, more...)
	slices.Sort(names)
	return slices.Compact(names), err
}

// noHops resolves nothing: a gateway without devices has no services.
type noHops struct{}

func (noHops) Watch([]netip.Addr, func(netip.Addr, nexthop.Hop)) {}
func (noHops) Find([]netip.Addr, func(netip.Addr, nexthop.Hop))  {}
func (noHops) Close() error                                      { return nil }
