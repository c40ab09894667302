package stackd

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/program"
)

// RDMA configures the RDMA device of the host, which unmodified programs use (millrace exec --rdma).
type RDMA struct {
	Address  string   // key "address": of the host, whose UDP port 4791 it takes; "auto" is the first one, "" (default) is no device
	Socket   string   // key "socket": where programs find it; "auto" (default) is RDMASocket of the control socket, "" is none
	Groups   []string // key "groups": names or numbers; their members may use it, besides root and the node's own user
	Everyone bool     // key "everyone": all users may
}

// RDMASocket returns where programs find the RDMA device of a host with a control socket, "" for none.
func RDMASocket(control string) string {
	if control == "" {
		return ""
	}
	return strings.TrimSuffix(control, ".sock") + ".rdma.sock"
}

// rdmaDevice is the RDMA device of a host; the zero value is none.
type rdmaDevice struct {
	context  *rdma.Context
	hops     nexthop.Resolver
	programs atomic.Pointer[program.Server]
}

// rdmaAddress returns the address of the RDMA device.
func (c *Config) rdmaAddress() (netip.Addr, error) {
	if c.RDMA.Address != autoSocket {
		a, err := netip.ParseAddr(c.RDMA.Address)
		if err == nil && !c.has(a) {
			err = fmt.Errorf("%s is no address of the host (name one of its devices' addresses)", a)
		}
		return a, err
	}
	for _, v := range c.Devices {
		if len(v.Addresses) > 0 {
			return v.Addresses[0].Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("no device has an address in the configuration (name one)")
}

// openRDMA makes the device, before the loops run.
func (d *Daemon) openRDMA() error {
	if d.cfg.RDMA.Address == "" {
		return nil
	}
	addr, err := d.cfg.rdmaAddress()
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	d.rdma.hops = millrace.NextHops(d.stack)
	if d.rdma.context, err = rdma.New(d.node, rdma.Config{Addr: addr, Hops: d.rdma.hops}); err != nil {
		return err
	}
	return d.node.Add(d.rdma.context.Service())
}

// openPrograms serves programs of the device.
func (d *Daemon) openPrograms() error {
	path := d.cfg.RDMA.Socket
	if path == autoSocket {
		path = RDMASocket(d.cfg.Control.Socket)
	}
	if d.rdma.context == nil || path == "" {
		return nil
	}
	groups, err := groupIDs(d.cfg.RDMA.Groups)
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	s, err := program.New(program.Config{Context: d.rdma.context, Path: path, Groups: groups, Everyone: d.cfg.RDMA.Everyone})
	if err == nil {
		d.rdma.programs.Store(s)
	}
	return err
}

// closeRDMA ends the programs of the device. It may be called twice.
func (d *Daemon) closeRDMA() error {
	var err error
	if s := d.rdma.programs.Load(); s != nil {
		err = s.Close()
	}
	if d.rdma.hops != nil {
		err = errors.Join(err, d.rdma.hops.Close())
	}
	return err
}
