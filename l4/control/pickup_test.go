package control

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// pickUpWorld is a gateway whose backends' packets pick connections up, and that knows the way to the clients of
// 198.18.0.9.
func pickUpWorld(t *testing.T, config string) *world {
	t.Helper()
	c := parse(t, config)
	hops := hopsOf(c)
	for _, a := range []string{"198.18.0.9", "2001:db8::9"} {
		hops[netip.MustParseAddr(a)] = nexthop.Hop{MAC: macClient, Dev: 0, State: nexthop.Ready}
	}
	w := newWorldWith(t, c, hops)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		w.g.ResolveClients(ctx, func() clock.Time { return w.now }, func(_ int, f func()) bool { w.commands <- f; return true })
		close(done)
	}()
	t.Cleanup(func() { stop(); <-done })
	return w
}

// resolved runs what the control side asks the loop for.
func (w *world) resolved() {
	w.t.Helper()
	select {
	case f := <-w.commands:
		f()
	case <-time.After(10 * time.Second):
		w.t.Fatal("no way to the client comes")
	}
}

// backendSends is a packet of a backend to a client.
func backendSends(from, to, flags string) seg {
	return seg{src: netip.MustParseAddrPort(from), dst: netip.MustParseAddrPort(to), flags: flags, payload: "from the backend", from: macBackend, to: macGw1}
}

// A backend's packet alone is enough to go on with a connection that another gateway, or this one before a restart, has
// begun; the client's then belong to the same.
func TestABackendsPacketPicksItsConnectionUp(t *testing.T) {
	for _, c := range []struct{ name, backend, client, vip, flags string }{
		{"tcp", "198.18.2.12:8080", "198.18.0.9:40000", "198.18.1.1:80", "A"},
		{"tcp6", "[2001:db8:2::11]:8080", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "PA"},
		{"fin", "198.18.2.11:8080", "198.18.0.9:40000", "198.18.1.1:80", "FA"},
		{"udp", "198.18.2.11:5353", "198.18.0.9:40000", "198.18.1.1:53", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pickUpWorld(t, fill("source: client"))
			w.refused(1, backendSends(c.backend, c.client, c.flags).bytes(), packet.DropNoNeighbor)
			if n := w.g.Status().Connections; n != 0 {
				t.Errorf("%d connections before the way to the client is known", n)
			}
			w.resolved()
			for range 3 {
				p := w.expect(1, backendSends(c.backend, c.client, c.flags).bytes(), 0)
				got := flowOf(p)
				if got.src.String() != c.vip || got.dst.String() != c.client || got.dstMAC.String() != "02:00:00:00:00:c1" {
					t.Fatalf("the client gets a packet from %v to %v at %v", got.src, got.dst, got.dstMAC)
				}
				if string(recomputed(p)) != string(p) {
					t.Error("a checksum is wrong")
				}
			}
			if n := w.g.Status().HalfOpen; n != 1 {
				t.Errorf("%d half-open connections after packets of the backend alone", n)
			}
			flags := c.flags
			got := flowOf(w.expect(0, client(c.client, c.vip, flags).bytes(), 1))
			if got.dst.String() != c.backend || got.src.String() != c.client {
				t.Errorf("the client's packet goes from %v to %v", got.src, got.dst)
			}
			if st := w.g.Status(); st.HalfOpen != 0 || st.Connections != 1 {
				t.Errorf("%d connections, %d half-open after packets of both sides", st.Connections, st.HalfOpen)
			}
			w.audit()
		})
	}
}

// The way to a client is found after the packet that asked for it has been dropped. It waits for the next one, which may be a
// retransmission a minute later (RFC 6298 5.5). It then serves all packets to the client for a second, and is asked for again.
func TestTheWayToAClientWaitsForARetransmission(t *testing.T) {
	w := pickUpWorld(t, fill("source: client"))
	const backend, first, second, third = "198.18.2.12:8080", "198.18.0.9:40000", "198.18.0.9:40001", "198.18.0.9:40002"
	w.refused(1, backendSends(backend, first, "A").bytes(), packet.DropNoNeighbor)
	w.resolved()
	w.now = w.now.Add(time.Minute)
	w.expect(1, backendSends(backend, first, "A").bytes(), 0)
	w.now = w.now.Add(900 * time.Millisecond)
	w.expect(1, backendSends(backend, second, "A").bytes(), 0)
	w.now = w.now.Add(200 * time.Millisecond)
	w.refused(1, backendSends(backend, third, "A").bytes(), packet.DropNoNeighbor)
	w.resolved()
	w.now = w.now.Add(3 * time.Minute) // longer than TCP pauses between retransmissions: the way may be another by now
	w.refused(1, backendSends(backend, third, "A").bytes(), packet.DropNoNeighbor)
}

