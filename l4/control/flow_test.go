package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const (
	web  = "198.18.1.1:80"
	dns  = "198.18.1.1:53"
	host = "198.18.0.9:40000"
)

// connect takes a connection through the handshake and returns the SYN as the backend got it.
func (w *world) connect(src string) []byte {
	w.t.Helper()
	return w.connectTo(src, web)
}

// connectTo is connect to another service address.
func (w *world) connectTo(src, dst string) []byte {
	w.t.Helper()
	out := w.expect(0, client(src, dst, "S").bytes(), 1)
	w.expect(1, answer(out, "SA").bytes(), 0)
	w.expect(0, client(src, dst, "A").bytes(), 1)
	return out
}

func TestAConnectionStaysWithItsBackendAndPort(t *testing.T) {
	w := newWorld(t, fill(""))
	for i := range 50 {
		src := fmt.Sprintf("198.18.0.9:%d", 40000+i)
		want := flowOf(w.connect(src))
		for range 3 {
			got := flowOf(w.expect(0, client(src, web, "PA").bytes(), 1))
			if got.src != want.src || got.dst != want.dst {
				t.Fatalf("went from %v to %v, then from %v to %v", want.src, want.dst, got.src, got.dst)
			}
		}
	}
	if n := w.g.Status().Connections; n != 50 {
		t.Errorf("%d connections", n)
	}
}

func TestOnlyASYNStartsATCPConnection(t *testing.T) {
	w := newWorld(t, fill(""))
	for _, flags := range []string{"A", "SA", "PA", "FA", "R", "RA", "SF", "SR", "P"} {
		w.refused(0, client(host, web, flags).bytes(), packet.DropNoFlow)
	}
	w.expect(0, client(host, web, "S").bytes(), 1)
	w.expect(0, client(host, web, "A").bytes(), 1)
}

// Timeouts by state: the packet at the end is lost or not, after that much silence.
func TestIdleConnectionsAreForgotten(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(w *world)
		idle  time.Duration
	}{
		{"before the handshake is done", func(w *world) { w.expect(0, client(host, web, "S").bytes(), 1) }, 30 * time.Second},
		{"established", func(w *world) { w.connect(host) }, 124 * time.Minute},
		{"the backend has answered", func(w *world) {
			w.expect(1, answer(w.expect(0, client(host, web, "S").bytes(), 1), "SA").bytes(), 0)
			w.expect(0, client(host, web, "S").bytes(), 1)
		}, 4 * time.Minute},
		{"after a FIN of the client", func(w *world) {
			w.connect(host)
			w.expect(0, client(host, web, "FA").bytes(), 1)
		}, 4 * time.Minute},
		{"after a FIN of the backend", func(w *world) {
			w.expect(1, answer(w.connect(host), "FA").bytes(), 0)
		}, 4 * time.Minute},
		{"after both FINs", func(w *world) {
			out := w.connect(host)
			w.expect(0, client(host, web, "FA").bytes(), 1)
			w.expect(1, answer(out, "FA").bytes(), 0)
		}, 30 * time.Second},
		{"after a RST of the backend", func(w *world) {
			out := w.connect(host)
			w.expect(1, answer(out, "R").bytes(), 0)
		}, 10 * time.Second},
	} {
		for _, tick := range []bool{true, false} { // the hand, or only the deadline
			t.Run(fmt.Sprintf("%s, hand %v", c.name, tick), func(t *testing.T) {
				w := newWorld(t, fill(""))
				c.setup(w)
				w.now = w.now.Add(c.idle - time.Second)
				w.expect(0, client(host, web, last(c.name)).bytes(), 1)
				if tick {
					w.after(c.idle + 5*time.Second)
					if n := w.g.Status().Connections; n != 0 {
						t.Errorf("%d connections are left", n)
					}
				}
				w.now = w.now.Add(c.idle + time.Second)
				w.refused(0, client(host, web, "A").bytes(), packet.DropNoFlow)
				if n := w.g.Status().Connections; n != 0 {
					t.Errorf("%d connections are left", n)
				}
			})
		}
	}
}

// last returns the flags of the segment that keeps a connection where it is.
func last(name string) string {
	if name == "the backend has answered" {
		return "S"
	}
	return "A"
}

