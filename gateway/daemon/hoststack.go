package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// With `stack: devices` the connections of listeners and pools are those of a host of the userspace stack, a service of the
// node beside the gateway's. It has the addresses of the devices.

// stackMemory bounds what connections have in their buffers, in bytes.
const stackMemory = 256 << 20

// resetTime is the time in which connections that are left at the end are reset.
const resetTime = time.Second

// openStack makes the host, and returns a loop for each of the node's.
func (d *Daemon) openStack(cfg *config.Config) ([]control.Loop, error) {
	c := host.Config{Loops: d.node.Loops(), Dispatched: true, TCP: tcp.Config{Budget: stackMemory}}
	for i, l := range d.node.Links() {
		is6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
		c.Links = append(c.Links, ip.Link{MAC: wire.MAC(l.MAC), MTU: l.MTU, LinkLocal: slices.ContainsFunc(cfg.Devices[i].Addresses, is6)})
	}
	group, err := host.New(c)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	d.host = socket.Attach(group, socket.AttachConfig{Done: d.node.Ended(), KeepAlive: -1}) // listeners have time-outs of their own
	if err := configureHost(group, cfg); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	group.Settle() // listeners ask each loop for its addresses
	var loops []control.Loop
	for _, h := range group.Hosts {
		loops = append(loops, control.StackLoop(h))
	}
	return loops, d.node.Add(node.Service{
		Name: "host", Handlers: group.Handlers(), Claims: group.Claims, Fallback: true, Entered: true, Metrics: d.host.WriteMetrics,
		LinkChanged: func(dev int, l node.Link) { group.SetLink(uint8(dev), l.MAC, l.MTU) },
	})
}

// configureHost enters addresses and routes.
func configureHost(g *host.Group, cfg *config.Config) error {
	for i := range cfg.Devices {
		for _, p := range cfg.Devices[i].Addresses {
			if err := g.AddAddr(uint8(i), p, ip.Static, true); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
	}
	for _, r := range cfg.Network.Routes {
		out := ip.Route{Prefix: r.To, Dev: uint8(deviceOf(cfg, &r))}
		if r.Via.IsValid() {
			out.Gateway = wire.AddrFrom(r.Via)
		}
		if err := g.AddRoute(out); err != nil {
			return fmt.Errorf("route to %s: %w", r.To, err)
		}
	}
	return nil
}

// deviceOf returns the number of a route's device.
func deviceOf(cfg *config.Config, r *config.NetworkRoute) int {
	for i := range cfg.Devices {
		dev := &cfg.Devices[i]
		if r.Device == dev.Name || r.Device == "" && slices.ContainsFunc(dev.Addresses, func(p netip.Prefix) bool { return p.Contains(r.Via) }) {
			return i
		}
	}
	return 0 // the only one
}

// resetHost resets the connections that the workers have left.
func (d *Daemon) resetHost() {
	if d.host == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), resetTime)
	defer cancel()
	_ = d.host.Shutdown(ctx) // its error is that time was up
}
