package control

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

const limited = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
limits: {packets: %d, connections: %d, burst: 1s, clients: 1024}
services:
  - {name: dns, protocol: udp, address: ["198.18.1.1:53", "[2001:db8:1::1]:53"], backends: [{address: ["198.18.2.11:53", "[2001:db8:2::11]:53"]}]}
  - {name: web, address: 198.18.1.1:80, limits: {packets: 3, connections: 2}, backends: [{address: 198.18.2.11:80}]}
`

// forwarded sends the packet n times at once and returns how often it was forwarded.
func (w *world) forwarded(p []byte, n int) (count int) {
	w.t.Helper()
	for range n {
		switch s := w.send(0, p); s.verdict {
		case packet.Forward:
			count++
		case packet.DropRateLimit:
		default:
			w.t.Fatalf("verdict %v", s.verdict)
		}
	}
	return count
}

func TestAClientIsHeldToItsPacketsPerSecond(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limited, 10, 0))
	p := client(host, dns, "").bytes()
	if n := w.forwarded(p, 30); n != 10 {
		t.Errorf("%d of 30 at once", n)
	}
	w.now = w.now.Add(500 * time.Millisecond)
	if n := w.forwarded(p, 30); n != 5 {
		t.Errorf("%d after half a second", n)
	}
	if n := w.forwarded(client("198.18.0.10:40000", dns, "").bytes(), 30); n != 10 {
		t.Errorf("%d of another client", n)
	}
	out := w.send(0, client("198.18.0.11:40000", dns, "").bytes()).p
	for range 50 {
		w.expect(1, answer(out, "").bytes(), 0) // replies are not counted
	}
	st := w.g.Status()
	if n := st.Services[0].Dropped["rate_limit"]; n != 65 || st.Dropped["rate_limit"] != 65 {
		t.Errorf("counted %d", n)
	}
	w.after(10 * time.Second)
	if n := w.forwarded(p, 30); n != 10 {
		t.Errorf("%d after a long pause", n)
	}
}

// Moments wrap after 2^48/16 ns: a client that comes shortly before that is as new as any.
func TestANewClientHasAFullBucketAtAnyTime(t *testing.T) {
	const wrap = clock.Time(1 << 44)
	for _, before := range []time.Duration{2*time.Minute + 1, 2 * time.Minute, time.Minute, time.Second + 1, time.Millisecond, 0, -time.Millisecond} {
		w := newWorld(t, fmt.Sprintf(limited, 10, 5))
		w.now = wrap.Add(-before)
		if n := w.forwarded(client(host, dns, "").bytes(), 30); n != 10 {
			t.Errorf("%v before moments wrap: %d of 30 at once", before, n)
		}
	}
}

// At a low rate a burst may be shorter than what one packet takes: it passes all the same.
func TestOneIsAlwaysAllowed(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(limited, 1, 0), "burst: 1s", "burst: 10ms", 1))
	for range 3 {
		if n := w.forwarded(client(host, dns, "").bytes(), 5); n != 1 {
			t.Errorf("%d of 5", n)
		}
		w.now = w.now.Add(time.Second)
	}
}

// An IPv6 client is its /64.
func TestAnIPv6ClientIsItsPrefix(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limited, 10, 0))
	count := 0
	for i := range 30 {
		src := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8::9:%x", i)), 40000).String()
		count += w.forwarded(client(src, "[2001:db8:1::1]:53", "").bytes(), 1)
	}
	if count != 10 {
		t.Errorf("%d of 30 at once", count)
	}
	if n := w.forwarded(client("[2001:db8:0:1::9]:40000", "[2001:db8:1::1]:53", "").bytes(), 30); n != 10 {
		t.Errorf("%d of another prefix", n)
	}
}

func TestNewConnectionsHaveALimitOfTheirOwn(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limited, 0, 4))
	count := 0
	for i := range 20 {
		count += w.forwarded(client(fmt.Sprintf("198.18.0.9:%d", 1000+i), dns, "").bytes(), 2)
	}
	if count != 8 {
		t.Errorf("%d packets of 4 connections", count)
	}
}

// The limit of a service is its own, and both have to allow a packet.
func TestAServiceHasItsOwnLimits(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limited, 10, 0))
	if n := w.forwarded(client(host, web, "S").bytes(), 20); n != 3 {
		t.Errorf("%d packets to web", n)
	}
	if n := w.forwarded(client(host, dns, "").bytes(), 20); n != 0 {
		t.Errorf("%d packets to dns, after 20 to web", n)
	}
	count := 0
	for i := range 3 {
		count += w.forwarded(client(fmt.Sprintf("198.18.0.20:%d", 1000+i), web, "S").bytes(), 1)
	}
	if count != 2 {
		t.Errorf("%d new connections to web", count)
	}
	if n := w.g.Status().Services[1].Dropped["rate_limit"]; n != 18 {
		t.Errorf("web counts %d drops", n)
	}
}

func TestLimitsDoNotAllocate(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limited, 1, 1))
	b := w.batch(0, client(host, dns, "").bytes())
	w.run(b)
	b = w.batch(0, client(host, dns, "").bytes())
	if err := w.engine.Submit(b); err != nil {
		t.Fatal(err)
	}
	w.engine.Poll(make([]*packet.Batch, 1))
	d := b.D[0]
	if n := testing.AllocsPerRun(100, func() { b.D[0] = d; w.h.Handle(w.now, b) }); n != 0 || b.D[0].Verdict != packet.DropRateLimit {
		t.Errorf("%.1f allocations, %v", n, b.D[0].Verdict)
	}
}

func TestLimitsChangeWithAReload(t *testing.T) {
	w := newWorld(t, fill(""))
	p := client(host, dns, "").bytes()
	if n := w.forwarded(p, 20); n != 20 {
		t.Fatalf("%d without limits", n)
	}
	if err := w.g.Reload(parse(t, "limits: {packets: 5}\n"+fill(""))); err != nil {
		t.Fatal(err)
	}
	if n := w.forwarded(p, 20); n != 5 {
		t.Errorf("%d with a limit", n)
	}
	if err := w.g.Reload(parse(t, fill(""))); err != nil {
		t.Fatal(err)
	}
	if n := w.forwarded(p, 20); n != 20 {
		t.Errorf("%d after it", n)
	}
}

// A service that comes after another has gone may get its number, but not the meters of its clients.
func TestANewServiceHasNewMeters(t *testing.T) {
	const devices = "devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1]\nservices:\n" +
		"  - {name: dns, protocol: udp, address: 198.18.1.1:53, backends: [{address: 198.18.2.11:53}]}\n"
	with := func(name, state string) string {
		return devices + "  - {name: " + name + ", protocol: udp, address: 198.18.1.1:54, limits: {packets: 1, burst: 1m}, backends: [{address: 198.18.2.12:54, state: " + state + "}]}\n"
	}
	p := client(host, "198.18.1.1:54", "").bytes()
	spent := func(w *world) (n int) { // packets until the limit; the service has no backend, and so no connection
		for w.send(0, p).verdict != packet.DropRateLimit {
			n++
		}
		return n
	}
	w := newWorld(t, with("a", "inactive"))
	if n := spent(w); n != 60 {
		t.Fatalf("%d packets within the limit", n)
	}
	w.reload(devices)
	w.reload(with("a", "inactive"))
	if n := spent(w); n != 0 {
		t.Errorf("%d packets more after a service has gone and come back at once", n)
	}
	number := w.g.reg.services.of["a"]
	w.reload(devices)
	w.looks()
	w.reload(with("b", "inactive"))
	if w.g.reg.services.of["b"] != number {
		t.Fatal("the number is not given again")
	}
	if n := spent(w); n != 60 {
		t.Errorf("%d packets of a new service within its limit, want 60", n)
	}
}
