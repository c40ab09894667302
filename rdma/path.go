package rdma

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/wire"
)

// path is the way to an address, for all that send there.
type path struct {
	addr wire.Addr
	hop  nexthop.Hop
	own  bool // the address is the context's: packets do not leave
	uses int

	changed []chan struct{} // of waitPath: closed by the next change of hop
}

// usable reports whether packets may be sent.
func (p *path) usable() bool { return p.own || p.hop.State == nexthop.Ready }

// openPath returns the path to an address, and has its next hop followed. The caller does not hold the loop's lock.
func (c *Context) openPath(a netip.Addr) (*path, error) {
	if !a.IsValid() || a.IsMulticast() || a.Is4() != c.cfg.Addr.Is4() {
		return nil, fmt.Errorf("%w: from %v to %v", ErrPath, c.cfg.Addr, a)
	}
	c.watching.Lock()
	defer c.watching.Unlock()
	addr := wire.AddrFrom(a)
	c.lock.Enter()
	p := c.paths[addr]
	known := p != nil
	if !known {
		p = &path{addr: addr, own: addr == c.addr}
		c.paths[addr] = p
	}
	p.uses++
	c.lock.ExitUnchanged()
	if !known && !p.own {
		c.watch()
	}
	return p, nil
}

// waitPath waits until packets may be sent on a path. It gives up without a route, and after patience without a link
// address.
func (c *Context) waitPath(ctx context.Context, p *path) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c.lock.Enter()
		usable, state := p.usable(), p.hop.State
		changed := make(chan struct{})
		p.changed = append(p.changed, changed)
		c.lock.ExitUnchanged()
		if usable {
			return nil
		}
		if state == nexthop.NoRoute {
			return fmt.Errorf("%w: no route to %v", ErrPath, p.addr)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %v does not answer ARP or neighbour discovery: %w", ErrPath, p.addr, ctx.Err())
		}
	}
}

// closePath ends one use.
func (c *Context) closePath(p *path) {
	c.watching.Lock()
	defer c.watching.Unlock()
	c.lock.Enter()
	p.uses--
	last := p.uses == 0
	if last {
		delete(c.paths, p.addr)
	}
	c.lock.ExitUnchanged()
	if last && !p.own {
		c.watch()
	}
}

// watch passes the resolver addresses that are in use.
func (c *Context) watch() {
	var list []netip.Addr
	c.lock.Enter()
	for a, p := range c.paths {
		if !p.own {
			list = append(list, a.Netip())
		}
	}
	c.lock.ExitUnchanged()
	c.cfg.Hops.Watch(list, c.hopChanged)
}

// hopChanged is called by the resolver.
func (c *Context) hopChanged(a netip.Addr, h nexthop.Hop) {
	c.lock.Enter()
	defer c.lock.Exit()
	p := c.paths[wire.AddrFrom(a)]
	if p == nil {
		return
	}
	p.hop = h
	for _, ch := range p.changed {
		close(ch)
	}
	p.changed = nil
	for _, q := range c.qps { // hops change rarely
		if q.path == p || q.waits {
			c.makeReady(q)
		}
	}
}

// AH is an address handle: where datagrams go.
type AH struct {
	pd     *PD
	path   *path
	number uint32
}

// CreateAH returns a handle for an address. SendWR.Path is its Number.
func (p *PD) CreateAH(a netip.Addr) (*AH, error) {
	c := p.ctx
	way, err := c.openPath(a)
	if err != nil {
		return nil, err
	}
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	h := &AH{pd: p, path: way, number: uint32(len(c.ahs))}
	for i, old := range c.ahs[1:] {
		if old == nil {
			h.number = uint32(i + 1)
			c.ahs[h.number] = h
			p.uses++
			return h, nil
		}
	}
	c.ahs = append(c.ahs, h)
	p.uses++
	return h, nil
}

// Number returns the number that SendWR.Path names.
func (h *AH) Number() uint32 { return h.number }

// Destroy ends the handle. Datagrams that are posted with it and have not left are dropped.
func (h *AH) Destroy() error {
	c := h.pd.ctx
	c.lock.Enter()
	if c.ahs[h.number] != h {
		c.lock.ExitUnchanged()
		return ErrClosed
	}
	c.ahs[h.number] = nil
	h.pd.uses--
	c.lock.ExitUnchanged()
	c.closePath(h.path)
	return nil
}
