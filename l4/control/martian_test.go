package control

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// martians are sources that no packet from outside has, by what they are. %s is in the configuration of martianConfig.
var martians = map[string]string{
	"the service":                   "198.18.1.1",
	"another service":               "198.18.1.2",
	"a service with a range":        "198.18.1.3",
	"the SNAT address":              "198.18.2.1",
	"an outer source of tunnels":    "198.18.5.77",
	"the kernel":                    "198.18.0.1",
	"a directed broadcast":          "198.18.0.255",
	"the limited broadcast":         "255.255.255.255",
	"loopback":                      "127.0.0.9",
	"a group":                       "224.0.0.1",
	"this network":                  "0.0.0.0",
	"a reserved address":            "240.0.0.1",
	"the service, IPv6":             "2001:db8:1::1",
	"the SNAT address, IPv6":        "2001:db8:2::1",
	"an outer source, IPv6":         "2001:db8:5::77",
	"the kernel, IPv6":              "2001:db8::1",
	"the kernel's link-local":       "fe80::90",
	"loopback, IPv6":                "::1",
	"unspecified, IPv6":             "::",
	"a group, IPv6":                 "ff02::1",
	"an IPv4-mapped address":        "::ffff:198.18.0.9",
	"an IPv4-mapped own address":    "::ffff:198.18.1.1",
	"the service of the other kind": "2001:db8:1::2",
}

const martianConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
tunnel: {source: [198.18.5.0/24, "2001:db8:5::/64"]}
table: {size: 1024}
limits: {packets: 1000000}
services:
  - {name: web, %[1]s, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], unavailable: reject, backends: [%[2]s]}
  - {name: dns, protocol: udp, %[1]s, address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [%[2]s]}
  - {name: other, protocol: udp, address: [198.18.1.2:53, "[2001:db8:1::2]:53"], backends: [{address: "198.18.2.11:53"}, {address: "[2001:db8:2::11]:53"}]}
  - {name: range, protocol: udp, address: "198.18.1.3:1000-2000", backends: [{address: "198.18.2.11:1000-2000"}]}
