package control

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// closedConfig has two services at one address, of which the second has the lines %s.
const closedConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - {name: web, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], backends: [{address: ["198.18.2.11:80", "[2001:db8:2::11]:80"]}]}
  - {name: dns, protocol: udp, %s address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [{address: ["198.18.2.11:53", "[2001:db8:2::11]:53"]}]}
`

// closedPorts are sources and ports without a service; the protocols of 80 and 53 are the other ones.
var closedPorts = [][2]string{
	{"198.18.0.9:40000", "198.18.1.1:%d"}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:%d"},
}

// RFC 9293 3.10.7.1, RFC 1122 4.1.3.1, RFC 4443 3.1: what a host without a listener answers.
func TestPortsWithoutAServiceAreClosed(t *testing.T) {
	for _, at := range closedPorts {
		w := newWorld(t, fmt.Sprintf(closedConfig, ""))
		for _, port := range []int{81, 53, 33434} {
			s := client(at[0], fmt.Sprintf(at[1], port), "S")
			s.payload = ""
			out := w.expect(0, s.bytes(), 0)
			w.checksumsRight(out)
			tcp := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
			if f := flowOf(out); f.src != s.dst || f.dst != s.src || !tcp.RST || !tcp.ACK || tcp.Ack != firstSeq {
				t.Errorf("port %d: %+v", port, tcp)
			}
			w.refused(0, client(at[0], fmt.Sprintf(at[1], port), "R").bytes(), packet.DropNoService) // a reset has no answer
		}
		for _, port := range []int{81, 80, 33434} {
			for _, ttl := range []uint8{64, 1} { // at TTL 1 it is at its destination: traceroute ends
				s := client(at[0], fmt.Sprintf(at[1], port), "")
				s.ttl = ttl
				in := s.bytes()
				got := toldBy(t, w.expect(0, bytes.Clone(in), 0))
				want := told{kind: wire.ICMPUnreachable, code: 3}
				if at[0][0] == '[' {
					want = told{kind: wire.ICMPv6Unreachable, code: 4}
				}
				if got.kind != want.kind || got.code != want.code || !bytes.Equal(got.quote, in[14:]) {
					t.Errorf("port %d: told %+v", port, got)
				}
			}
		}
		w.after(0)
		if a := w.g.Status().Answers; a["closed_port"] != 9 || a["reset"]+a["unreachable"]+a["reset_unknown"]+a["time_exceeded"] != 0 {
			t.Errorf("answers %v", a)
		}
		w.expect(0, client(at[0], fmt.Sprintf(at[1], 80), "S").bytes(), 1) // services are as before
	}
}

// One service with `unknown: drop` leaves its address silent, and its packets to the kernel.
func TestUnknownDropLeavesClosedPortsSilent(t *testing.T) {
	for _, c := range []struct {
		line   string
		silent bool
	}{{"", false}, {"unknown: auto,", false}, {"unknown: drop,", true}} {
		w := newWorld(t, fmt.Sprintf(closedConfig, c.line))
		for _, at := range closedPorts {
			for _, flags := range []string{"S", ""} {
				s := w.send(0, client(at[0], fmt.Sprintf(at[1], 81), flags).bytes())
				if got := s.verdict == packet.DropNoService; got != c.silent {
					t.Errorf("%q: %s %q: %v", c.line, at[1], flags, s.verdict)
				}
			}
		}
		all := 0
		for _, s := range w.g.Steering() {
			if s.Ports.Last == 0 && !s.LaterFragments && !s.Keep {
				all++
			}
		}
		if got := all == 0; got != c.silent {
			t.Errorf("%q: %d rules for all ports", c.line, all)
		}
	}
}

func TestClosedPortsOfOthersAreNotAnswered(t *testing.T) {
	config := fmt.Sprintf(closedConfig, "") + `