// What does not say where it belongs, or did not begin at a gateway, is dropped as before.
func TestWhatABackendsPacketDoesNotPickUp(t *testing.T) {
	two := strings.Replace(fill("source: client"), `[198.18.1.1:80, "`, `[198.18.1.1:80, 198.18.1.1:8000, "`, 1)
	for _, c := range []struct{ name, config, from, to, flags string }{
		{"a SYN", fill("source: client"), "198.18.2.11:8080", host, "S"},
		{"a SYN+ACK", fill("source: client"), "198.18.2.11:8080", host, "SA"},
		{"neither ACK nor RST", fill("source: client"), "198.18.2.11:8080", host, "P"},
		{"to another backend", fill("source: client"), "198.18.2.11:8080", "198.18.2.12:40000", "A"},
		{"with SNAT", fill(""), "198.18.2.11:8080", host, "A"},
		{"to an SNAT address", fill("source: client"), "198.18.2.11:8080", "198.18.2.1:4000", "A"},
		{"from an endpoint of two addresses", two, "198.18.2.11:8080", host, "A"},
		{"to itself", fill("source: client"), "198.18.2.11:8080", "198.18.2.11:40000", "A"},
		{"to port 0", fill("source: client"), "198.18.2.11:8080", "198.18.0.9:0", "A"},
		{"to a group", fill("source: client"), "198.18.2.11:8080", "224.0.0.1:1000", "A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pickUpWorld(t, c.config)
			w.refused(1, backendSends(c.from, c.to, c.flags).bytes(), packet.DropNoFlow)
		})
	}
	t.Run("a client that is denied", func(t *testing.T) {
		w := pickUpWorld(t, fill("source: client")+"sources: {deny: [198.18.0.0/24]}\n")
		w.refused(1, backendSends("198.18.2.11:8080", host, "A").bytes(), packet.DropDenied)
	})
	t.Run("a backend that is inactive", func(t *testing.T) {
		w := pickUpWorld(t, strings.Replace(fill("source: client"), "{name: b1,", "{name: b1, state: inactive,", 1))
		w.refused(1, backendSends("198.18.2.11:8080", host, "A").bytes(), packet.DropNoBackend)
	})
	t.Run("a RST, which is forwarded and leaves nothing", func(t *testing.T) {
		w := newWorld(t, fill("source: client"))
		w.h.SetClientHop(w.now, netip.MustParseAddr("198.18.0.9"), datapath.Hop{MAC: macClient, State: datapath.HopReady})
		w.expect(1, backendSends("198.18.2.11:8080", host, "R").bytes(), 0)
		if n := w.h.Connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	t.Run("the client is at another backend", func(t *testing.T) {
		w := pickUpWorld(t, fill("source: client"))
		w.expect(0, client(host, web, "S").bytes(), 1)
		at := flowOf(w.expect(0, client(host, web, "S").bytes(), 1)).dst.String()
		other := map[string]string{"198.18.2.11:8080": "198.18.2.12:8080", "198.18.2.12:8080": "198.18.2.11:8080"}[at]
		w.refused(1, backendSends(other, host, "A").bytes(), packet.DropNoFlow)
	})
	t.Run("IPv6 of an endpoint whose IPv4 has two addresses", func(t *testing.T) {
		w := pickUpWorld(t, two)
		w.refused(1, backendSends("[2001:db8:2::11]:8080", "[2001:db8::9]:40000", "A").bytes(), packet.DropNoNeighbor)
	})
}

// A flood of backends' packets asks for no more ways than the ring takes, and a way that is not found is asked for
// again.
func TestWaysToClientsAreBounded(t *testing.T) {
	w := newWorld(t, fill("source: client"))
	for i := range 10_000 {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 4000).String()
		if v := w.send(1, backendSends("198.18.2.11:8080", to, "A").bytes()).verdict; v != packet.DropNoNeighbor && v != packet.DropNoFlow {
			t.Fatalf("packet %d: %v", i, v)
		}
	}
	if n := len(w.h.AskedClients(nil)); n < 4000 || n > 4096 {
		t.Errorf("%d ways are asked for", n)
	}
	ask := func(want int) {
		t.Helper()
		w.refused(1, backendSends("198.18.2.11:8080", host, "A").bytes(), packet.DropNoNeighbor)
		if n := len(w.h.AskedClients(nil)); n != want {
			t.Errorf("asked for %d ways, want %d", n, want)
		}
	}
	ask(1)
	ask(0)
	w.after(1100 * time.Millisecond)
	ask(1)
}

// A way is asked for once in a second, unless more clients than are kept have been asked for since.
func TestAWayIsAskedForAgainInTime(t *testing.T) {
	w := newWorld(t, fill("source: client"))
	asked := func(when string, client int, want int) {
		t.Helper()
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(client >> 8), byte(client)}), 4000).String()
		w.refused(1, backendSends("198.18.2.11:8080", to, "A").bytes(), packet.DropNoNeighbor)
		if n := len(w.h.AskedClients(nil)); n != want {
			t.Fatalf("%s, client %d: asked for %d ways, want %d", when, client, n, want)
		}
	}
	asked("at first", 1, 1)
	asked("at once", 1, 0)
	w.now = w.now.Add(1100 * time.Millisecond)
	asked("later", 1, 1)
	for client := 2; client < 4200; client++ {
		asked("others", client, 1)
	}
	asked("when it is not kept any more", 1, 1)
}
