// Package beside opens a stack on an interface that the kernel uses too. The XDP program of the driver gives
// the stack the packets to its address, and ARP and neighbour discovery for it. All others go to the kernel.
package beside

import (
	"context"
	"errors"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// Open returns a stack with one loop and one address on the interface. Close of the stack gives the
// interface back.
func Open(name string, addr netip.Prefix) (*socket.Stack, error) {
	arena, pools, err := device.NewArena(1, name)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open(device.Config{Name: name, Pools: pools})
	if err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	release := func() error { return errors.Join(dev.Close(), arena.Close()) }
	loops, err := stack.NewLoops(stack.Config{
		Devices: []pmd.Driver{dev.Queues[0]}, Pool: pools[0], Engine: gpukern.NewCPU(gpukern.Config{}),
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s, err := attach(loops, addr, release)
	if err == nil {
		err = dev.Steer(pmd.Rule{Addr: addr.Addr()}, pmd.Rule{Addr: addr.Addr(), Kind: pmd.Neighbor})
	}
	if s == nil {
		return nil, errors.Join(err, stack.CloseAll(loops...), release())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// attach runs the loops with a host that has the address.
func attach(loops []*stack.Loop, addr netip.Prefix, release func() error) (*socket.Stack, error) {
	g, err := host.New(host.Config{Loops: loops})
	if err != nil {
		return nil, err
	}
	if err := g.AddAddr(0, addr, ip.Static, true); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = stack.ServeAll(ctx, loops...)
	}()
	return socket.Attach(g, socket.AttachConfig{Done: ended, Release: func() error {
		stop()
		<-ended
		return errors.Join(err, stack.CloseAll(loops...), release())
	}}), nil
}
