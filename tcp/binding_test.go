package tcp

import (
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestBindPrefersPortsWithoutConnections: where connections have nearly all ports, Bind of port 0 takes one that none has begun
// at, as long as it finds one soon; ports are free again as their connections end.
func TestBindPrefersPortsWithoutConnections(t *testing.T) {
	d := newMuxTest(t)
	flow := wire.Tuple{Local: serverAddr, Remote: clientAddr, RemotePort: 80}
	var conns []*Conn
	for port := firstPort; port <= lastPort; port++ {
		if port%32 == 5 {
			continue // within the ports that Bind tries
		}
		flow.LocalPort = uint16(port)
		c, err := d.m.Connect(d.now, flow, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for range 8 {
		b, err := d.m.Bind(wire.Addr{}, 0, BindOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, port := b.Addr(); port%32 != 5 || d.m.PortActive(port) {
			t.Fatalf("port %d", port)
		}
		defer b.Close()
	}
	for _, c := range conns {
		c.Abort(d.now)
	}
	d.m.Poll(d.now)
	for port := firstPort; port <= lastPort; port++ {
		if d.m.PortActive(uint16(port)) {
			t.Fatalf("port %d has a connection still", port)
		}
	}
}

// TestABindingReservesItsPort: neither Connect, which chooses, nor a listener gets it; a listener of its own gives it back
// to the binding, and Close frees it once.
func TestABindingReservesItsPort(t *testing.T) {
	d := newMuxTest(t)
	var all []*Binding
	for port := firstPort; port <= lastPort; port++ {
		if port == 20000 {
			continue
		}
		b, err := d.m.Bind(serverAddr, uint16(port), BindOptions{Reuse: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	flow := wire.Tuple{Local: serverAddr, Remote: clientAddr, RemotePort: 80}
	c, _, err := d.dial(flow)
	if err != nil || c.Tuple().LocalPort != 20000 {
		t.Fatal(err)
	}
	if _, _, err := d.dial(flow); err != ErrNoPort {
		t.Error(err)
	}
	b := all[0]
	_, port := b.Addr()
	flow.LocalPort = port
	for range 2 {
		l, err := b.Listen(1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Listen(1, nil, nil); err != ErrInUse {
			t.Error("a binding listens twice:", err)
		}
		if _, err := b.Connect(d.now, flow, nil, nil); err != ErrInUse {
			t.Error("a listener connects:", err)
		}
		l.Close(d.now)
		if _, err := d.m.Listen(serverAddr, port, 1, nil, nil); err != nil { // as with SO_REUSEADDR
			t.Error(err)
		} else {
			d.m.passive.listenerFor(&flow).Close(d.now)
		}
	}
	other := flow
	other.LocalPort++
	if _, err := b.Connect(d.now, other, nil, nil); err != ErrInUse {
		t.Error("another port:", err)
	}
	l, err := b.Listen(1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := d.m.Bind(serverAddr, port, BindOptions{Reuse: true}); err != ErrInUse {
		t.Error("the listener has lost its port:", err)
	}
	l.Close(d.now)
	b.Close()
	if d.m.passive.byPort[port] != nil || d.m.passive.bound.Has(port) {
		t.Error("the port is not free")
	}
	if _, err := b.Connect(d.now, flow, nil, nil); err != ErrInUse {
		t.Error("a closed binding connects:", err)
	}
}
