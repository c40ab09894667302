package control

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// told is what gopacket finds in an ICMP or ICMPv6 error.
type told struct {
	src, dst   string
	kind, code uint8
	mtu        uint32
	quote      []byte
}

// toldBy checks an ICMP error that went back to the client and returns what it says.
func toldBy(t *testing.T, p []byte) told {
	t.Helper()
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
	if pk.ErrorLayer() != nil {
		t.Fatal(pk.ErrorLayer().Error())
	}
	eth := pk.LinkLayer().(*layers.Ethernet)
	if !bytes.Equal(eth.DstMAC, macClient[:]) || !bytes.Equal(eth.SrcMAC, macGw0[:]) {
		t.Errorf("from %v to %v", eth.SrcMAC, eth.DstMAC)
	}
	got := told{src: pk.NetworkLayer().NetworkFlow().Src().String(), dst: pk.NetworkLayer().NetworkFlow().Dst().String()}
	body := pk.NetworkLayer().LayerPayload()
	sum, most := uint32(0), 576
	switch ip := pk.NetworkLayer().(type) {
	case *layers.IPv4:
		if ip.Protocol != layers.IPProtocolICMPv4 || ip.TTL != 64 || wire.Fold(wire.SumPlain(ip.Contents, 0)) != 0 || int(ip.Length) != len(ip.Contents)+len(body) {
			t.Errorf("header %+v", ip)
		}
	case *layers.IPv6:
		if ip.NextHeader != layers.IPProtocolICMPv6 || ip.HopLimit != 64 || int(ip.Length) != len(body) {
			t.Errorf("header %+v", ip)
		}
		sum, most = pseudoOf(ip, wire.ProtoICMPv6, len(body)), 1280
	}
	if n := len(pk.NetworkLayer().LayerContents()) + len(body); wire.Fold(wire.SumPlain(body, sum)) != 0 || n > most {
		t.Errorf("checksum of %d bytes is wrong: %x", n, body)
	}
	got.kind, got.code, got.quote = body[0], body[1], body[8:]
	got.mtu = uint32(body[4])<<24 | uint32(body[5])<<16 | uint32(body[6])<<8 | uint32(body[7])
	return got
}

// large is a packet of n bytes from IP on.
func large(src, dst, flags string, n int) []byte {
	s := client(src, dst, flags)
	s.payload = strings.Repeat("x", 1000)
	s.payload = strings.Repeat("x", n+14+1000-len(s.bytes()))
	return s.bytes()
}

