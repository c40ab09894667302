package main

import (
	"slices"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

// endpoint is an interface and how to open it, from flags.
type endpoint struct{ name, driver, mode string }

// check rejects unknown drivers and modes.
func (e *endpoint) check() error {
	if !slices.Contains(device.Drivers, device.Driver(e.driver)) {
		return usage("no driver %q; say auto, afxdp, afpacket or tap", e.driver)
	}
	if _, ok := device.Modes[e.mode]; !ok {
		return usage("no mode %q; say auto, native or generic", e.mode)
	}
	return nil
}

// queues is the number of queues that must be opened for all packets to arrive.
func (e *endpoint) queues() int {
	if d := device.Driver(e.driver); d == device.TAP || d == device.AFPacket || devargs.Is(e.name) {
		return 1
	}
	n, err := afxdp.RxQueues(e.name)
	if err != nil {
		return 1 // opening reports the error
	}
	return max(n, 1)
}

// device returns the endpoint as a device of a node; all takes every packet from the kernel.
func (e *endpoint) device(all bool) node.Device {
	return node.Device{Name: e.name, Driver: device.Driver(e.driver), Mode: e.mode, All: all}
}

// openDevice opens a device as a node does that has no Config.OpenDevice.
func openDevice(c node.Device, pools []*ring.Pool) (*device.Device, error) {
	if c.Driver != device.TAP && !devargs.Is(c.Name) {
		if err := node.FindInterface(c.Name); err != nil {
			return nil, err
		}
	}
	return device.Open(c.Config(pools))
}

// openSender opens the interface to send on its first queue, with the pool of its frames. The kernel keeps
// all packets that it receives. The node's loops never run.
func (e *endpoint) openSender(c *console) (out pmd.Driver, pool *ring.Pool, closeAll func(), err error) {
	n, err := node.Open(node.Config{
		Devices: []node.Device{e.device(false)}, Loops: e.queues(), Log: c.warnings(),
		OpenDevice: func(c node.Device, pools []*ring.Pool) (*device.Device, error) {
			d, err := openDevice(c, pools)
			if err == nil {
				out, pool = d.Queues[0], pools[0]
			}
			return d, err
		},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return out, pool, func() { closing(c, n) }, nil
}
