package control

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// rangeConfig has ranges whose backends keep the port, translate it by offset, and to one port, a single port in a range,
// and what is left of an address.
const rangeConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
table: {size: 1024}
services:
  - {name: kept, %s, address: [198.18.1.1:8000-8099, "[2001:db8:1::1]:8000-8099"], backends: [{name: b1, address: [198.18.2.11, "2001:db8:2::11"]}]}
  - {name: offset, %[1]s, address: [198.18.1.1:9000-9099, "[2001:db8:1::1]:19000-19099"], backends: [{name: b1, address: [198.18.2.11:10000-10099, "[2001:db8:2::11]:10000-10099"]}]}
  - {name: one, %[1]s, address: 198.18.1.1:7000-7099, backends: [{name: b1, address: 198.18.2.11:7777}]}
  - {name: exact, %[1]s, address: 198.18.1.1:8050, backends: [{name: b2, address: 198.18.2.12:80}]}
  - {name: rest, %[1]s, address: "198.18.1.1:*", backends: [{name: b3, address: 198.18.2.13}]}
  - {name: udp, %[1]s, protocol: udp, address: [198.18.1.1:8000-8099, "[2001:db8:1::1]:8000-8099"], backends: [{name: b1, address: [198.18.2.11:53000-53099, "[2001:db8:2::11]:53000-53099"]}]}