func TestAPacketThatDoesNotFitATunnelIsAnswered(t *testing.T) {
	for _, c := range tunnels {
		overhead := map[string]int{"ipip" + backend4: 20, "ipip" + backend6: 40, "gue" + backend4: 32, "gue" + backend6: 52}[c.mode+c.backend]
		for _, from := range [][4]string{
			{"198.18.0.9:40000", "198.18.1.1:80", "198.18.0.9", "198.18.1.1"},
			{"[2001:db8::9]:40000", "[2001:db8:1::1]:80", "2001:db8::9", "2001:db8:1::1"},
		} {
			t.Run(c.mode+" to "+c.backend+" from "+from[2], func(t *testing.T) {
				w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
				w.expect(0, client(from[0], from[1], "S").bytes(), 1)
				w.expect(0, large(from[0], from[1], "PA", 1500-overhead), 1)
				in := large(from[0], from[1], "PA", 1500-overhead+1)
				got := toldBy(t, w.expect(0, in, 0))
				want := told{from[3], from[2], 3, 4, uint32(1500 - overhead), in[14 : 14+548]}
				if strings.Contains(from[2], ":") {
					want.kind, want.code, want.quote = 2, 0, in[14:14+1232]
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
			})
		}
	}
}

// NAT answers both sides: the client from the service address, the backend from the address that it sees.
func TestAPacketThatDoesNotFitIsAnsweredOnBothSides(t *testing.T) {
	for _, c := range []struct{ source, us string }{{"", "198.18.2.1"}, {"source: client", "198.18.1.1"}} {
		t.Run(c.source, func(t *testing.T) {
			w := newWorld(t, fill(c.source))
			there := w.expect(0, client(host, web, "S").bytes(), 1)
			w.g.SetDevice(0, datapath.Device{Name: "gw0", MAC: macGw0, MTU: 1400})
			w.g.SetDevice(1, datapath.Device{Name: "gw1", MAC: macGw1, MTU: 1300})
			got := toldBy(t, w.expect(0, large(host, web, "PA", 1301), 0))
			if got.src != "198.18.1.1" || got.dst != "198.18.0.9" || got.kind != 3 || got.code != 4 || got.mtu != 1300 {
				t.Errorf("the client is told %v", got)
			}
			a := answer(there, "PA")
			a.payload = strings.Repeat("x", 1401-40)
			s := w.send(1, a.bytes())
			if s.verdict != packet.Forward || s.port != 1 {
				t.Fatalf("%v to %d", s.verdict, s.port)
			}
			p := s.p
			if [6]byte(p[:6]) != macBackend || [6]byte(p[6:12]) != macGw1 {
				t.Errorf("link addresses %x", p[:12])
			}
			copy(p[:6], macClient[:]) // as toldBy wants them
			copy(p[6:12], macGw0[:])
			got = toldBy(t, p)
			if got.src != c.us || got.dst != flowOf(there).dst.Addr().String() || got.mtu != 1400 || !bytes.Equal(got.quote, a.bytes()[14:14+548]) {
				t.Errorf("the backend is told %v", got)
			}
		})
	}
}

func TestTheLastHopIsAnswered(t *testing.T) {
	w := newWorld(t, fill(""))
	for _, c := range [][2]string{{host, web}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}, {host, dns}} {
		for _, ttl := range []uint8{1, 2} {
			s := client(c[0], c[1], map[bool]string{true: "", false: "S"}[c[1] == dns])
			s.ttl = ttl
			in := s.bytes()
			if ttl == 2 {
				w.expect(0, in, 1)
				continue
			}
			got := toldBy(t, w.expect(0, in, 0))
			kind := uint8(11)
			if strings.Contains(c[0], "[") {
				kind = 3
			}
			if got.kind != kind || got.code != 0 || got.mtu != 0 || got.src != s.dst.Addr().String() || !bytes.Equal(got.quote, in[14:]) {
				t.Errorf("%v: told %v", c, got)
			}
		}
	}
	s := client(host, "198.18.77.1:80", "S") // for an address that is not ours
	s.ttl = 1
	w.refused(0, s.bytes(), packet.DropTTL)
}

const rejectConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - {name: web, unavailable: %[1]s, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], backends: [{address: ["198.18.2.11:80", "[2001:db8:2::11]:80"], weight: 0}]}
  - {name: dns, unavailable: %[1]s, protocol: udp, address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [{address: ["198.18.2.11:80", "[2001:db8:2::11]:80"], weight: 0}]}
