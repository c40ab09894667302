package rdmaperf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma"
)

// Port is the default port of RDMA-CM.
const Port = 7174

// Device is an RDMA device on an interface of the kernel.
type Device struct {
	Context *rdma.Context

	node   *node.Node
	hops   *nexthop.Kernel
	cancel context.CancelFunc
	done   chan error
}

// Open opens an interface. The address is one of the kernel's there: the first one if it is not valid.
func Open(name string, driver device.Driver, addr netip.Addr) (*Device, error) {
	if !addr.IsValid() {
		var err error
		if addr, err = firstAddr(name); err != nil {
			return nil, err
		}
	}
	n, err := node.Open(node.Config{Loops: 1, Devices: []node.Device{{Name: name, Driver: driver}}})
	if err != nil {
		return nil, err
	}
	d := &Device{node: n, done: make(chan error, 1)}
	if d.hops, err = nexthop.NewKernel([]string{name}); err == nil {
		d.Context, err = rdma.New(n, rdma.Config{Addr: addr, Hops: d.hops})
	}
	if err == nil {
		err = n.Add(d.Context.Service())
	}
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		err = errors.Join(err, n.Close())
		if d.hops != nil {
			err = errors.Join(err, d.hops.Close())
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() { d.done <- n.Run(ctx) }()
	return d, nil
}

// Close ends the device.
func (d *Device) Close() error {
	d.cancel()
	return errors.Join(<-d.done, d.node.Close(), d.hops.Close())
}

// firstAddr returns an interface's first address of IPv4, or else of IPv6 beyond the link.
func firstAddr(name string) (best netip.Addr, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return best, fmt.Errorf("interface %s: %w", name, err)
	}
	addrs, err := i.Addrs()
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr(), nil
		}
		if !best.IsValid() {
			best = p.Addr()
		}
	}
	if !best.IsValid() && err == nil {
		err = fmt.Errorf("interface %s has no address: add one by `ip addr add`, or name one by --addr", name)
	}
	return best, err
}