func TestAReplyKeepsAConnectionAlive(t *testing.T) {
	w := newWorld(t, fill(""))
	out := w.expect(0, client(host, dns, "").bytes(), 1)
	for range 5 {
		w.now = w.now.Add(50 * time.Second)
		w.expect(1, answer(out, "").bytes(), 0)
	}
	w.now = w.now.Add(2*time.Minute + time.Second)
	w.refused(1, answer(out, "").bytes(), packet.DropNoFlow)
}

func TestANewSYNAfterTheEndStartsAnew(t *testing.T) {
	w := newWorld(t, fill(""))
	first := flowOf(w.connect(host))
	w.expect(0, client(host, web, "FA").bytes(), 1)
	w.expect(0, client(host, web, "S").bytes(), 1)
	if got := flowOf(w.expect(0, client(host, web, "S").bytes(), 1)); got.src != first.src {
		t.Error("a SYN ended a connection that is half closed")
	}
	w.expect(1, seg{src: first.dst, dst: first.src, flags: "FA", seq: firstSeq + 16, ack: firstSeq + 25, from: macBackend, to: macGw1}.bytes(), 0)
	done := client(host, web, "A")
	done.seq, done.ack, done.payload = firstSeq+25, firstSeq+17, ""
	w.expect(0, done.bytes(), 1)
	second := flowOf(w.expect(0, client(host, web, "S").bytes(), 1))
	if first.src == second.src {
		t.Error("the backend sees the ports of a connection in TIME-WAIT")
	}
	third := flowOf(w.expect(0, client(host, web, "S").bytes(), 1))
	if third.src != second.src {
		t.Error("a SYN sent again became another connection")
	}
}

func TestRepliesGoWhereTheClientsPacketsCameFrom(t *testing.T) {
	w := newWorld(t, fill(""))
	out := w.connect(host)
	moved := client(host, web, "A")
	moved.from, moved.to = [6]byte{2, 9, 9, 9, 9, 9}, macGw1
	w.expect(1, moved.bytes(), 1)
	got := flowOf(w.expect(1, answer(out, "A").bytes(), 1))
	if [6]byte(got.dstMAC) != moved.from {
		t.Errorf("to %v, want %x", got.dstMAC, moved.from)
	}
}

func TestTwoClientsOnOnePortDoNotMeet(t *testing.T) {
	w := newWorld(t, fill(""))
	seen := map[netip.AddrPort]string{}
	for i := range 100 {
		src := fmt.Sprintf("198.18.0.%d:40000", i+1)
		got := flowOf(w.expect(0, client(src, dns, "").bytes(), 1))
		if other, ok := seen[got.src]; ok {
			t.Fatalf("%s and %s both have source %v", src, other, got.src)
		}
		seen[got.src] = src
		back := flowOf(w.expect(1, answer(w.expect(0, client(src, dns, "").bytes(), 1), "").bytes(), 0))
		if back.dst.String() != src {
			t.Fatalf("a reply to %s went to %v", src, back.dst)
		}
	}
}

// Source ports that half-open connections hold go to new ones; those of confirmed connections do not.
func TestSourcePortsRunOutForNewConnectionsOnly(t *testing.T) {
	w := newWorld(t, "snat_ports: 5000-5009\n"+fill(""))
	for i := range 10 {
		w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), dns, "").bytes(), 1)
	}
	var out [][]byte
	for i := range 10 {
		out = append(out, w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 2000+i), dns, "").bytes(), 1))
	}
	if st := w.g.Status(); st.Connections != 10 || st.Services[1].Evicted.HalfOpen != 10 {
		t.Errorf("%d connections, evicted %+v", st.Connections, st.Services[1].Evicted)
	}
	for i, p := range out {
		if got := flowOf(w.expect(1, answer(p, "").bytes(), 0)); got.dst.Port() != uint16(2000+i) {
			t.Errorf("the reply to %d went to %v", 2000+i, got.dst)
		}
	}
	w.refused(0, client("198.18.0.9:3000", dns, "").bytes(), packet.DropPortsFull)
	w.expect(0, client("198.18.0.9:2000", dns, "").bytes(), 1)
	w.after(2*time.Minute + 10*time.Second)
	for i := range 10 {
		w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 4000+i), dns, "").bytes(), 1)
	}
}

