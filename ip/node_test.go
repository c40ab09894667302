package ip

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// pairs are two hosts of one net, by IP version.
var pairs = []struct{ name, a, b, bits string }{
	{"IPv4", "198.18.0.1", "198.18.0.2", "/24"},
	{"IPv6", "2001:db8::1", "2001:db8::2", "/64"},
}

func TestDatagramsAndEchoes(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			if v := a.udp(c.a, c.b, []byte("hello"), nil); v != packet.Forward {
				t.Fatal(v)
			}
			l.settle()
			if len(b.got) != 1 || string(b.gotBytes[0][8:]) != "hello" {
				t.Fatalf("got %q, verdicts %v", b.gotBytes, b.verdicts)
			}
			if g := b.got[0]; g.Src != addr(c.a) || g.Dst != addr(c.b) || g.TTL != 64 || g.Kind != Unicast || g.Packets != 1 {
				t.Errorf("%+v", g)
			}
			data := bytes.Repeat([]byte("abc"), 100)
			a.ping(c.a, c.b, 77, data)
			l.settle()
			if len(a.got) != 1 || !bytes.Equal(a.gotBytes[0][8:], data) || b.Stats().Echoes != 1 {
				t.Fatalf("echo: got %d, %v, %v", len(a.got), a.verdicts, b.verdicts)
			}
		})
	}
}

func TestLoopback(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.a + c.bits)
		a.udp(c.a, c.a, []byte("self"), nil)
		a.ping(c.a, c.a, 1, nil)
		l.settle()
		if len(a.got) != 2 || a.got[0].Dev != LoopDev || a.Stats().Echoes != 1 {
			t.Errorf("%s: %d datagrams, %v", c.name, len(a.got), a.verdicts)
		}
	}
}

func TestUnansweredNeighbour(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.a + c.bits)
		for i := range 132 {
			if v := a.udp(c.a, c.b, []byte{byte(i)}, nil); v != packet.Forward {
				t.Fatal(v)
			}
		}
		if s := a.Stats(); s.Drops[packet.DropNoNeighbor] != 4 || s.NeighborMem == 0 {
			t.Errorf("%s: with a full queue %d drops, %d bytes", c.name, s.Drops[packet.DropNoNeighbor], s.NeighborMem)
		}
		l.after(10 * time.Second)
		if len(a.errors) != 128 || !a.errors[0].Local || a.errors[0].Kind != HostUnreachable {
			t.Fatalf("%s: errors %+v", c.name, a.errors)
		}
		want := wire.Tuple{Local: addr(c.a), Remote: addr(c.b), LocalPort: 40001, RemotePort: 40002}
		if a.errors[0].Tuple != want {
			t.Errorf("%s: %+v", c.name, a.errors[0].Tuple)
		}
		if s := a.Stats(); s.Drops[packet.DropNoNeighbor] != 132 || s.NeighborMem != 0 {
			t.Errorf("%s: at last %d drops, %d bytes", c.name, s.Drops[packet.DropNoNeighbor], s.NeighborMem)
		}
	}
}

// Neighbours that do not answer leave room for those that do.
func TestQueuesShareBudget(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
		for dead := range 5 {
			for range 200 {
				a.udp(c.a, nth(c, 100+dead).String(), make([]byte, 1400), nil)
			}
		}
		if m := a.Stats().NeighborMem; m > 512<<10 || m < 256<<10 {
			t.Errorf("%s: %d bytes wait", c.name, m)
		}
		if v := a.udp(c.a, c.b, make([]byte, 1400), nil); v != packet.Forward {
			t.Errorf("%s: %v", c.name, v)
		}
		l.settle()
		if len(b.got) != 1 {
			t.Errorf("%s: %d datagrams arrived", c.name, len(b.got))
		}
	}
}

