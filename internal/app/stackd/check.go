package stackd

import (
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/pmd/device"
)

// Check finds the errors that no single key shows, in a configuration that was put together from flags. They are
// a *ConfigError.
func (c *Config) Check() error {
	d := strictyaml.New("", nil)
	c.check(&places{}, d.Fail)
	return d.Err()
}

// nth returns the place of item i, nil where it is not known.
func nth(list []*yaml.Node, i int) *yaml.Node {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// check compares the parts of the configuration.
func (c *Config) check(at *places, fail func(n *yaml.Node, hint, format string, args ...any)) {
	c.checkDevices(at, fail)
	for i, r := range c.Routes {
		n := nth(at.routes, i)
		switch {
		case r.Via.IsValid() && r.To.IsValid() && r.Via.Is4() != r.To.Addr().Is4():
			fail(n, "", "the route to %s has a gateway of the other address family", r.To)
		case r.Device != "" && c.device(r.Device) < 0:
			fail(n, c.deviceHint(), "the route names the device %q, which is none of the host's", r.Device)
		case c.port(r.Device, r.Via) < 0:
			fail(n, "name the device", "it is not clear by which device the route to %s goes", r.To)
		case r.Via.IsValid() && c.has(r.Via):
			fail(n, "", "the gateway %s of the route to %s is the host itself", r.Via, r.To)
		case r.Via.IsValid() && !c.reaches(&r):
			hint := ""
			if n != nil { // flags have no such routes
				hint = fmt.Sprintf("where it is on the link nevertheless, add the route {to: %s/%d}", r.Via, r.Via.BitLen())
			}
			fail(n, hint, "the gateway %s of the route to %s is in no network of the host", r.Via, r.To)
		}
	}
	for i, v := range c.Neighbors {
		if c.port(v.Device, v.Address) < 0 {
			fail(nth(at.neighbors, i), c.deviceHint(), "it is not clear on which device the neighbour %s is", v.Address)
		}
	}
	c.checkServices(at, fail)
	if c.RDMA.Address != "" {
		if _, err := c.rdmaAddress(); err != nil {
			fail(at.rdma, "", "rdma: %v", err)
		}
	}
	if n := len(c.CPUs.List); n > 0 && len(c.Devices) > 0 && n != c.Devices[0].Queues {
		fail(at.cpus, "name one for each loop", "cpus names %d CPUs for %d loops", n, c.Devices[0].Queues)
	}
}

// reaches reports whether the gateway of r may be on the link of its device, so that ARP or neighbour discovery
// finds it: in the network of an address, or of a route without a gateway. Networks that are learned are not
// known yet.
func (c *Config) reaches(r *Route) bool {
	at := c.port(r.Device, r.Via)
	v := &c.Devices[at]
	if r.Via.IsLinkLocalUnicast() || r.Via.Is4() && v.DHCP || r.Via.Is6() && v.SLAAC {
		return true
	}
	for _, p := range v.Addresses {
		if p.Contains(r.Via) {
			return true
		}
	}
	for _, o := range c.Routes {
		if !o.Via.IsValid() && o.To.Contains(r.Via) && c.port(o.Device, o.To.Addr()) == at {
			return true
		}
	}
	return false
}

func (c *Config) checkDevices(at *places, fail func(*yaml.Node, string, string, ...any)) {
	owner := map[netip.Addr]string{}
	for i, v := range c.Devices {
		n := nth(at.devices, i)
		if c.device(v.Name) != i {
			fail(n, "", "the device %q is there twice", v.Name)
		}
		if v.Queues != c.Devices[0].Queues {
			fail(n, "a loop serves one queue of each device", "%s has %d queues, and %s has %d", v.Name, v.Queues, c.Devices[0].Name, c.Devices[0].Queues)
		}
		if devargs.Is(v.Name) {
			if err := devargs.Check(v.Name); err != nil {
				fail(n, "", "no device: %v", err)
			}
			if v.Driver != string(device.Auto) || v.Mode != "auto" {
				fail(n, "leave driver and mode out: the name selects them", "%s has driver %s, mode %s", v.Name, v.Driver, v.Mode)
			}
			if v.Take == TakeAddresses {
				fail(n, "write take: all, or leave it out", "%s brings every packet", v.Name)
			}
		}
		if v.Driver == string(device.TAP) && v.Ring != device.StackRing {
			fail(n, "`ip link set DEV txqueuelen N` sets it", "%s has ring %d, but packets of a tap device wait in the kernel", v.Name, v.Ring)
		}
		if v.Take == TakeAddresses && (v.DHCP || v.SLAAC) {
			fail(n, "write take: all, or addresses", "%s cannot learn an address while it takes only packets to known ones", v.Name)
		}
		if len(v.Addresses) == 0 && !v.DHCP && !v.SLAAC {
			fail(n, "write addresses: [198.18.0.2/24], or dhcp: true, or slaac: true", "%s has no address, and no way to get one", v.Name)
		}
		for _, p := range v.Addresses {
			if other, twice := owner[p.Addr()]; twice {
				fail(n, "", "the address %s is on %s already", p.Addr(), other)
			}
			owner[p.Addr()] = v.Name
		}
	}
}

func (c *Config) checkServices(at *places, fail func(*yaml.Node, string, string, ...any)) {
	type door struct {
		addr netip.Addr
		port uint16
	}
	taken := map[door]Service{}
	for i, s := range c.Services {
		n := nth(at.services, i)
		if other, ok := taken[door{s.Address, s.Port}]; ok {
			fail(n, "give one of them another port", "%s is at port %d, where %s is already", s.Kind, s.Port, other.Kind)
		}
		taken[door{s.Address, s.Port}] = s
		if s.Address.IsValid() && !c.has(s.Address) {
			fail(n, "leave address out for all of the host's", "%s is to be at %s, which is no address of the host", s.Kind, s.Address)
		}
	}
}

// has reports whether a is an address that the configuration gives the host.
func (c *Config) has(a netip.Addr) bool {
	for _, v := range c.Devices {
		for _, p := range v.Addresses {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}

// deviceHint lists the devices.
func (c *Config) deviceHint() string {
	var list []string
	for _, v := range c.Devices {
		list = append(list, v.Name)
	}
	return strictyaml.Allowed(list)
}