// With clients' own addresses a client keeps its port, but one port may lead to a backend by one
// service only: by the others the backend sees another port.
func TestAClientPortLeadsToABackendOnce(t *testing.T) {
	const config = `
devices: [{name: gw0, queues: %d}, {name: gw1, queues: %[1]d}]
table: {size: 1024}
services:
  - {name: one, protocol: udp, source: client, address: 198.18.1.1:53, backends: [{address: 198.18.2.11:53}]}
  - {name: two, protocol: udp, source: client, address: 198.18.1.2:53, backends: [{address: 198.18.2.11:53}]}
  - {name: web, source: client, address: [198.18.1.1:80, 198.18.1.2:80], backends: [{address: 198.18.2.11:80}]}
`
	for _, loops := range []int{1, 3} {
		w := newWorld(t, fmt.Sprintf(config, loops))
		for _, w.h = range w.g.Handlers() { // the one that the client's connections belong to
			if w.send(0, client(host, "198.18.1.1:80", "R").bytes()).verdict != packet.Handover {
				break
			}
		}
		for _, flags := range []string{"", "S"} {
			port := map[string]string{"": "53", "S": "80"}[flags]
			seen := map[netip.AddrPort]bool{}
			for _, front := range []string{"198.18.1.1:" + port, "198.18.1.2:" + port} {
				out := w.expect(0, client(host, front, flags).bytes(), 1)
				w.checksumsRight(out)
				got := flowOf(out)
				if got.src.Addr().String() != "198.18.0.9" || seen[got.src] || (len(seen) == 0) != (got.src.Port() == 40000) {
					t.Errorf("by %s the backend sees %v", front, got.src)
				}
				seen[got.src] = true
				back := w.expect(1, answer(out, map[string]string{"": "", "S": "SA"}[flags]).bytes(), 0)
				w.checksumsRight(back)
				if got := flowOf(back); got.src.String() != front || got.dst.String() != host {
					t.Errorf("the reply goes from %v to %v", got.src, got.dst)
				}
			}
		}
		w.audit()
		w.now = w.now.Add(2*time.Minute + time.Second)
		if got := flowOf(w.expect(0, client(host, "198.18.1.2:53", "").bytes(), 1)); got.src.String() != host {
			t.Errorf("after the other has expired the backend sees %v", got.src)
		}
	}
}

// What is taken over in the middle has to keep its port: the backend knows it by that.
func TestAnAdoptedConnectionKeepsItsPort(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0}, {name: gw1}]
snat: 198.18.2.1
services:
  - {name: web, source: client, address: [198.18.1.1:80, 198.18.1.2:80], backends: [{address: 198.18.2.11:80}]}
`)
	w.expect(0, client(host, "198.18.1.1:80", "A").bytes(), 1)
	w.refused(0, client(host, "198.18.1.2:80", "A").bytes(), packet.DropPortsFull)
	w.refused(1, fromBackend("198.18.2.11:40000", "198.18.1.1:80", "A").bytes(), packet.DropPortsFull)
}

// A backend may be a client of the service that it serves, and get its own connection; so may another host
// of the backends' network, whose replies come by the gateway.
func TestBackendsAreClientsToo(t *testing.T) {
	for _, source := range []string{"gateway", "client"} {
		for _, c := range []struct{ name, src, front string }{
			{"a backend", "198.18.2.11:40000", dns},
			{"a backend, IPv6", "[2001:db8:2::11]:40000", "[2001:db8:1::1]:53"},
			{"a neighbour", "198.18.2.77:40000", dns},
		} {
			t.Run(c.name+", source "+source, func(t *testing.T) {
				w := newWorld(t, fill("source: "+source))
				s := fromBackend(c.src, c.front, "")
				out := w.expect(1, s.bytes(), 1)
				w.checksumsRight(out)
				got := flowOf(out)
				if own := source == "client" && c.name == "a neighbour"; own != (got.src == s.src) {
					t.Errorf("the backend sees %v", got.src)
				}
				back := w.expect(1, answer(out, "").bytes(), 1)
				w.checksumsRight(back)
				if got := flowOf(back); got.src != s.dst || got.dst != s.src || [6]byte(got.dstMAC) != s.from {
					t.Errorf("the reply goes from %v to %v, %v", got.src, got.dst, got.dstMAC)
				}
			})
		}
	}
}

// fromBackend is client for one in the backends' network.
func fromBackend(src, dst, flags string) seg {
	s := client(src, dst, flags)
	s.from, s.to = [6]byte{2, 0, 0, 0, 0, 0xbb}, macGw1
	return s
}

// Without an SNAT address a backend could not answer itself.
func TestABackendIsNoClientWithoutSNAT(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0}, {name: gw1}]
services:
  - {name: web, source: client, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
`)
	w.refused(1, fromBackend("198.18.2.11:40000", web, "S").bytes(), packet.DropPortsFull)
}