`

// rangePorts says where the packets for ports of rangeConfig go.
var rangePorts = []struct{ front, flags, backend string }{
	{"198.18.1.1:8000", "S", "198.18.2.11:8000"},
	{"198.18.1.1:8049", "S", "198.18.2.11:8049"},
	{"198.18.1.1:8050", "S", "198.18.2.12:80"},
	{"198.18.1.1:8051", "S", "198.18.2.11:8051"},
	{"198.18.1.1:8099", "S", "198.18.2.11:8099"},
	{"198.18.1.1:8100", "S", "198.18.2.13:8100"},
	{"198.18.1.1:7999", "S", "198.18.2.13:7999"},
	{"198.18.1.1:1", "S", "198.18.2.13:1"},
	{"198.18.1.1:65535", "S", "198.18.2.13:65535"},
	{"198.18.1.1:9000", "S", "198.18.2.11:10000"},
	{"198.18.1.1:9099", "S", "198.18.2.11:10099"},
	{"198.18.1.1:7000", "S", "198.18.2.11:7777"},
	{"198.18.1.1:7042", "S", "198.18.2.11:7777"},
	{"[2001:db8:1::1]:8042", "S", "[2001:db8:2::11]:8042"},
	{"[2001:db8:1::1]:19042", "S", "[2001:db8:2::11]:10042"},
	{"198.18.1.1:8000", "", "198.18.2.11:53000"},
	{"198.18.1.1:8099", "", "198.18.2.11:53099"},
	{"[2001:db8:1::1]:8042", "", "[2001:db8:2::11]:53042"},
}

// clientFor returns a client of the family of a service address.
func clientFor(front string, port int) string {
	if strings.HasPrefix(front, "[") {
		return fmt.Sprintf("[2001:db8::9]:%d", port)
	}
	return fmt.Sprintf("198.18.0.9:%d", port)
}

// opens opens a connection and returns what its backend got; the answer goes back to the client.
func (w *world) opens(src, front, flags string) flow {
	w.t.Helper()
	reply := ""
	if flags != "" {
		reply = "SA"
	}
	x := w.exchange(src, front, flags, reply)
	w.checksumsRight(x.toBackend)
	w.checksumsRight(x.toClient)
	if got := flowOf(x.toClient); got.src.String() != front || got.dst.String() != src {
		w.t.Fatalf("the client %s of %s gets a packet from %v to %v", src, front, got.src, got.dst)
	}
	if flags != "" {
		w.expect(0, client(src, front, "A").bytes(), 1)
	}
	return flowOf(x.toBackend)
}

func TestEveryPortOfARangeLeadsWhereItShould(t *testing.T) {
	for _, source := range []string{"source: gateway", "source: client"} {
		for _, prefetch := range []bool{false, true} {
			w := newWorld(t, fmt.Sprintf(rangeConfig, source))
			if prefetch {
				w.h = datapath.New(datapath.Options{Loops: 1, Table: 1024, HalfOpen: 256, Fragments: 64, SNATPorts: datapath.PortRange{First: 1024, Last: 65535}, PrefetchFrom: 1, Seed: 1}, &w.g.snap)
			}
			for i, p := range rangePorts {
				src := clientFor(p.front, 40000+i)
				got := w.opens(src, p.front, p.flags)
				if got.dst.String() != p.backend {
					t.Errorf("%s: %s %q goes to %v, want %s", source, p.front, p.flags, got.dst, p.backend)
				}
				if kept := got.src.String() == src; kept != (source == "source: client") {
					t.Errorf("%s: the backend sees %v", source, got.src)
				}
			}
			// In one batch, as prefetching looks at them.
			var pkts [][]byte
			for i, p := range rangePorts {
				pkts = append(pkts, client(clientFor(p.front, 40000+i), p.front, strings.Replace(p.flags, "S", "A", 1)).bytes())
			}
			b := w.batch(0, pkts...)
			w.run(b)
			for i, p := range rangePorts {
				if got := flowOf(b.Bytes(i)); b.D[i].Verdict != packet.Forward || got.dst.String() != p.backend {
					t.Errorf("%s: later %s goes to %v: %v", source, p.front, got.dst, b.D[i].Verdict)
				}
			}
			w.expect(0, client("[2001:db8::9]:40000", "[2001:db8:1::1]:8100", "S").bytes(), 0) // a reset
			w.expect(0, client("198.18.0.9:40000", "198.18.1.1:8100", "").bytes(), 0)          // port unreachable
			if err := w.h.Audit(); err != nil {
				t.Error(err)
			}
		}
	}
}

// The same client and source port to several ports that lead to one are told apart by other source ports.
func TestPortsThatLeadToOneHaveSourcePortsOfTheirOwn(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rangeConfig, "source: client"))
	seen := map[netip.AddrPort]bool{}
	for port := 7000; port < 7010; port++ {
		got := w.opens(host, fmt.Sprintf("198.18.1.1:%d", port), "S")
		if seen[got.src] {
			t.Fatalf("two connections come from %v", got.src)
		}
		seen[got.src] = true
	}
	w.audit()
}

// A scan of all ports of a range costs the memory of one endpoint.
func TestAScanOfARangeSharesTheSourcePortsOfOneEndpoint(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rangeConfig, "source: gateway"))
	seen := map[netip.AddrPort]bool{}
	for i := range 200 {
		x := w.exchange(fmt.Sprintf("198.18.0.9:%d", 20000+i), fmt.Sprintf("198.18.1.1:%d", 30000+i), "S", "SA")
		seen[flowOf(x.toBackend).src] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d source ports for 200 connections", len(seen))
	}
	w.after(2 * time.Second)
	st := w.g.Status().SNAT[0]
	if st.Open != 200 || st.MostUsedBy == nil || st.MostUsedBy.String() != "198.18.2.13:0" || st.UsedPercent != 0 {
		t.Errorf("%+v", st)
	}
	w.audit()
}

// Persistence is what passive FTP needs: one backend for all ports of a client.
func TestPersistenceHoldsAcrossThePortsOfARange(t *testing.T) {
	const config = `
devices: [{name: gw0}, {name: gw1}]
snat: 198.18.2.1
table: {size: 1024}
services:
  - {name: ftp, %s address: [198.18.1.1:21, 198.18.1.1:50000-50999], backends: [{address: 198.18.2.11}, {address: 198.18.2.12}, {address: 198.18.2.13}]}
