package control

import (
	"context"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
)

// ResolveClients finds the way to clients whose connections the loops know only from a backend, or from another
// gateway, until ctx ends. on(i, f) has f run by loop i and returns when it has, false if the loop runs no more.
func (g *Gateway) ResolveClients(ctx context.Context, now func() clock.Time, on func(loop int, f func()) bool) {
	found := make(chan clientHop, 256)
	go func() { // apart from the resolver, which must not wait for a loop
		for {
			select {
			case <-ctx.Done():
				return
			case f := <-found:
				on(f.loop, func() { g.handlers[f.loop].SetClientHop(now(), f.client, f.hop) })
			}
		}
	}()
	var buf []netip.Addr
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.clientsAsked:
		}
		for i, h := range g.handlers {
			g.passSenders(h)
			if buf = h.AskedClients(buf[:0]); len(buf) == 0 {
				continue
			}
			g.opt.Resolver.Find(append([]netip.Addr(nil), buf...), func(a netip.Addr, hop nexthop.Hop) {
				if hop.State == nexthop.Ready && int(hop.Dev) >= len(g.opt.Devices) {
					hop = nexthop.Hop{State: nexthop.NoRoute}
				}
				select {
				case found <- clientHop{i, a, hopOf(hop)}:
				case <-ctx.Done():
				}
			})
		}
	}
}

// clientHop is the way to a client that a loop has asked for.
type clientHop struct {
	loop   int
	client netip.Addr
	hop    datapath.Hop
}

// passSenders passes on the senders of requests that a loop has answered.
func (g *Gateway) passSenders(h *datapath.Handler) {
	if g.opt.Neighbor == nil {
		return
	}
	var list [32]datapath.Sender
	for n := h.Senders(list[:]); n > 0; n = h.Senders(list[:]) {
		for _, s := range list[:n] {
			g.opt.Neighbor(s.Addr, nexthop.Hop{MAC: s.Hop.MAC, VLAN: s.Hop.VLAN, Dev: s.Hop.Dev, State: nexthop.Ready})
		}
	}
}
