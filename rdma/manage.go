package rdma

import (
	"context"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/cm"
)

// ConnectionHandler takes the events of connections that a caller of Context.CM makes, and whose queue pairs it leads itself. It is the
// Data of a cm.Listener or cm.Conn.
type ConnectionHandler interface {
	// ConnectionEvent is called by the holder of the context's loop, and borrows the event. It must not block. Listeners get Requested
	// alone.
	ConnectionEvent(e cm.Event)
}

// CM calls f with the manager of the context's connections, as the holder of the loop. Where f connects, a Route to the peer is open.
func (c *Context) CM(f func(now clock.Time, m *cm.Manager) error) error {
	now := c.lock.Enter()
	defer c.lock.Exit()
	return f(now, c.gsi.manager)
}

// Route is the way to an address. While it is open, the next hop is followed.
type Route struct {
	c *Context
	p *path
}

// OpenRoute waits until packets may be sent to an address, for at most a second.
func (c *Context) OpenRoute(ctx context.Context, a netip.Addr) (*Route, error) {
	p, err := c.openPath(a)
	if err != nil {
		return nil, err
	}
	if err := c.waitPath(ctx, p); err != nil {
		c.closePath(p)
		return nil, err
	}
	return &Route{c, p}, nil
}

// Close ends the use of the route. The caller does not hold the loop.
func (r *Route) Close() { r.c.closePath(r.p) }
