package daemon

import (
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	l7control "github.com/millrace/millrace/l7/control"
)

// announced is a service or a listener whose addresses are announced to routers, and whether new connections have a backend.
type announced struct {
	key       string // of settling: unique
	addresses []netip.Addr
	attrs     config.Attributes
	families  [datapath.Families]l4control.Availability // by the family of clients
}

// servicesAnnounced returns the services that are announced.
func servicesAnnounced(services []l4control.ServiceAvailability) (list []announced) {
	for i := range services {
		s := services[i].Service
		a := announced{key: "service " + s.Name, attrs: *s.Announce, families: services[i].Families}
		for _, ap := range s.Addresses {
			a.addresses = append(a.addresses, ap.Addr())
		}
		list = append(list, a)
	}
	return list
}

// listenersAnnounced returns the listeners that are announced, by the health of the pools of their routes.
func listenersAnnounced(c *config.Config, pools []l7control.PoolStatus) (list []announced) {
	of := map[string]l4control.Availability{}
	for i := range pools {
		of[pools[i].Name] = poolAvailability(&pools[i])
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if l.Announce == nil {
			continue
		}
		is := l4control.Unavailable
		for _, refs := range c.BackendsOf(l) {
			is = max(is, refsAvailability(refs, of))
		}
		a := announced{key: "listener " + l.Name, attrs: *l.Announce, families: [datapath.Families]l4control.Availability{is, is}}
		for _, ap := range l.Addresses {
			a.addresses = append(a.addresses, ap.Addr())
		}
		list = append(list, a)
	}
	return list
}

// refsAvailability returns the availability of a rule by its pools. One without any answers itself.
func refsAvailability(refs []config.BackendRef, of map[string]l4control.Availability) (is l4control.Availability) {
	if len(refs) == 0 {
		return l4control.Available
	}
	for _, r := range refs {
		if r.Weight > 0 {
			is = max(is, of[r.Name])
		}
	}
	return is
}

// poolAvailability returns whether a pool has a backend that is up. A pool in panic sends requests to backends that are down; that is
// no reason to attract more.
func poolAvailability(p *l7control.PoolStatus) (is l4control.Availability) {
	for i := range p.Backends {
		switch b := &p.Backends[i]; {
		case !b.Healthy || b.Ejected:
		case b.State == string(config.StateActive) && b.Weight > 0:
			return l4control.Available
		case b.State != string(config.StateInactive):
			is = l4control.Draining
		}
	}
	return is
}

// announcedNow returns all that is announced. Pools that no announced listener may use are not read.
func (d *Daemon) announcedNow() []announced {
	list := servicesAnnounced(l4control.AvailabilityOf(d.gate))
	c := d.announcer.listeners.Load()
	if c == nil || d.workers == nil {
		return list
	}
	pools := d.workers.Status(func(name string) bool { return slices.Contains(c.pools, name) }).Pools
	return append(list, listenersAnnounced(c.cfg, pools)...)
}

// announcedListeners is a configuration with announced listeners, and the pools of their routes.
type announcedListeners struct {
	cfg   *config.Config
	pools []string
}

// listenersOf returns the announced listeners of a configuration, nil for none.
func listenersOf(c *config.Config) *announcedListeners {
	a := &announcedListeners{cfg: c}
	any := false
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if l.Announce == nil {
			continue
		}
		any = true
		for _, refs := range c.BackendsOf(l) {
			for _, r := range refs {
				a.pools = append(a.pools, r.Name)
			}
		}
	}
	if !any {
		return nil
	}
	slices.Sort(a.pools)
	a.pools = slices.Compact(a.pools)
	return a
}