sources: {deny: [198.18.0.66/32]}
`
	w := newWorld(t, config)
	for name, c := range map[string]struct {
		src, dst string
		why      packet.Verdict
	}{
		"an SNAT address":       {"198.18.0.9:40000", "198.18.2.1:9", packet.DropNoFlow},
		"no address of its own": {"198.18.0.9:40000", "198.18.1.9:9", packet.DropNoService},
		"a denied client":       {"198.18.0.66:40000", "198.18.1.1:9", packet.DropDenied},
		"a martian":             {"198.18.1.1:40000", "198.18.1.1:9", packet.DropMartian},
	} {
		for _, flags := range []string{"S", ""} {
			if s := w.send(0, client(c.src, c.dst, flags).bytes()); s.verdict != c.why {
				t.Errorf("%s %q: %v, want %v", name, flags, s.verdict, c.why)
			}
		}
	}
	s := client(host, "198.18.1.1:9", "")
	s.payload = string(make([]byte, 1000))
	for _, p := range split(s.bytes(), 400, 9) {
		if v := w.send(0, p).verdict; !v.Dropped() {
			t.Errorf("an answer to a fragment: %v", v)
		}
	}
	n := w.h.Answers(0)
	for k := range 9 {
		n += w.h.Answers(k)
	}
	if n != 0 {
		t.Errorf("%d answers", n)
	}
}

// A datagram in fragments is answered once all of it has come, in any order, by an error that quotes its first fragment: so
// ends traceroute with long packets. Of one that never becomes whole nothing is said, and no fragment goes on.
func TestClosedPortsAnswerWholeDatagrams(t *testing.T) {
	for _, at := range closedPorts {
		for n := range 6 {
			w := newWorld(t, fmt.Sprintf(closedConfig, ""))
			o := w.withOutput()
			s := client(at[0], fmt.Sprintf(at[1], 33434), "")
			s.payload = string(make([]byte, 1000))
			s.ttl = uint8(1 + n%2*63)
			list := split(s.bytes(), 400, 9)
			in := permuted(list, n)
			o.held(0, in[:2]...)
			if w.h.Tick(w.now); len(o.resumed) != 0 {
				t.Fatalf("order %d: %d fragments before all have come", n, len(o.resumed))
			}
			o.held(0, in[2])
			w.h.Tick(w.now)
			if len(o.resumed) != 3 || o.resumed[0].verdict != packet.Forward || o.resumed[0].port != 0 {
				t.Fatalf("order %d: %d resumed, the first %v", n, len(o.resumed), o.resumed[0].verdict)
			}
			got, code := toldBy(t, o.resumed[0].p), uint8(3)
			if at[0][0] == '[' {
				code = 4
			}
			if got.code != code || !bytes.Equal(got.quote, list[0][14:]) {
				t.Errorf("order %d: told %+v", n, got)
			}
			for _, r := range o.resumed[1:] {
				if r.verdict != packet.DropFragment {
					t.Errorf("order %d: another fragment is resumed as %v", n, r.verdict)
				}
			}
			w.expect(0, split(datagrams()[0].bytes(), 1000, 10)[0], 1) // others do not wait
			o.resumed = nil
			o.held(0, split(s.bytes(), 400, 11)[:2]...)
			w.after(2 * time.Second)
			o.expect(t, "a part", 2)
			if a := w.g.Status().Answers; a["closed_port"] != 1 {
				t.Errorf("answers %v", a)
			}
			for i, p := range split(s.bytes(), 400, 12) { // another handler of the loop gets it at once
				if v := o.beside(p, true); v != packet.Deliver {
					t.Errorf("fragment %d, offered: %v", i, v)
				}
			}
		}
	}
}

// Another handler of the loop is asked first, and a peer that was in step may have a service that this gateway lacks.
func TestClosedPortsWaitForOthers(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(closedConfig, ""))
	p := client(host, "198.18.1.1:9", "S").bytes()
	b := w.batch(0, p)
	w.describe(b)
	w.h.Offer(w.now, b)
	if b.D[0].Verdict != packet.DropNoService {
		t.Errorf("offered: %v", b.D[0].Verdict)
	}
	b = w.batch(0, p)
	w.describe(b)
	w.h.Refuse(w.now, b)
	if b.D[0].Verdict != packet.Forward {
		t.Errorf("refused by the other: %v", b.D[0].Verdict)
	}
	s := *w.g.snap.Load()
	s.HoldResets = true
	w.g.snap.Store(&s)
	w.refused(0, p, packet.DropNoService)
}

// A service that a reload removes leaves its port closed, as its address has another service.
func TestThePortOfARemovedServiceIsClosed(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(closedConfig, ""))
	w.opens(host, "198.18.1.1:80", "S")
	one := `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - {name: dns, protocol: udp, address: [198.18.1.1:53], backends: [{address: "198.18.2.11:53"}]}
`
	if err := w.g.Reload(parse(t, one)); err != nil {
		t.Fatal(err)
	}
	w.expect(0, client("198.18.0.9:41000", "198.18.1.1:80", "S").bytes(), 0)
	w.expect(0, client(host, "198.18.1.1:80", "A").bytes(), 1) // its connection goes on
	w.refused(0, client("[2001:db8::9]:41000", "[2001:db8:1::1]:80", "S").bytes(), packet.DropNoService)
}
