// Package millrace opens a userspace TCP/IP stack on a network interface of this
// machine, beside the kernel's.
//
//	stack, err := millrace.Open("eth1", netip.MustParsePrefix("198.18.0.2/24"))
//	l, err := stack.Listen("tcp", ":80")
//	err = http.Serve(l, nil)
//
// The stack itself is package socket, which runs over any devices and does not import
// this package. What a process needs besides is package node; the L4 gateway is package
// gateway.
package millrace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// OpenConfig describes a stack on an interface of this machine, beside the kernel's.
type OpenConfig struct {
	Node node.Config // Devices has one entry; Ops is filled in. Without a Log warnings go to slog.Default

	Addrs  []netip.Prefix // of the stack: none of them may be the kernel's
	Routes []ip.Route     // nil copies the kernel's routes by the interface, with gateways that Addrs reach

	Host   host.Config         // limits and defaults; Loops and Dispatched are filled in
	Attach socket.AttachConfig // Done and Release are filled in
}

// Open returns a stack with addresses of its own on an interface that the kernel goes
// on using. Packets to these addresses come to the stack, all others stay with the
// kernel. It needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and has one loop for each
// queue that the interface receives on. Shutdown of the stack delivers what was written;
// Close resets connections. Both give the interface back, as does the end of the process,
// however it ends.
//
//	stack, err := millrace.Open("eth1", netip.MustParsePrefix("198.18.0.2/24"))
func Open(iface string, addrs ...netip.Prefix) (*socket.Stack, error) {
	return OpenConfig{Node: node.Config{Devices: []node.Device{{Name: iface}}}, Addrs: addrs}.Open()
}

// Open opens the interface and starts the stack.
func (c OpenConfig) Open() (*socket.Stack, error) {
	if len(c.Node.Devices) != 1 || len(c.Addrs) == 0 {
		return nil, errors.New("millrace: one device and at least one address are required")
	}
	kernels, _, err := nexthop.KernelAddrs()
	if err != nil {
		return nil, fmt.Errorf("millrace: the kernel's addresses: %w", err)
	}
	for _, p := range c.Addrs {
		if kernels[p.Addr()] {
			return nil, fmt.Errorf("millrace: the kernel has the address %s itself; give the stack another one", p.Addr())
		}
	}
	if c.Node.Devices[0].Ring == 0 {
		c.Node.Devices = slices.Clone(c.Node.Devices)
		c.Node.Devices[0].Ring = node.StackRing
	}
	if c.Node.Log == nil {
		c.Node.Log = slog.New(warnings{slog.Default().Handler()})
	}
	c.Node.Ops |= gpukern.OpParse | gpukern.OpChecksum | gpukern.OpHash // the hash names the loop of a flow
	n, err := node.Open(c.Node)
	if err != nil {
		return nil, err
	}
	s, err := c.serve(n)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return s, nil
}

// warnings passes what an operator has to act on to the program's log. Without it a stack that no packet reaches, as on a link
// that is down or with senders that leave checksums out, would be silent.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(list []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(list)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// serve starts a stack on a node that is open. On an error the caller closes the node.
func (c *OpenConfig) serve(n *node.Node) (*socket.Stack, error) {
	c.Host.Loops, c.Host.Dispatched = n.Loops(), true
	g, err := host.New(c.Host)
	if err != nil {
		return nil, err
	}
	if err := c.configure(n, g); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	c.Attach.Done, c.Attach.Release = n.Ended(), func() error {
		stop()
		return errors.Join(<-ran, n.Close())
	}
	s := socket.Attach(g, c.Attach)
	_, err = n.ReceiveLarge(true)
	if err := errors.Join(err, n.Add(Service(s)), n.Start()); err != nil {
		stop()
		return nil, err
	}
	go func() { ran <- n.Run(ctx) }()
	if err := g.Sync(ctx); err != nil {
		return nil, err // cannot be: ctx ends with the stack
	}
	return s, nil
}

// configure gives the host its addresses and routes.
func (c *OpenConfig) configure(n *node.Node, g *host.Group) error {
	for _, p := range c.Addrs {
		if err := g.AddAddr(0, p, ip.Static, true); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	routes := c.Routes
	if routes == nil {
		kernels, err := n.KernelRoutes(0)
		if err != nil {
			return fmt.Errorf("routes of the kernel: %w", err)
		}
		for _, r := range kernels {
			if slices.ContainsFunc(c.Addrs, func(p netip.Prefix) bool { return p.Contains(r.Gateway) }) {
				routes = append(routes, ip.Route{Prefix: r.Prefix, Gateway: wire.AddrFrom(r.Gateway), Metric: r.Metric})
			}
		}
	}
	for _, r := range routes {
		if err := g.AddRoute(r); err != nil {
			return fmt.Errorf("route to %s: %w", r.Prefix, err)
		}
	}
	return nil
}
