package proxy

import (
	"net/netip"

	"github.com/millrace/millrace/l7/h1side"
	"github.com/millrace/millrace/l7/h2side"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/pool"
)

// Client is a connection of a client, as a listing shows it.
type Client struct {
	Listener *Listener
	Remote   netip.AddrPort // the client's address, also where a PROXY header says it
	Local    netip.AddrPort // what the client connected to
	Protocol string         // "HTTP/1.1", "HTTP/2", "HTTP/3", "TLS" or "TCP" that is passed through; "" while it is not known
	State    ClientState
	Requests int           // so far
	Active   int           // requests and tunnels now
	Backend  *pool.Backend // of a connection that is passed through, or of the one request in progress; nil: none, or several
}

// ClientState is the phase that a connection of a client is in.
type ClientState string

// The values of ClientState.
const (
	ClientOpening ClientState = "opening" // no version of HTTP and no backend yet: TLS, a PROXY header or a ClientHello is to come
	ClientIdle    ClientState = "idle"    // between requests
	ClientActive  ClientState = "active"  // with requests
	ClientPassed  ClientState = "passed"  // passed through to a backend
)

// Clients calls yield with the connections of clients. It belongs to the loop.
func (w *Worker) Clients(yield func(Client)) {
	for l, info := range w.fronts {
		if info == nil {
			continue
		}
		c := info.describe()
		if e, ok := l.Session.(*passEnd); ok {
			c.Protocol, c.State, c.Backend = "TCP", ClientOpening, e.p.backend
			if info.listener.Stream == StreamTLS {
				c.Protocol = "TLS"
			}
			if e.p.server.l != nil {
				c.State = ClientPassed
			}
		}
		yield(c)
	}
	for info := range w.fronts3 {
		yield(info.describe())
	}
}

// describe returns the connection, with its requests in progress.
func (c *clientInfo) describe() Client {
	d := Client{Listener: c.listener, Remote: c.addr, Local: c.local, State: ClientOpening, Requests: c.requests}
	if d.Listener == nil {
		d.Listener = c.at.current
	}
	if !d.Local.IsValid() {
		d.Local = d.Listener.Address
	}
	if c.conn == nil {
		return d
	}
	switch c.conn.(type) {
	case *h1side.Front:
		d.Protocol = "HTTP/1.1"
	case *h2side.Front:
		d.Protocol = "HTTP/2"
	case *h3side.Front:
		d.Protocol = "HTTP/3"
	}
	d.State = ClientIdle
	c.conn.Each(func(user any) {
		d.State, d.Active = ClientActive, d.Active+1
		if d.Backend = user.(*exchange).backend; d.Active > 1 {
			d.Backend = nil
		}
	})
	return d
}
