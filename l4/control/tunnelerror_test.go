package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// directWorld is a world of tunnelConfig, or with mode l2.
func directWorld(t *testing.T, mode, backend string) *world {
	return newWorld(t, fmt.Sprintf(tunnelConfig, mode, backend))
}

// directFlows are flows by the services of tunnelConfig.
var directFlows = []struct{ src, dst, flags, router string }{
	{"198.18.0.9:40000", web, "S", "198.18.7.7"},
	{"198.18.0.9:40000", dns, "", "198.18.7.7"},
	{"[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", "2001:db8:7::7"},
	{"[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", "2001:db8:7::7"},
}

// In direct modes the backend sends to the client itself; what routers say of that comes to the service
// address, so to us, and goes on to the backend as the client's packets do.
func TestErrorsToAServiceAddressFollowTheClientsPackets(t *testing.T) {
	for _, c := range tunnels {
		for _, f := range directFlows {
			w := directWorld(t, c.mode, c.backend)
			data := w.expect(0, client(f.src, f.dst, f.flags).bytes(), 1)
			reply := seg{
				src: netip.MustParseAddrPort(f.dst), dst: netip.MustParseAddrPort(f.src), flags: map[bool]string{true: "SA"}[f.flags == "S"],
				payload: "from the backend",
			}.bytes()
			m := message{
				src: f.router, dst: addrOnly(f.dst), kind: tooBigOf(f.router), code: codeOf(f.router), rest: 1400, about: reply,
				from: macClient, to: macGw0,
			}.bytes()
			out := w.expect(0, m, 1)
			outer1, port1, _ := unwrap(t, c.mode, data)
			outer2, port2, inner := unwrap(t, c.mode, out)
			if outer1.NetworkFlow() != outer2.NetworkFlow() || port1 != port2 {
				t.Errorf("%s: data by %v %d, error by %v %d", c.mode, outer1.NetworkFlow(), port1, outer2.NetworkFlow(), port2)
			}
			copy(inner[12:14], m[12:14]) // unwrap keeps the outer link header
			if got := readError(t, inner); got.src != f.router || got.rest != 1400 || !bytes.Equal(got.quoted[14:], reply[14:]) {
				t.Errorf("%s: %+v", c.mode, got)
			}
		}
	}
}

func addrOnly(at string) string { return netip.MustParseAddrPort(at).Addr().String() }

func tooBigOf(router string) uint8 {
	if netip.MustParseAddr(router).Is6() {
		return wire.ICMPv6TooBig
	}
	return wire.ICMPUnreachable
}

func codeOf(router string) uint8 {
	if netip.MustParseAddr(router).Is6() {
		return 0
	}
	return wire.ICMPFragmentationNeeded
}

// Without an entry in the table the hash tells the backend: the flow may have begun elsewhere.
func TestErrorsOfUnknownFlowsFollowTheHash(t *testing.T) {
	w := directWorld(t, "ipip", backend4)
	reply := seg{src: netip.MustParseAddrPort(web), dst: netip.MustParseAddrPort(host), flags: "A", payload: "x"}.bytes()
	m := message{src: "198.18.7.7", dst: "198.18.1.1", kind: 3, code: 4, rest: 1400, about: reply, from: macClient, to: macGw0}
	out := w.expect(0, m.bytes(), 1)
	data := w.expect(0, client(host, web, "S").bytes(), 1)
	a, _, _ := unwrap(t, "ipip", out)
	b, _, _ := unwrap(t, "ipip", data)
	if a.NetworkFlow() != b.NetworkFlow() {
		t.Errorf("error by %v, data by %v", a.NetworkFlow(), b.NetworkFlow())
	}
	m.about = seg{src: netip.MustParseAddrPort(dns), dst: netip.MustParseAddrPort(host), payload: "x"}.bytes()
	w.refused(0, m.bytes(), packet.DropNoFlow) // UDP is not so: what it begins is remembered
}

func TestErrorsAboutATunnelAreToldToTheClient(t *testing.T) {
	for _, c := range tunnels {
		outer6 := netip.MustParseAddr(c.backend).Is6()
		router := "198.18.7.7"
		if outer6 {
			router = "2001:db8:7::7"
		}
		over := map[string]int{"ipip": 20, "gue": 32}[c.mode]
		if outer6 {
			over += 20
		}
		for _, f := range directFlows {
			for _, tooBig := range []bool{true, false} {
				w := directWorld(t, c.mode, c.backend)
				data := client(f.src, f.dst, f.flags).bytes()
				six := data[14]>>4 == 6
				if !six {
					wire.IPv4(data[14:]).SetDontFragment(true)
					wire.IPv4(data[14:]).FillChecksum()
				}
				sent := w.expect(0, data, 1)
				before := w.connOf(f.src)
				outer, _, _ := unwrap(t, c.mode, sent)
				m := message{src: router, dst: outer.NetworkFlow().Src().String(), about: sent, from: macBackend, to: macGw1}
				wantKind, wantCode, wantRest := wire.ICMPUnreachable, wire.ICMPHostUnreachable, uint32(0)
				if six {
					wantKind, wantCode = wire.ICMPv6Unreachable, wire.ICMPv6AddressUnreachable
				}
				m.kind, m.code = wire.ICMPTimeExceeded, 0
				if outer6 {
					m.kind = wire.ICMPv6TimeExceeded
				}
				if tooBig {
					m.kind, m.code, m.rest = tooBigOf(router), codeOf(router), 1450
					wantKind, wantCode, wantRest = wire.ICMPUnreachable, wire.ICMPFragmentationNeeded, uint32(1450-over)
					if six {
						wantKind, wantCode = wire.ICMPv6TooBig, 0
					}
				}
				out := w.expect(1, m.bytes(), 0)
				got := readError(t, out)
				want := flowOf(data)
				if got.src != want.dst.Addr().String() || got.dst != want.src.Addr().String() ||
					got.kind != wantKind || got.code != wantCode || got.rest != wantRest || addrPorts(got.quoted) != addrPorts(data) {
					t.Errorf("%s to %s of %s: %+v", c.mode, c.backend, f.src, got)
				}
				if !bytes.Equal(out[:6], macClient[:]) || !bytes.Equal(out[6:12], macGw0[:]) {
					t.Errorf("link addresses %x", out[:12])
				}
				if w.connOf(f.src) != before {
					t.Error("an error changed the connection")
				}
			}
		}
	}
}