// When the ports of one SNAT address are used up the others serve.
func TestAllSNATAddressesAreUsed(t *testing.T) {
	w := newWorld(t, strings.Replace("snat_ports: 5000-5009\n"+fill(""), "198.18.2.1,", "198.18.2.1, 198.18.2.2, 198.18.2.3,", 1))
	seen := map[netip.AddrPort]bool{}
	for i := range 30 {
		out := w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), dns, "").bytes(), 1)
		w.expect(1, answer(out, "").bytes(), 0)
		seen[flowOf(out).src] = true
	}
	if len(seen) != 30 {
		t.Errorf("%d sources for 30 connections", len(seen))
	}
	w.refused(0, client("198.18.0.9:2000", dns, "").bytes(), packet.DropPortsFull)
	w.audit()
}

func TestWhatIsNotServedIsDroppedByReason(t *testing.T) {
	good := func() seg { return client(host, dns, "") }
	edit := func(f func(p []byte)) []byte {
		p := good().bytes()
		f(p)
		return p
	}
	six := client("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "").bytes()
	otherHost := good()
	otherHost.to = [6]byte{2, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		name string
		p    []byte
		want packet.Verdict
	}{
		{"another port of a service address", client(host, "198.18.1.1:81", "").bytes(), packet.DropNoService},
		{"another protocol", client(host, "198.18.1.1:80", "").bytes(), packet.DropNoService},
		{"another address", client(host, "198.18.1.9:80", "S").bytes(), packet.DropNoService},
		{"a reply without connection", client("198.18.2.11:8080", "198.18.2.1:2000", "SA").bytes(), packet.DropNoFlow},
		{"a stranger to an SNAT address", client("198.18.9.9:8080", "198.18.2.1:2000", "SA").bytes(), packet.DropNoFlow},
		{"a wrong header checksum", edit(func(p []byte) { p[24] ^= 1 }), packet.DropIPChecksum},
		{"a later fragment of an unknown datagram", edit(func(p []byte) { p[21] = 1; wire.IPv4(p[14:]).FillChecksum() }), packet.DropFragment},
		{"a header length of 4", edit(func(p []byte) { p[14] = 0x41 }), packet.DropMalformed},
		{"a length beyond the frame", edit(func(p []byte) { p[16] = 5 }), packet.DropTruncated},
		{"ICMP with a wrong checksum", edit(func(p []byte) { p[23] = 1; wire.IPv4(p[14:]).FillChecksum() }), packet.DropL4Checksum},
		{"a frame for another host", otherHost.bytes(), packet.DropUnsupported},
		{"a frame from a group", edit(func(p []byte) { p[6] |= 1 }), packet.DropMalformed},
		{"source 127.0.0.1", client("127.0.0.1:4000", dns, "").bytes(), packet.DropMartian},
		{"source 224.0.0.1", client("224.0.0.1:4000", dns, "").bytes(), packet.DropMartian},
		{"source port 0", client("198.18.0.9:0", dns, "").bytes(), packet.DropUnsupported},
		{"source ::1", client("[::1]:4000", "[2001:db8:1::1]:53", "").bytes(), packet.DropMartian},
		{"two VLAN tags", append(append(bytes.Clone(six[:12]), 0x81, 0, 0, 5, 0x81, 0, 0, 6), six[12:]...), packet.DropUnsupported},
		{"a service tag", append(append(bytes.Clone(six[:12]), 0x88, 0xa8, 0, 5), six[12:]...), packet.DropUnsupported},
		{"no IP at all", []byte("\x02\x00\x00\x00\x00\x90\x02\x00\x00\x00\x00\xc1\x88\xcc12345678"), packet.DropUnsupported},
		{"half a header", six[:30], packet.DropTruncated},
		{"nothing", []byte{}, packet.DropTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fill(""))
			before := bytes.Clone(c.p)
			s := w.send(0, c.p)
			if s.verdict != c.want {
				t.Errorf("verdict %v, want %v", s.verdict, c.want)
			}
			if !bytes.Equal(before, s.p) {
				t.Error("a dropped packet was rewritten")
			}
			if n := w.g.Status().Connections; n != 0 {
				t.Errorf("%d connections", n)
			}
			if n := w.g.Status().Dropped[c.want.String()]; n != 1 {
				t.Errorf("counted %d times: %v", n, w.g.Status().Dropped)
			}
		})
	}
}