`

// RFC 9293 3.10.7.1: what a segment without a connection gets.
func TestAServiceWithoutBackendsResets(t *testing.T) {
	for _, c := range []struct {
		flags    string
		n        int // payload
		seq, ack uint32
		answer   string // flags
	}{
		{"S", 0, 0, 1000, "RA"},
		{"S", 7, 0, 1007, "RA"}, // with data (RFC 9293 3.4)
	} {
		for _, at := range [][2]string{{host, web}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}} {
			w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
			s := client(at[0], at[1], c.flags)
			s.payload = strings.Repeat("x", c.n)
			out := w.expect(0, s.bytes(), 0)
			w.checksumsRight(out)
			f := flowOf(out)
			tcp := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
			if f.src != s.dst || f.dst != s.src || tcp.Seq != c.seq || tcp.Ack != c.ack || !tcp.RST || tcp.ACK != strings.Contains(c.answer, "A") ||
				tcp.SYN || tcp.FIN || len(tcp.Payload) != 0 || !bytes.Equal(f.dstMAC, macClient[:]) || f.ttl != 64 {
				t.Errorf("%s of %d bytes from %s: %+v", c.flags, c.n, at[0], tcp)
			}
		}
	}
}

// A segment of a connection whose backend is gone.
func TestAConnectionWithoutItsBackendIsReset(t *testing.T) {
	config := strings.ReplaceAll(fill(""), "- name: web", "- name: web\n    unavailable: reject")
	for _, c := range []struct {
		flags    string
		n        int
		seq, ack uint32
		silent   bool
	}{
		{"A", 0, 77, 0, false},
		{"PA", 9, 77, 0, false},
		{"FA", 0, 77, 0, false},
		{"F", 3, 0, 1004, false}, // no acknowledgement: FIN and data count
		{"RA", 0, 0, 0, true},
		{"R", 0, 0, 0, true},
	} {
		w := newWorld(t, config)
		w.expect(0, client(host, web, "S").bytes(), 1)
		w.setHealth("b1", false)
		w.setHealth("b2", false)
		s := client(host, web, c.flags)
		s.payload = strings.Repeat("x", c.n)
		in := s.bytes()
		tcp := wire.TCP(in[34:])
		if tcp.Flags().Has(wire.FlagACK) {
			tcp.SetAck(77)
			tcp.FillChecksum(wire.IPv4(in[14:]).Pseudo())
		}
		if c.silent {
			w.refused(0, in, packet.DropNoBackend)
			continue
		}
		out := w.expect(0, in, 0)
		w.checksumsRight(out)
		got := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
		if got.Seq != c.seq || got.Ack != c.ack || !got.RST || got.ACK != (c.seq == 0) {
			t.Errorf("%s of %d bytes: %+v", c.flags, c.n, got)
		}
	}
}

func TestAServiceWithoutBackendsIsUnreachableByUDP(t *testing.T) {
	for _, c := range []struct {
		src, dst   string
		kind, code uint8
	}{{host, dns, 3, 3}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:53", 1, 4}} {
		w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
		in := client(c.src, c.dst, "").bytes()
		got := toldBy(t, w.expect(0, in, 0))
		if got.kind != c.kind || got.code != c.code || got.mtu != 0 || !bytes.Equal(got.quote, in[14:]) {
			t.Errorf("told %v", got)
		}
		w.after(0)
		if n := w.g.Status().Answers["unreachable"]; n != 1 {
			t.Errorf("answers %v", w.g.Status().Answers)
		}
	}
	w := newWorld(t, fmt.Sprintf(rejectConfig, "drop"))
	w.refused(0, client(host, dns, "").bytes(), packet.DropNoBackend)
	w.refused(0, client(host, web, "S").bytes(), packet.DropNoBackend)
}

func TestNothingIsSaidToNobody(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
	for _, src := range []string{"224.0.0.1:9", "0.0.0.0:9", "255.255.255.255:9", "127.0.0.1:9", "[ff02::1]:9", "[::1]:9", "[::]:9"} {
		at, datagram := web, dns
		if strings.Contains(src, "[") {
			at, datagram = "[2001:db8:1::1]:80", "[2001:db8:1::1]:53"
		}
		for _, p := range [][]byte{client(src, at, "S").bytes(), client(src, datagram, "").bytes()} {
			if s := w.send(0, p); !s.verdict.Dropped() {
				t.Errorf("an answer to %s: %x", src, s.p)
			}
		}
	}
	s := client(host, web, "S")
	s.from[0] |= 1 // a group's link address
	if s := w.send(0, s.bytes()); !s.verdict.Dropped() {
		t.Errorf("an answer to a group's link address: %x", s.p)
	}
}

func TestAnErrorWithoutHeadroomIsADrop(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
	for _, c := range []struct {
		src, dst string
		need     uint32
	}{{host, dns, 28}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:53", 48}} {
		in := client(c.src, c.dst, "").bytes()
		for _, room := range []uint32{c.need - 1, c.need} {
			b := w.batch(0, in)
			b.D[0].Off = room
			copy(w.arena.Mem[room:], in)
			w.run(b)
			if got := b.D[0].Verdict == packet.Forward; got != (room == c.need) {
				t.Errorf("%s with %d bytes: %v", c.dst, room, b.D[0].Verdict)
			}
		}
	}
}

func TestTsharkFindsNothingWrongInAnswers(t *testing.T) {
	testnet.Program(t, "tshark")
	w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
	var out [][]byte
	for _, c := range [][3]string{{host, web, "S"}, {host, dns, ""}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S"}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:53", ""}} {
		out = append(out, w.expect(0, client(c[0], c[1], c[2]).bytes(), 0))
		s := client(c[0], c[1], c[2])
		s.ttl = 1
		out = append(out, w.expect(0, s.bytes(), 0))
	}
	tsharkAgrees(t, out)
}
