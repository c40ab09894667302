package socket

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// TestNetConn runs the conformance tests of golang.org/x/net on connections between the two hosts.
func TestNetConn(t *testing.T) {
	for _, network := range []struct{ name, addr string }{{"tcp4", addrB}, {"tcp6", addrB6}} {
		t.Run(network.name, func(t *testing.T) {
			x := newWorld(t, with{loops: 2})
			l, err := x.b.Listen(network.name, net.JoinHostPort(network.addr, "0"))
			if err != nil {
				t.Fatal(err)
			}
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				if c1, err = x.a.Dial(network.name, l.Addr().String()); err != nil {
					return nil, nil, nil, err
				}
				if c2, err = l.Accept(); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() { _, _ = c1.Close(), c2.Close() }, nil
			})
		})
	}
}