func TestHopsDecideWhetherAPacketLeaves(t *testing.T) {
	c := parse(t, fill(""))
	hops := hopsOf(c)
	for a, hop := range hops {
		hop.State = nexthop.Unresolved
		hops[a] = hop
	}
	w := newWorldWith(t, c, hops)
	w.refused(0, client(host, dns, "").bytes(), packet.DropNoNeighbor)
	w.g.hopChanged(netip.MustParseAddr("198.18.2.11"), nexthop.Hop{State: nexthop.NoRoute})
	w.refused(0, client(host, dns, "").bytes(), packet.DropNoRoute)
	w.g.hopChanged(netip.MustParseAddr("198.18.2.11"), nexthop.Hop{MAC: macBackend, Dev: 9, State: nexthop.Ready})
	w.refused(0, client(host, dns, "").bytes(), packet.DropNoRoute) // a port that is not there
	w.g.hopChanged(netip.MustParseAddr("198.18.2.11"), nexthop.Hop{MAC: macClient, Dev: 0, State: nexthop.Ready})
	got := flowOf(w.expect(0, client(host, dns, "").bytes(), 0))
	if [6]byte(got.dstMAC) != macClient {
		t.Errorf("to %v", got.dstMAC)
	}
	if n := w.g.Status().Services[1].Dropped["no_neighbor"]; n != 1 {
		t.Errorf("the service counts %d", n)
	}
}

// A packet of several descriptors is decided at its first; the others follow it.
func TestPiecesOfAPacketGoTogether(t *testing.T) {
	w := newWorld(t, fill(""))
	s := client(host, dns, "")
	s.payload = strings.Repeat("x", 1000)
	p := s.bytes()
	b := w.batch(0, p[:600], p[600:], client(host, "198.18.1.9:1", "").bytes())
	b.D[0].Flags = packet.FlagMore
	w.run(b)
	if b.D[0].Verdict != packet.Forward || b.D[1].Verdict != packet.Forward || b.D[1].Port != 1 || b.D[2].Verdict != packet.DropNoService {
		t.Errorf("verdicts %v %v %v", b.D[0].Verdict, b.D[1].Verdict, b.D[2].Verdict)
	}
	if st := w.g.Status(); st.Forwarded != 1 {
		t.Errorf("%d packets forwarded", st.Forwarded)
	}
	w.checksumsRight(append(bytes.Clone(b.Bytes(0)), b.Bytes(1)...))
}

// Two loops: each allocates from its own ports and the counts are those of both.
func TestLoopsShareNothingButTheirSum(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0, queues: 2}, {name: gw1, queues: 2}]
snat: [198.18.2.1]
snat_ports: 1000-1999
table: {size: 1024}
services:
  - {name: dns, protocol: udp, address: 198.18.1.1:53, backends: [{address: 198.18.2.11:53}]}
`)
	var last [2][]byte
	for n := range 20 {
		s, i := w.at(n%2, 0, client(fmt.Sprintf("198.18.0.%d:40000", 1+n), dns, "").bytes())
		last[i] = s.p
		if port := int(flowOf(s.p).src.Port()); s.verdict != packet.Forward || port < 1000+500*i || port > 1499+500*i {
			t.Errorf("%v, loop %d took port %d", s.verdict, i, port)
		}
	}
	for i := range last {
		if s, at := w.at(0, 1, answer(last[i], "").bytes()); s.verdict != packet.Forward || at != i {
			t.Errorf("the answer to port %d of loop %d: %v on loop %d", flowOf(last[i]).src.Port(), i, s.verdict, at)
		}
	}
	st := w.g.Status()
	if b := st.Services[0].Backends[0]; st.Connections != 20 || st.Forwarded != 22 || b.Connections != 20 || b.ToPackets != 20 || b.FromPackets != 2 {
		t.Errorf("%+v", st)
	}
}
