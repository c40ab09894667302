package main

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

// endpoint is an interface and how to open it, from flags.
type endpoint struct{ device, driver, mode string }

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

// queues is how many queues must be opened for all packets to arrive.
func (e *endpoint) queues() int {
	if d := device.Driver(e.driver); d == device.TAP || d == device.AFPacket {
		return 1
	}
	n, err := afxdp.RxQueues(e.device)
	if err != nil {
		return 1 // opening reports the error
	}
	return max(n, 1)
}

// open opens the interface with one queue for each pool.
func (e *endpoint) open(c *console, pools []*ring.Pool, all bool) (*device.Device, error) {
	d, err := device.Open(device.Config{
		Name: e.device, Driver: device.Driver(e.driver), Mode: e.mode, Pools: pools, All: all,
	})
	if err == nil && d.Why != "" {
		c.complain(errors.New(e.device + ": the driver is " + string(d.Driver) + ", because " + d.Why))
	}
	return d, err
}

// returned checks that every frame has come back to its pool, and gives the memory back.
func returned(arena *ring.Arena, pools []*ring.Pool) error {
	holders := make([]ring.Holder, len(pools))
	for i, p := range pools {
		holders[i] = p
	}
	return errors.Join(ring.Audit(arena, holders...), arena.Close())
}

// openSender opens the interface to send on its first queue. The kernel keeps all that it receives.
func (e *endpoint) openSender(c *console) (pmd.Driver, *ring.Pool, func(), error) {
	arena, pools, err := device.NewArena(e.queues(), e.device)
	if err != nil {
		return nil, nil, nil, err
	}
	d, err := e.open(c, pools, false)
	if err != nil {
		return nil, nil, nil, errors.Join(err, arena.Close())
	}
	return d.Queues[0], pools[0], func() {
		if err := errors.Join(d.Close(), returned(arena, pools)); err != nil {
			c.complain(err)
		}
	}, nil
}
