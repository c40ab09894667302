// Package beside opens a stack on an interface that the kernel uses too: a node with one service, a host.
// The node steers the packets to the stack's address, and ARP and neighbour discovery for it, to the stack.
// All others go to the kernel.
package beside

import (
	"context"
	"errors"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
)

// Open returns a stack with one address on the interface, and one loop for each of its receive queues. Close
// of the stack gives the interface back.
func Open(name string, addr netip.Prefix) (*socket.Stack, error) {
	n, err := node.Open(node.Config{
		Devices: []node.Device{{Name: name}},
		Ops:     gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash, // the hash is that of the loop of a flow
	})
	if err != nil {
		return nil, err
	}
	g, err := serve(n, addr)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	s := socket.Attach(g, socket.AttachConfig{Done: n.Ended(), Release: func() error {
		stop()
		return errors.Join(<-ran, n.Close())
	}})
	if err := g.Sync(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// serve adds a host with the address to the node, and steers its packets.
func serve(n *node.Node, addr netip.Prefix) (*host.Group, error) {
	g, err := host.New(host.Config{Loops: n.Loops(), Dispatched: true})
	if err != nil {
		return nil, err
	}
	if err := g.AddAddr(0, addr, ip.Static, true); err != nil {
		return nil, err
	}
	claims := []pmd.Rule{{Addr: addr.Addr()}, {Addr: addr.Addr(), Kind: pmd.Neighbor}}
	s := node.Service{Name: "host", Entered: true, Claims: func() []pmd.Rule { return claims }}
	for _, h := range g.Hosts {
		s.Handlers = append(s.Handlers, h)
	}
	return g, errors.Join(n.Add(s), n.Start())
}