`
	backendsOf := func(keys string) (most int) {
		w := newWorld(t, fmt.Sprintf(config, keys))
		for c := range 20 {
			seen := map[netip.Addr]bool{}
			for i, port := range []int{21, 50000, 50001, 50500, 50999, 50321} {
				got := w.opens(fmt.Sprintf("198.18.0.%d:%d", 10+c, 40000+i), fmt.Sprintf("198.18.1.1:%d", port), "S")
				if int(got.dst.Port()) != port {
					t.Errorf("port %d arrives at %v", port, got.dst)
				}
				seen[got.dst.Addr()] = true
			}
			most = max(most, len(seen))
		}
		return most
	}
	if n := backendsOf("persistence: {by: client},"); n != 1 {
		t.Errorf("with persistence a client reaches %d backends", n)
	}
	if n := backendsOf(""); n != 3 {
		t.Errorf("without persistence a client reaches %d backends at most, want all", n)
	}
}

func TestErrorsAboutPortsOfARangeAreTranslated(t *testing.T) {
	for _, source := range []string{"source: gateway", "source: client"} {
		for i, p := range rangePorts {
			w := newWorld(t, fmt.Sprintf(rangeConfig, source))
			src := clientFor(p.front, 40000+i)
			x := w.exchange(src, p.front, p.flags, strings.Replace(p.flags, "S", "SA", 1))
			router, kind := "198.18.7.7", uint8(wire.ICMPUnreachable)
			if strings.HasPrefix(src, "[") {
				router, kind = "2001:db8:7::7", wire.ICMPv6Unreachable
			}
			sent, got := flowOf(x.fromClient), flowOf(x.toBackend)
			e := readError(t, w.expect(1, message{src: router, dst: got.src.Addr().String(), kind: kind, code: 1, about: x.toBackend, from: macBackend, to: macGw1}.bytes(), 0))
			if q := flowOf(e.quoted); q.src != sent.src || q.dst != sent.dst || e.dst != sent.src.Addr().String() {
				t.Errorf("%s %s: the client is told of %v to %v, and sent %v to %v", source, p.front, q.src, q.dst, sent.src, sent.dst)
			}
			e = readError(t, w.expect(0, message{src: router, dst: sent.dst.Addr().String(), kind: kind, code: 1, about: x.toClient, from: macClient, to: macGw0}.bytes(), 1))
			if q := flowOf(e.quoted); q.src != got.dst || q.dst != got.src {
				t.Errorf("%s %s: the backend is told of %v to %v, and sent %v to %v", source, p.front, q.src, q.dst, got.dst, got.src)
			}
		}
	}
}

func TestFragmentsForARangeFollowTheFirst(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rangeConfig, "source: gateway"))
	for i, front := range []string{"198.18.1.1:8042", "[2001:db8:1::1]:8042"} {
		s := client(clientFor(front, 40000), front, "")
		s.payload = strings.Repeat("0123456789abcdef", 100)
		var out [][]byte
		for _, p := range split(s.bytes(), 800, uint32(7+i)) {
			out = append(out, w.expect(0, p, 1))
		}
		whole := join(t, out)
		w.checksumsRight(whole)
		if got := flowOf(whole); got.dst.Port() != 53042 || got.payload != s.payload {
			t.Errorf("the datagram for %s arrives at %v", front, got.dst)
		}
	}
}

// rangeService is a service with the given addresses and backends.
func rangeService(name, keys, address, backends string) string {
	return fmt.Sprintf("  - {name: %s, %s address: %s, backends: [%s]}\n", name, keys, address, backends)
}

const rangeHead = "devices: [{name: gw0}, {name: gw1}]\nsnat: [198.18.2.1]\ntable: {size: 1024}\nservices:\n"

// A reload grows, shrinks and moves ranges, and turns single ports into ranges and back. Every connection goes on, in both
// directions, and new ones follow the new configuration.
func TestAReloadOfRangesKeepsEveryConnection(t *testing.T) {
	const b1, b2 = "{name: b1, address: 198.18.2.11}", "{name: b2, address: 198.18.2.12}"
	other := rangeService("other", "%[1]s", "198.18.9.1:80", "{address: 198.18.2.19:80}")
	steps := []struct {
		name, services string
		want           map[int]string // backend by port; "" is none
	}{
		{
			"one port", rangeService("a", "%[1]s", "198.18.1.1:8000", "{name: b1, address: 198.18.2.11:8000}"),
			map[int]string{8000: "198.18.2.11:8000", 8001: ""},
		},
		{
			"grown to a range", rangeService("a", "%[1]s", "198.18.1.1:8000-8009", b1),
			map[int]string{8000: "198.18.2.11:8000", 8001: "198.18.2.11:8001", 8009: "198.18.2.11:8009", 8010: ""},
		},
		{
			"grown again", rangeService("a", "%[1]s", "198.18.1.1:7995-8019", b1),
			map[int]string{7995: "198.18.2.11:7995", 8000: "198.18.2.11:8000", 8019: "198.18.2.11:8019", 8020: ""},
		},
		{
			"a port in it for another", rangeService("a", "%[1]s", "198.18.1.1:7995-8019", b1) + rangeService("x", "%[1]s", "198.18.1.1:8009", "{address: 198.18.2.12:80}"),
			map[int]string{8008: "198.18.2.11:8008", 8009: "198.18.2.12:80", 8010: "198.18.2.11:8010"},
		},
		{
			"a backend's port in it", rangeService("a", "%[1]s", "198.18.1.1:7995-8019", b1) + rangeService("x", "%[1]s", "198.18.1.1:8009", "{address: 198.18.2.11:8001}"),
			map[int]string{8009: "198.18.2.11:8001", 8001: "198.18.2.11:8001", 8000: "198.18.2.11:8000"},
		},
		{
			"shrunk", rangeService("a", "%[1]s", "198.18.1.1:8000-8004", b1),
			map[int]string{7995: "", 8000: "198.18.2.11:8000", 8004: "198.18.2.11:8004", 8009: ""},
		},
		{
			"moved to another service", rangeService("b", "%[1]s", "198.18.1.1:8000-8019", b2),
			map[int]string{8000: "198.18.2.12:8000", 8009: "198.18.2.12:8009", 7995: ""},
		},
		{
			"by offset", rangeService("b", "%[1]s", "198.18.1.1:8000-8019", "{name: b2, address: 198.18.2.12:9000-9019}"),
			map[int]string{8000: "198.18.2.12:9000", 8009: "198.18.2.12:9009", 8019: "198.18.2.12:9019"},
		},
		{
			"by offset, with a port in it for another", rangeService("b", "%[1]s", "198.18.1.1:8000-8019", "{name: b2, address: 198.18.2.12:9000-9019}") + rangeService("x", "%[1]s", "198.18.1.1:8005", "{address: 198.18.2.12:80}"),
			map[int]string{8000: "198.18.2.12:9000", 8005: "198.18.2.12:80", 8006: "198.18.2.12:9006", 8009: "198.18.2.12:9009", 8019: "198.18.2.12:9019"},
		},
		{
			"all ports", rangeService("c", "%[1]s", "\"198.18.1.1:*\"", b1),
			map[int]string{8000: "198.18.2.11:8000", 1: "198.18.2.11:1", 65535: "198.18.2.11:65535"},
		},
		{
			"a range in all ports", rangeService("c", "%[1]s", "\"198.18.1.1:*\"", b1) + rangeService("d", "%[1]s", "198.18.1.1:8000-8001", b2),
			map[int]string{7999: "198.18.2.11:7999", 8000: "198.18.2.12:8000", 8001: "198.18.2.12:8001", 8002: "198.18.2.11:8002"},
		},
		{
			"one port again", rangeService("a", "%[1]s", "198.18.1.1:8000", "{name: b1, address: 198.18.2.11:8000}"),
			map[int]string{8000: "198.18.2.11:8000", 8001: "", 1: ""},
		},
	}
	for _, keys := range []string{"source: gateway, unknown: drop,", "source: client, unknown: drop,"} {
		var texts []string
		for _, s := range steps {
			texts = append(texts, rangeHead+fmt.Sprintf(s.services+other, keys))
		}
		w := newWorld(t, texts[0], texts[1:]...)
		open := map[[2]string]flow{} // by client and service address: what the backend got
		for i, s := range steps {
			if i > 0 {
				if err := w.g.Reload(parse(t, texts[i])); err != nil {
					t.Fatal(err)
				}
			}
			for key, was := range open {
				p := w.expect(0, client(key[0], key[1], "A").bytes(), 1)
				if got := flowOf(p); got.src != was.src || got.dst != was.dst {
					t.Fatalf("%s, %s: the connection of %s to %s went from %v to %v, and goes from %v to %v now", keys, s.name, key[0], key[1], was.src, was.dst, got.src, got.dst)
				}
				w.checksumsRight(p)
				back := flowOf(w.expect(1, answer(p, "A").bytes(), 0))
				if back.src.String() != key[1] || back.dst.String() != key[0] {
					t.Fatalf("%s, %s: the reply to %s goes from %v to %v", keys, s.name, key[0], back.src, back.dst)
				}
			}
			n := 0
			for port, want := range s.want {
				src, front := fmt.Sprintf("198.18.0.9:%d", 20000+100*i+n), fmt.Sprintf("198.18.1.1:%d", port)
				n++
				if want == "" {
					w.refused(0, client(src, front, "S").bytes(), packet.DropNoService)
					continue
				}
				got := w.opens(src, front, "S")
				if got.dst.String() != want {
					t.Errorf("%s, %s: port %d leads to %v, want %s", keys, s.name, port, got.dst, want)
				}
				for key, was := range open {
					if was.src == got.src && was.dst == got.dst {
						t.Fatalf("%s, %s: two connections from %v to %v: that of %v too", keys, s.name, got.src, got.dst, key)
					}
				}
				open[[2]string{src, front}] = got
			}
			w.looks() // numbers without use are released
			w.places()
			w.audit()
		}
	}
}

// What names a connection to another gateway are addresses and ports, whether in a range or not.
func TestConnectionsOfRangesGoOnAtThePeer(t *testing.T) {
	for _, keys := range []string{"source: gateway", "source: client"} {
		pair := [2]*world{}
		for i := range pair {
			pair[i] = syncedWorldOf(t, fmt.Sprintf(rangeConfig, keys), i)
		}
		a, b := pair[0], pair[1]
		was := map[int]flow{}
		for i, p := range rangePorts {
			was[i] = a.opens(clientFor(p.front, 40000+i), p.front, p.flags)
		}
		if n := a.changesTo(b); n != len(rangePorts) {
			t.Errorf("%d records of %d connections", n, len(rangePorts))
		}
		b.outcome(t, map[string]uint64{"entered": uint64(len(rangePorts))})
		for i, p := range rangePorts {
			src, flags := clientFor(p.front, 40000+i), strings.Replace(p.flags, "S", "PA", 1)
			out := b.expect(0, client(src, p.front, flags).bytes(), 1)
			if got := flowOf(out); got.src != was[i].src || got.dst != was[i].dst || !bytes.Equal(recomputed(out), out) {
				t.Errorf("%s: at the peer from %v to %v, before from %v to %v", p.front, got.src, got.dst, was[i].src, was[i].dst)
			}
			if back := flowOf(b.expect(1, answer(out, flags).bytes(), 0)); back.src.String() != p.front || back.dst.String() != src {
				t.Errorf("%s: the reply goes from %v to %v", p.front, back.src, back.dst)
			}
		}
		for _, c := range b.connections() {
			if i := slices.IndexFunc(rangePorts, func(p struct{ front, flags, backend string }) bool {
				return p.front == c.Address.String() && (p.flags == "") == (c.Protocol == "udp")
			}); i < 0 || c.Target.String() != rangePorts[i].backend {
				t.Errorf("%+v", c)
			}
		}
	}
}

// Either side's packets are enough to go on after a restart, where they lead to one port of one service.
func TestPacketsOfARangePickConnectionsUp(t *testing.T) {
	for _, p := range rangePorts {
		src := clientFor(p.front, 40000)
		flags := strings.Replace(p.flags, "S", "PA", 1)
		w := pickUpWorld(t, fmt.Sprintf(rangeConfig, "source: client"))
		if got := flowOf(w.expect(0, client(src, p.front, flags).bytes(), 1)); got.dst.String() != p.backend || got.src.String() != src {
			t.Errorf("the client's packet for %s goes from %v to %v", p.front, got.src, got.dst)
		}
		w.audit()

		w = pickUpWorld(t, fmt.Sprintf(rangeConfig, "source: client"))
		from := backendSends(p.backend, src, flags).bytes()
		if strings.HasSuffix(p.backend, ":7777") { // any port of the range
			w.refused(1, from, packet.DropNoFlow)
			continue
		}
		w.refused(1, from, packet.DropNoNeighbor)
		w.resolved()
		out := w.expect(1, from, 0)
		w.checksumsRight(out)
		if got := flowOf(out); got.src.String() != p.front || got.dst.String() != src {
			t.Errorf("the packet of %s goes from %v to %v, want from %s", p.backend, got.src, got.dst, p.front)
		}
		if got := flowOf(w.expect(0, client(src, p.front, flags).bytes(), 1)); got.dst.String() != p.backend || w.g.Status().Connections != 1 {
			t.Errorf("the client's packet for %s is not of the same connection", p.front)
		}
		w.audit()
	}
	// The port that another service has is not the range's, and where two lead to one endpoint nothing is known.
	w := pickUpWorld(t, fmt.Sprintf(rangeConfig, "source: client"))
	w.refused(1, backendSends("198.18.2.11:8050", host, "PA").bytes(), packet.DropNoFlow)
	w.refused(1, backendSends("198.18.2.11:8100", host, "PA").bytes(), packet.DropNoFlow)
	two := rangeHead + rangeService("a", "source: client,", "198.18.1.1:8000-8009", "{address: 198.18.2.11}") +
		rangeService("b", "source: client,", "198.18.1.2:8005", "{address: 198.18.2.11:8005}")
	for _, config := range []string{two, strings.Replace(two, "198.18.1.2:8005", "198.18.1.2:8005-8006", 1)} {
		w = pickUpWorld(t, config)
		w.refused(1, backendSends("198.18.2.11:8005", host, "PA").bytes(), packet.DropNoFlow)
		w.refused(1, backendSends("198.18.2.11:8004", host, "PA").bytes(), packet.DropNoNeighbor)
	}
}

// A range that a reload adds at a backend's address makes its single ports ambiguous.
func TestARangeBesideABackendsPortStopsPickingUp(t *testing.T) {
	one := rangeHead + rangeService("b", "source: client,", "198.18.1.2:8005", "{address: 198.18.2.11:8005}")
	w := pickUpWorld(t, one)
	w.refused(1, backendSends("198.18.2.11:8005", host, "PA").bytes(), packet.DropNoNeighbor)
	w.resolved()
	if err := w.g.Reload(parse(t, one+rangeService("a", "source: client,", "198.18.1.1:8000-8009", "{address: 198.18.2.11}"))); err != nil {
		t.Fatal(err)
	}
	w.refused(1, backendSends("198.18.2.11:8005", host, "PA").bytes(), packet.DropNoFlow)
	w.expect(1, backendSends("198.18.2.11:8004", host, "PA").bytes(), 0)
}

// The number of a backend's single port stays while a range leads there, also when the range's connections come after the
// loop has said that it holds none.
func TestARangeKeepsTheNumbersOfItsSinglePorts(t *testing.T) {
	single := rangeHead + rangeService("a", "", "198.18.1.1:8000", "{address: 198.18.2.11:8000}")
	w := newWorld(t, single)
	if err := w.g.Reload(parse(t, rangeHead+rangeService("a", "", "198.18.1.1:8000-8009", "{address: 198.18.2.11}"))); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.h.Tick(w.now)
	}
	was := w.opens(host, "198.18.1.1:8000", "S")
	w.g.mu.Lock()
	w.g.release()
	w.g.mu.Unlock()
	if got := flowOf(w.expect(0, client(host, "198.18.1.1:8000", "A").bytes(), 1)); got.src != was.src || got.dst != was.dst {
		t.Errorf("the connection went from %v to %v, and goes from %v to %v now", was.src, was.dst, got.src, got.dst)
	}
	w.places()
	w.audit()
}

// An SNAT address may have a range of ports of a service, beside those for backends.
func TestARangeOfAnSNATAddressLeavesItsOtherPorts(t *testing.T) {
	w := newWorld(t, strings.Replace(rangeHead, "table:", "snat_ports: 20000-29999\ntable:", 1)+
		rangeService("a", "", "[198.18.2.1:8000-8009, 198.18.2.1:30000-30009]", "{address: 198.18.2.11}"))
	if got := w.opens(host, "198.18.2.1:30005", "S"); got.src.Addr().String() != "198.18.2.1" || got.dst.String() != "198.18.2.11:30005" {
		t.Errorf("from %v to %v", got.src, got.dst)
	}
}

// Of two backends with one address a record names that to which the port of the service leads there.
func TestRecordsOfARangeNameTheBackendByItsPort(t *testing.T) {
	two := rangeHead + rangeService("a", "", "198.18.1.1:8000-8009",
		"{name: kept, address: 198.18.2.11}, {name: offset, address: 198.18.2.11:9000-9009}, {name: one, address: 198.18.2.11:9999}")
	a, b := syncedWorldOf(t, two, 0), syncedWorldOf(t, two, 1)
	for i := range 60 {
		a.opens(fmt.Sprintf("198.18.0.9:%d", 30000+i), fmt.Sprintf("198.18.1.1:%d", 8000+i%10), "S")
	}
	a.changesTo(b)
	backends := func(w *world) map[string]string {
		m := map[string]string{}
		for _, c := range w.connections() {
			m[c.Client.String()] = c.Backend
		}
		return m
	}
	want := backends(a)
	if diff := cmp.Diff(want, backends(b)); diff != "" {
		t.Error(diff)
	}
	if n := len(slices.Compact(slices.Sorted(maps.Values(want)))); len(want) != 60 || n != 3 {
		t.Errorf("%d connections to %d backends", len(want), n)
	}
}

// Segments of unknown connections are reset on both sides of a range, and nothing outside of it is.
func TestUnknownSegmentsOfARangeAreReset(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(rangeConfig, "source: client, unknown: reset"), "unknown: reset, protocol: udp", "protocol: udp", 1))
	reset := func(port uint8, s seg) bool {
		out := w.send(port, s.bytes())
		return out.verdict == packet.Forward && out.port == port && out.p[14+20+13]&byte(wire.FlagRST) != 0
	}
	for _, p := range rangePorts {
		if p.flags == "" || strings.HasPrefix(p.front, "[") {
			continue
		}
		if !reset(0, client(host, p.front, "PA")) {
			t.Errorf("the client's segment for %s is not reset", p.front)
		}
		if !reset(1, backendSends(p.backend, host, "PA")) {
			t.Errorf("the segment from %s is not reset", p.backend)
		}
	}
	w.refused(1, backendSends("198.18.2.11:8100", host, "PA").bytes(), packet.DropNoFlow)
	w.refused(0, client("198.18.0.9:40000", "198.18.1.2:8000", "PA").bytes(), packet.DropNoService)
}

func TestTheStatusAndMetricsOfARange(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rangeConfig, "source: gateway"))
	for i, p := range rangePorts {
		w.opens(clientFor(p.front, 40000+i), p.front, p.flags)
	}
	want := map[string][]string{
		"kept": {"198.18.1.1:8000-8099", "[2001:db8:1::1]:8000-8099", "198.18.2.11:0", "[2001:db8:2::11]:0"}, "exact": {"198.18.1.1:8050", "198.18.2.12:80"},
		"offset": {"198.18.1.1:9000-9099", "[2001:db8:1::1]:19000-19099", "198.18.2.11:10000-10099", "[2001:db8:2::11]:10000-10099"},
		"one":    {"198.18.1.1:7000-7099", "198.18.2.11:7777"}, "rest": {"198.18.1.1:*", "198.18.2.13:0"},
		"udp": {"198.18.1.1:8000-8099", "[2001:db8:1::1]:8000-8099", "198.18.2.11:53000-53099", "[2001:db8:2::11]:53000-53099"},
	}
	opened := map[string]uint64{"kept": 5, "exact": 1, "offset": 3, "one": 2, "rest": 4, "udp": 3}
	for _, s := range w.g.Status().Services {
		var at []string
		var n uint64
		for _, a := range s.Addresses {
			at = append(at, a.String())
		}
		for _, b := range s.Backends {
			at = append(at, b.Address.String())
			n += b.Opened
		}
		if diff := cmp.Diff(want[s.Name], at); diff != "" {
			t.Error(diff)
		}
		if n != opened[s.Name] {
			t.Errorf("%s opened %d connections, want %d", s.Name, n, opened[s.Name])
		}
	}
	var all metrics.Registry
	all.Add(w.g.WriteMetrics)
	series, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for _, s := range series {
		for _, l := range s.Labels {
			if l.Name == "address" {
				addresses[l.Value] = true
			}
		}
	}
	if len(addresses) != 11 || !addresses["198.18.2.11:10000-10099"] || !addresses["198.18.2.11:0"] {
		t.Errorf("metrics have the addresses %v", addresses)
	}
}

func TestSteeringOfRangesIsFewRules(t *testing.T) {
	const text = rangeHead + `
  - {name: a, source: client, address: 198.18.1.1:8000-8099, backends: [{address: 198.18.2.11}]}
  - {name: b, source: client, address: 198.18.1.1:8100-8199, backends: [{address: 198.18.2.11:8500-8599}]}
  - {name: c, source: client, address: 198.18.1.1:8200, backends: [{address: 198.18.2.11:8100}]}
  - {name: d, source: client, address: 198.18.1.2:9000-9009, backends: [{address: 198.18.2.11:9000}]}
