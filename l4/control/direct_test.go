package control

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const directConfig = `
devices: [{name: gw0}, {name: gw1}]
table: {size: 1024}
services:
  - {name: web, mode: l2, address: 198.18.1.1:80, backends: [{address: 198.18.2.11}, {address: 198.18.2.12}]}
  - {name: dns, mode: l2, protocol: udp, address: 198.18.1.1:53, backends: [{address: 198.18.2.11}]}
`

// A direct connection by link address changes those addresses and the time to live, and holds neither a source port nor a slot for
// replies.
func TestADirectConnectionHasTheClientsSideOnly(t *testing.T) {
	w := newWorld(t, directConfig)
	for _, s := range []seg{client(host, web, "S"), client(host, web, "A"), client(host, dns, "")} {
		p := s.bytes()
		got := w.expect(0, p, 1)
		p[22]--
		wire.IPv4(p[14:]).FillChecksum()
		if !bytes.Equal(got[12:], p[12:]) || [6]byte(got[:6]) != macBackend || [6]byte(got[6:12]) != macGw1 {
			t.Errorf("sent %x\ngot %x", p, got)
		}
	}
	w.audit()
	for from, c := range w.conns() {
		if c.Source.IsValid() {
			t.Errorf("%v holds source %v", from, c.Source)
		}
	}
	if n := len(w.conns()); n != 1 { // both of one client's address and port
		t.Errorf("%d clients", n)
	}
	if n := w.h.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
	w.refused(1, answer(client(host, web, "S").bytes(), "SA").bytes(), packet.DropNoService)
	w.after(3 * time.Hour)
	w.audit() // no slot is left
	if n := w.h.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// A connection that began at another gateway goes on where both choose the same backend.
func TestAConnectionInTheMiddleIsAdopted(t *testing.T) {
	for _, c := range []struct{ name, config string }{{"direct", directConfig}, {"the client's address", fill("source: client")}} {
		t.Run(c.name, func(t *testing.T) {
			one, two := newWorld(t, c.config), newWorld(t, c.config)
			first := one.expect(0, client(host, web, "S").bytes(), 1)
			moved := two.expect(0, client(host, web, "PA").bytes(), 1)
			if a, b := flowOf(first), flowOf(moved); a.dst != b.dst || [6]byte(a.dstMAC) != [6]byte(b.dstMAC) {
				t.Errorf("went to %v, then to %v", a.dst, b.dst)
			}
			two.refused(0, client("198.18.0.9:40001", web, "SA").bytes(), packet.DropNoFlow)
			two.refused(0, client("198.18.0.9:40001", web, "SF").bytes(), packet.DropNoFlow)
			two.refused(0, client("198.18.0.9:40001", web, "P").bytes(), packet.DropNoFlow)
		})
	}
}
