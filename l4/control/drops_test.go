package control

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// What is dropped before its connection is looked for, or on the way of an ICMP error, counts for its service too.
func TestEveryDropOfAServicesPacketIsCountedForIt(t *testing.T) {
	expired := client(host, web, "S")
	expired.ttl = 1
	forged := expired
	forged.src = netip.MustParseAddrPort("127.0.0.1:1")
	damaged := client(host, dns, "").bytes()
	damaged[len(damaged)-1] ^= 0x40
	for _, c := range []struct {
		name    string
		service string
		why     packet.Verdict
		send    func(w *world)
	}{
		{"a packet of which the hops ran out", "web", packet.DropTTL, func(w *world) {
			for range 1000 { // until the budget of answers is used up
				if w.send(0, expired.bytes()).verdict == packet.DropTTL {
					return
				}
			}
		}},
		{"a source that no client has", "web", packet.DropMartian, func(w *world) { w.refused(0, forged.bytes(), packet.DropMartian) }},
		{"a wrong checksum", "dns", packet.DropL4Checksum, func(w *world) { w.refused(0, damaged, packet.DropL4Checksum) }},
		{"an error for a backend without next hop", "dns", packet.DropNoNeighbor, func(w *world) {
			x := w.exchange(host, dns, "", "")
			w.g.hopChanged(netip.MustParseAddr("198.18.2.11"), nexthop.Hop{State: nexthop.Unresolved})
			m := message{
				src: "198.18.7.7", dst: "198.18.1.1", kind: wire.ICMPUnreachable, code: 1, about: x.toClient, from: macClient, to: macGw0,
			}
			w.refused(0, m.bytes(), packet.DropNoNeighbor)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "checksum: drop\n"+fill(""))
			c.send(w)
			for _, s := range w.g.Status().Services {
				if n := s.Dropped[c.why.String()]; (n == 1) != (s.Name == c.service) || n > 1 {
					t.Errorf("%s counts %v", s.Name, s.Dropped)
				}
			}
		})
	}
}