`
	rules := func(w *world) (list []string) {
		for _, s := range w.g.Steering() {
			if s.Proto == wire.ProtoTCP && s.Ports.Last != 0 && s.Addr.String() != "198.18.2.1" {
				list = append(list, fmt.Sprintf("%v:%d-%d source %v neighbor %v", s.Addr, s.Ports.First, s.Ports.Last, s.Source, s.Neighbor))
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	shrunk := strings.Replace(text, "198.18.1.1:8000-8099", "198.18.1.1:8000-8009", 1)
	w := newWorld(t, text)
	want := []string{
		"198.18.1.1:8000-8200 source false neighbor true", "198.18.1.1:8200-8200 source false neighbor true", "198.18.1.2:9000-9009 source false neighbor true",
		"198.18.2.11:8000-8100 source true neighbor false", "198.18.2.11:8500-8599 source true neighbor false", "198.18.2.11:9000-9000 source true neighbor false",
	}
	got := rules(w)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w.opens(host, "198.18.1.1:8050", "S")
	if err := w.g.Reload(parse(t, shrunk)); err != nil {
		t.Fatal(err)
	}
	if got := rules(w); !slices.Contains(got, "198.18.1.1:8000-8200 source false neighbor true") || !slices.Contains(got, "198.18.2.11:8000-8100 source true neighbor false") {
		t.Errorf("with a connection on a port that is gone: %q", got)
	}
	w.expect(0, client(host, "198.18.1.1:8050", "R").bytes(), 1)
	w.after(11 * time.Second)
	got = rules(w)
	for _, want := range []string{"198.18.1.1:8000-8009 source false neighbor true", "198.18.1.1:8100-8200 source false neighbor true", "198.18.2.11:8000-8009 source true neighbor false"} {
		if !slices.Contains(got, want) {
			t.Errorf("no rule %q in %q", want, got)
		}
	}
}

// layer against a table of all ports.
func TestLayersOfSpansArePerPortTheShortest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var all []datapath.Span
		for i := range rng.IntN(12) {
			a, b := uint16(1+rng.IntN(60)), uint16(1+rng.IntN(60))
			if rng.IntN(8) == 0 {
				a, b = 1, 65535
			}
			all = append(all, datapath.Span{Ports: datapath.PortRange{First: min(a, b), Last: max(a, b)}, First: min(a, b), Service: int32(i%5) - 1})
		}
		got := layer(all)
		for i := 1; i < len(got); i++ {
			if got[i-1].Ports.Last >= got[i].Ports.First {
				t.Fatalf("spans overlap: %v of %v", got, all)
			}
		}
		r := datapath.VIPRange{Spans: got}
		for _, port := range append(slices.Collect(func(yield func(uint16) bool) {
			for p := uint16(0); p < 70 && yield(p); p++ {
			}
		}), 65534, 65535) {
			var best *datapath.Span
			for i := range all {
				s := &all[i]
				if s.Ports.Contains(port) && (best == nil || best.Service < 0 && s.Service >= 0 || (best.Service < 0) == (s.Service < 0) && s.Ports.Size() < best.Ports.Size()) {
					best = s
				}
			}
			switch {
			case best == nil && r.Has(port), best != nil && !r.Has(port), best != nil && r.Service(port) != best.Service:
				t.Fatalf("port %d: %v of %v, want %v", port, got, all, best)
			}
		}
	}
}