func TestFragments(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
		data := make([]byte, maxDatagram-8-map[bool]int{true: 20}[addr(c.a).Is4()]) // the longest that there is
		for i := range data {
			data[i] = byte(i * 7 >> 3)
		}
		if v := a.udp(c.a, c.b, data, nil); v != packet.Forward {
			t.Fatal(v)
		}
		l.settle() // the fragments have waited for the neighbour
		if len(b.got) != 1 || !bytes.Equal(b.gotBytes[0][8:], data) {
			t.Fatalf("%s: %d datagrams, %v", c.name, len(b.got), b.verdicts)
		}
		if v := a.udp(c.a, c.b, append(data, 0), nil); v != packet.DropTooBig {
			t.Errorf("%s: one byte more: %v", c.name, v)
		}
		if v := a.udp(c.a, c.b, data, func(h *Header) { h.DontFragment = true }); v != packet.DropTooBig {
			t.Errorf("%s: %v", c.name, v)
		}
		a.ping(c.a, c.b, 5, data[:5000])
		l.settle()
		if len(a.got) != 1 || !bytes.Equal(a.gotBytes[0][8:], data[:5000]) {
			t.Fatalf("%s: a large echo: %d datagrams, %v, %v", c.name, len(a.got), a.verdicts, b.verdicts)
		}
	}
}

// With two links: an address is taken from either (RFC 1122 3.3.4.2), a broadcast and a link-local address
// only from its own; routes lead to their devices.
func TestTwoDevices(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, func(c *Config) { c.Links = append(c.Links, Link{MAC: wire.MAC{2, 0, 0, 0, 1, 1}, MTU: 1400}) })
	for i, p := range []string{"198.18.0.1/24", "198.19.0.1/24", "fe80::1/64", "fe80::2/64"} {
		if err := a.AddAddr(l.now, uint8(i%2), netip.MustParsePrefix(p), Static, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		dev  uint8
		addr string
		want Kind
	}{
		{0, "198.18.0.1", Unicast},
		{1, "198.18.0.1", Unicast},
		{0, "198.18.0.255", Broadcast},
		{1, "198.18.0.255", NotLocal},
		{LoopDev, "198.18.0.255", Broadcast},
		{0, "fe80::1", Unicast},
		{1, "fe80::1", NotLocal},
		{LoopDev, "fe80::1", Unicast},
		{LoopDev, "127.0.0.1", Unicast},
		{0, "127.0.0.1", NotLocal},
		{1, "255.255.255.255", Broadcast},
	} {
		if got := a.Local(c.dev, addr(c.addr)); got != c.want {
			t.Errorf("%s on device %d: %v, want %v", c.addr, c.dev, got, c.want)
		}
	}
	for _, c := range []struct {
		dst, src string
		dev      uint8
		want     uint8
	}{
		{"198.18.0.9", "::", AnyDev, 0},
		{"198.19.0.9", "::", AnyDev, 1},
		{"198.19.0.255", "::", AnyDev, 1},
		{"fe80::9", "fe80::2", AnyDev, 1},
		{"fe80::9", "::", 1, 1},
		{"233.252.0.1", "198.19.0.1", AnyDev, 1},
		{"255.255.255.255", "0.0.0.0", 1, 1},
		{"198.19.0.1", "::", AnyDev, LoopDev},
	} {
		p, v := a.Route(l.now, addr(c.dst), addr(c.src), c.dev)
		if p == nil || p.Dev != c.want {
			t.Errorf("to %s from %s by %d: %+v, %v", c.dst, c.src, c.dev, p, v)
		}
	}
	if _, v := a.Route(l.now, addr("192.0.2.1"), wire.Addr{}, AnyDev); v != packet.DropNoRoute {
		t.Errorf("without a route: %v", v)
	}
	for dst, want := range map[string]string{"198.19.0.9": "198.19.0.1", "198.18.0.9": "198.18.0.1"} {
		if src, ok := a.Source(l.now, addr(dst), AnyDev); !ok || src != addr(want) {
			t.Errorf("source for %s: %v", dst, src)
		}
	}
}

// TestLoopbackStays: no path leads from a loopback address out of the host.
func TestLoopbackStays(t *testing.T) {
	for _, c := range pairs {
		l, a, _ := meet(t, c, nil)
		lo := map[string]wire.Addr{"IPv4": addr("127.0.0.1"), "IPv6": addr("::1")}[c.name]
		if p, why := a.Route(l.now, addr(c.b), lo, AnyDev); p != nil || why != packet.DropNoRoute {
			t.Errorf("%s: %+v, %v", c.name, p, why)
		}
		if p, _ := a.Route(l.now, addr(c.a), lo, AnyDev); p == nil || p.Dev != LoopDev {
			t.Errorf("%s: the host itself: %+v", c.name, p)
		}
	}
}
