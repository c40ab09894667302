package control

import (
	"net/netip"

	"github.com/millrace/millrace/l7/proxy"
)

// Connection is a connection of a client to a listener.
type Connection struct {
	Loop     int
	Listener string
	Protocol string // "HTTP/1.1", "HTTP/2", "HTTP/3", "TLS" or "TCP" that is passed through; "" while it is not known
	Client   netip.AddrPort
	Address  netip.AddrPort // of the listener
	Pool     string         // of Backend
	Backend  string         // of a connection that is passed through, or of the one request in progress; "": none, or several
	Target   netip.AddrPort // of Backend
	State    string         // "opening", "idle", "active" or "passed"
	Requests int            // so far
	Active   int            // requests now
}

// Connections calls yield with the connections of clients of all loops, until it returns false. Those of a loop are collected at once, on
// its thread. One that opens or ends meanwhile may be missing.
func (s *Set) Connections(yield func(Connection) bool) {
	var list []Connection
	for i, l := range s.loops {
		list = list[:0]
		if !s.on(l, func() {
			l.worker.Clients(func(c proxy.Client) { list = append(list, connection(i, &c)) })
		}) {
			continue
		}
		for _, one := range list {
			if !yield(one) {
				return
			}
		}
	}
}

// connection returns what programs are shown of a connection.
func connection(loop int, c *proxy.Client) Connection {
	one := Connection{
		Loop: loop, Listener: c.Listener.Name, Protocol: c.Protocol, Client: c.Remote, Address: c.Local,
		State: string(c.State), Requests: c.Requests, Active: c.Active,
	}
	if b := c.Backend; b != nil {
		one.Pool, one.Backend, one.Target = b.Pool().Name(), b.Name(), b.Address()
	}
	return one
}