`

// martianModes are all ways to a backend: keys of a service, and its backend.
var martianModes = map[string][2]string{
	"SNAT":           {"source: gateway", `{name: b, address: ["198.18.2.11:8080", "[2001:db8:2::11]:8080"]}`},
	"source: client": {"source: client", `{name: b, address: ["198.18.2.11:8080", "[2001:db8:2::11]:8080"]}`},
	"ipip":           {"mode: ipip", `{name: b, address: 198.18.2.11}`},
	"gue":            {"mode: gue", `{name: b, address: "2001:db8:2::11"}`},
	"l2":             {"mode: l2", `{name: b, address: ["198.18.2.11", "2001:db8:2::11"]}`},
}

func martianWorld(t *testing.T, mode string) *world {
	t.Helper()
	m := martianModes[mode]
	w := newWorld(t, fmt.Sprintf(martianConfig, m[0], m[1]))
	w.kernelHas("198.18.0.1", "2001:db8::1", "fe80::90")
	return w
}

// kernelHas makes addresses those of the kernel, with the broadcast of the world's client network.
func (w *world) kernelHas(list ...string) {
	w.t.Helper()
	own := map[netip.Addr]bool{}
	for _, a := range list {
		own[netip.MustParseAddr(a)] = true
	}
	w.g.opt.KernelAddrs = func() (map[netip.Addr]bool, map[netip.Addr]bool, error) {
		return maps.Clone(own), map[netip.Addr]bool{netip.MustParseAddr("198.18.0.255"): true}, nil
	}
	w.g.Steering()
	w.h.Tick(w.now)
}

// attempts are packets from src that would be forwarded or answered if they came from a client.
func attempts(src string) map[string][]byte {
	is4 := netip.MustParseAddr(src).Is4()
	at := func(port int) string { return netip.AddrPortFrom(netip.MustParseAddr(src), uint16(port)).String() }
	web, dns, vip := "198.18.1.1:80", "198.18.1.1:53", "198.18.1.1"
	if !is4 {
		web, dns, vip = "[2001:db8:1::1]:80", "[2001:db8:1::1]:53", "2001:db8:1::1"
	}
	long, last := client(at(53), dns, ""), client(at(53), dns, "")
	long.payload, last.ttl = strings.Repeat("x", 2000), 1
	pieces := split(long.bytes(), 1000, 7)
	stranger := "198.18.0.66:4000"
	if !is4 {
		stranger = "[2001:db8::66]:4000"
	}
	m := map[string][]byte{
		"a datagram":                     client(at(53), dns, "").bytes(),
		"a datagram to a wrong port":     client(at(80), dns, "").bytes(),
		"a SYN":                          client(at(80), web, "S").bytes(),
		"a segment of no connection":     client(at(80), web, "A").bytes(),
		"a reset of no connection":       client(at(80), web, "RA").bytes(),
		"the last hop":                   last.bytes(),
		"a first fragment":               pieces[0],
		"a fragment before the first":    pieces[1],
		"an echo request":                echoRequest(src, vip, 0),
		"an error about no connection":   errorFrom(src, client(dns, stranger, "").bytes(), is4),
		"an error about a TCP segment":   errorFrom(src, client(web, stranger, "A").bytes(), is4),
		"an error about an own datagram": errorFrom(addrOnly(stranger), client(web, at(80), "A").bytes(), is4),
	}
	return m
}

// errorFrom is an unreachable port, from src to where about came from.
func errorFrom(src string, about []byte, is4 bool) []byte {
	kind, code := uint8(3), uint8(3)
	if !is4 {
		kind, code = 1, 4
	}
	return message{src: src, dst: flowOf(about).src.Addr().String(), kind: kind, code: code, about: about, from: macClient, to: macGw0}.bytes()
}

// No packet with the source of a martian is forwarded, answered or held, in any mode: each is counted as one.
func TestMartiansAreDropped(t *testing.T) {
	for mode := range martianModes {
		t.Run(mode, func(t *testing.T) {
			w := martianWorld(t, mode)
			sent := uint64(0)
			for name, src := range martians {
				for what, p := range attempts(src) {
					if what == "an error about an own datagram" && (mode == "SNAT" || mode == "source: client") {
						continue // NAT finds no connection: no_flow
					}
					got := w.send(0, p)
					if got.verdict != packet.DropMartian || !bytes.Equal(got.p, p) {
						t.Errorf("%s from %s (%s): %v", what, name, src, got.verdict)
					}
					sent++
				}
			}
			st := w.g.Status()
			if n := st.Dropped["martian"]; st.Connections != 0 || n != sent {
				t.Errorf("%d connections, %d of %d packets are counted as martians: %v", st.Connections, n, sent, st.Dropped)
			}
			if n := st.Services[0].Dropped["martian"] + st.Services[1].Dropped["martian"]; n == 0 {
				t.Error("no service counts martians")
			}
			for i, a := range st.Answers {
				if a != 0 {
					t.Errorf("%s: %d answers", i, a)
				}
			}
			for _, src := range []string{"198.18.0.9", "169.254.7.7", "198.18.0.254", "2001:db8::9", "fe80::9"} { // honest
				for _, what := range []string{"a datagram", "a SYN"} {
					if got := w.send(0, attempts(src)[what]); got.verdict != packet.Forward {
						t.Errorf("%s from the client %s: %v", what, src, got.verdict)
					}
				}
			}
		})
	}
}

// Forged martians cannot have an own address reported to the defence.
func TestMartiansAreNotReportedAsLimited(t *testing.T) {
	m := martianModes["SNAT"]
	w := newWorld(t, strings.Replace(fmt.Sprintf(martianConfig, m[0], m[1]), "packets: 1000000", "packets: 1, burst: 1s", 1))
	reported := 0
	w.h.OnLimited(func(netip.Addr, clock.Time) { reported++ })
	for range 5 {
		w.refused(0, client("198.18.1.2:53", dns, "").bytes(), packet.DropMartian)
	}
	if reported != 0 {
		t.Errorf("%d martians are reported", reported)
	}
	w.send(0, client(host, dns, "").bytes())
	w.refused(0, client(host, dns, "").bytes(), packet.DropRateLimit)
	if reported != 1 {
		t.Errorf("a client above its limit is reported %d times", reported)
	}
}

// A client's address that becomes the kernel's, or a service's, is a martian from then on, with and without kernel flows.
func TestAnAddressThatBecomesOwnEndsItsConnections(t *testing.T) {
	w := newKernelWorld(t, fill(""), 8, 4)
	w.kernelHas("198.18.0.1")
	w.inKernel(host)
	w.expectBack(1)
	w.kernelHas("198.18.0.1", "198.18.0.9")
	w.after(5 * time.Second)
	w.expectBack(0, "changed 1")
	w.refused(0, client(host, web, "PA").bytes(), packet.DropMartian)
	if n := w.g.Status().Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
	w.kernelHas("198.18.0.1")
	w.expect(0, client(host, web, "S").bytes(), 1)

	src := strings.Replace(fill(""), `address: [198.18.1.1:53, "[2001:db8:1::1]:53"]`, `address: [198.18.0.9:53, "[2001:db8:1::1]:53"]`, 1)
	if err := w.g.Reload(parse(t, src)); err != nil {
		t.Fatal(err)
	}
	w.refused(0, client(host, web, "S").bytes(), packet.DropMartian)
}

// A backend's packet to an own address picks nothing up, a record of the peer enters none.
func TestMartiansEnterByNoOtherWay(t *testing.T) {
	w := pickUpWorld(t, fill("source: client"))
	w.kernelHas("198.18.0.1")
	w.refused(1, backendSends("198.18.2.11:8080", "198.18.0.1:40000", "PA").bytes(), packet.DropNoFlow)
	w.refused(1, backendSends("198.18.2.11:8080", "198.18.0.255:40000", "PA").bytes(), packet.DropNoFlow)

	a, b := syncedPair(t, "source: client")
	a.connect(host)
	b.kernelHas("198.18.0.9")
	a.allTo(b)
	b.outcome(t, map[string]uint64{"unknown": 1})
}

// An IPv6 packet with IPv4-mapped addresses is not one of the IPv4 connection (RFC 4942 2.2).
func TestMappedAddressesFindNoIPv4Connection(t *testing.T) {
	w := newWorld(t, fill(""))
	w.connect(host)
	s := client("[2001:db8::9]:40000", "[2001:db8:1::1]:80", "PA")
	p := s.bytes()
	mapped := func(p []byte, a string) { b := netip.MustParseAddr(a).As16(); copy(p, b[:]) }
	mapped(p[22:], "::ffff:"+netip.MustParseAddrPort(host).Addr().String())
	mapped(p[38:], "::ffff:198.18.1.1")
	tcp := p[14+wire.IPv6Len:]
	tcp[0], tcp[1] = byte(netip.MustParseAddrPort(host).Port()>>8), byte(netip.MustParseAddrPort(host).Port())
	wire.TCP(tcp).FillChecksum(wire.IPv6(p[14:]).Pseudo())
	if got := w.send(0, p); !got.verdict.Dropped() {
		t.Errorf("%v", got.verdict)
	}
}

// The test of a source allocates nothing.
func TestMartiansDoNotAllocate(t *testing.T) {
	w := martianWorld(t, "SNAT")
	b := w.batch(0, attempts("198.18.1.1")["a datagram"])
	w.describe(b)
	if n := testing.AllocsPerRun(100, func() { w.h.Handle(w.now, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