func TestErrorsAboutATunnelThatSayNothingAreDropped(t *testing.T) {
	w := directWorld(t, "gue", backend4)
	data := client(host, web, "S").bytes()
	wire.IPv4(data[14:]).SetDontFragment(true)
	wire.IPv4(data[14:]).FillChecksum()
	sent := w.expect(0, data, 1)
	outer, _, _ := unwrap(t, "gue", sent)
	src := outer.NetworkFlow().Src().String()
	edit := func(at int, to byte) []byte {
		p := bytes.Clone(sent)
		p[at] = to
		return p
	}
	other := "198.18.5.1"
	if src == other {
		other = "198.18.5.2"
	}
	for _, c := range []struct {
		name string
		m    message
		want packet.Verdict
	}{
		{"28 bytes", message{about: sent, quote: 28}, packet.DropTruncated},
		{"no ports", message{about: sent, quote: 20 + 12 + 20 + 7}, packet.DropTruncated},
		{"another version", message{about: edit(14, 0x65)}, packet.DropMalformed},
		{"another protocol", message{about: edit(14+9, 6)}, packet.DropNoFlow},
		{"another port", message{about: edit(14+20+2, 1)}, packet.DropNoFlow},
		{"a GUE header with options", message{about: edit(14+28, 1)}, packet.DropNoFlow},
		{"another backend", message{about: edit(14+19, 99)}, packet.DropNoFlow},
		{"another source of the tunnel", message{about: sent, dst: other}, packet.DropNoFlow},
		{"another client", message{about: edit(14+32+15, 99)}, packet.DropNoFlow},
		{"another service", message{about: edit(14+32+23, 99)}, packet.DropNoFlow},
		{"no MTU", message{about: sent, kind: 3, code: 4, rest: 0}, packet.DropMalformed},
		{"an MTU that nobody has", message{about: sent, kind: 3, code: 4, rest: 99}, packet.DropMalformed},
		{"a packet that may be cut", message{about: edit(14+32+6, 0), kind: 3, code: 4, rest: 1400}, packet.DropTooBig},
	} {
		c.m.src, c.m.from, c.m.to = "198.18.7.7", macBackend, macGw1
		if c.m.dst == "" {
			c.m.dst = src
		}
		if c.m.kind == 0 {
			c.m.kind, c.m.code = 3, 1
		}
		if s := w.send(1, c.m.bytes()); s.verdict != c.want {
			t.Errorf("%s: %v, want %v", c.name, s.verdict, c.want)
		}
	}
	long := client(host, web, "A")
	long.payload = string(bytes.Repeat([]byte("x"), 900))
	good := message{src: "198.18.7.7", dst: src, kind: 3, code: 1, about: w.expect(0, long.bytes(), 1), from: macBackend, to: macGw1}
	if out := w.expect(1, good.bytes(), 0); len(out) != 14+576 {
		t.Errorf("the error has %d bytes", len(out))
	}
}

// A service without tunnels has sent nothing by one, whatever an error says that it quotes.
func TestErrorsAboutATunnelThatIsNoneAreDropped(t *testing.T) {
	data := client(host, web, "S").bytes()
	sent := directWorld(t, "ipip", backend4).expect(0, data, 1)
	outer, _, _ := unwrap(t, "ipip", sent)
	w := directWorld(t, "l2", backend4)
	w.expect(0, data, 1)
	m := message{src: "198.18.7.7", dst: outer.NetworkFlow().Src().String(), kind: 3, code: 1, about: sent, from: macBackend, to: macGw1}
	w.refused(1, m.bytes(), packet.DropNoFlow)
}

func TestAnMTULongerThanPacketsAreIsNoMTU(t *testing.T) {
	w := directWorld(t, "ipip", backend6)
	sent := w.expect(0, client(host, web, "S").bytes(), 1)
	outer, _, _ := unwrap(t, "ipip", sent)
	m := message{
		src: "2001:db8:7::7", dst: outer.NetworkFlow().Src().String(), kind: wire.ICMPv6TooBig, rest: 0x10000 + wire.IPv6Len,
		about: sent, from: macBackend, to: macGw1,
	}
	w.refused(1, m.bytes(), packet.DropMalformed)
}

// Senders of IPv6 need not go below 1280 bytes (RFC 8200 5), so they are told no less.
func TestNobodyIsToldLessThanTheLeastMTU(t *testing.T) {
	w := directWorld(t, "ipip", backend4)
	sent := w.expect(0, client("[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S").bytes(), 1)
	outer, _, _ := unwrap(t, "ipip", sent)
	m := message{
		src: "198.18.7.7", dst: outer.NetworkFlow().Src().String(), kind: 3, code: 4, rest: 1000, about: sent, from: macBackend, to: macGw1,
	}
	if got := toldBy(t, w.expect(1, m.bytes(), 0)); got.kind != wire.ICMPv6TooBig || got.mtu != 1280 {
		t.Errorf("told %v", got)
	}
}
