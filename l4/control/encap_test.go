package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// tunnelConfig has a TCP and a UDP service of each family; %[1]s is the mode, %[2]s the backend.
const tunnelConfig = `
devices: [{name: gw0}, {name: gw1}]
table: {size: 65536}
tunnel: {source: [198.18.5.0/24, "2001:db8:5::/64"]}
services:
  - {name: web, mode: %[1]s, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], backends: [{address: "%[2]s"}]}
  - {name: dns, mode: %[1]s, protocol: udp, address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [{address: "%[2]s"}]}
`

const backend4, backend6 = "198.18.2.11", "2001:db8:2::11"

var tunnels = []struct{ mode, backend string }{
	{"ipip", backend4}, {"ipip", backend6}, {"gue", backend4}, {"gue", backend6},
}

// inners are packets of both families and protocols, of even and odd length, and what checksums may be.
func inners() map[string][]byte {
	m := map[string][]byte{}
	for _, c := range []struct{ name, src, dst, flags string }{
		{"tcp4", "198.18.0.9:40000", "198.18.1.1:80", "S"},
		{"tcp6", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S"},
		{"udp4", "198.18.0.9:40000", "198.18.1.1:53", ""},
		{"udp6", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", ""},
	} {
		for _, n := range []int{0, 1, 700, 701} {
			s := client(c.src, c.dst, c.flags)
			s.payload = strings.Repeat("x", n)
			p := s.bytes()
			m[fmt.Sprintf("%s of %d", c.name, n)] = p
			bad := bytes.Clone(p)
			bad[len(bad)-1] ^= 0x40
			m[fmt.Sprintf("%s of %d, wrong checksum", c.name, n)] = bad
		}
		short := client(c.src, c.dst, c.flags)
		short.payload = ""
		m[c.name+" with padding"] = append(short.bytes(), "padding"...)
		bad := append(client(c.src, c.dst, c.flags).bytes(), "padding"...)
		bad[len(bad)-8] ^= 1
		m[c.name+" with padding, wrong checksum"] = bad
	}
	for _, name := range []string{"tcp6", "udp6"} {
		m[name+" with an extension header"] = extended(m[name+" of 701"])
		m[name+" with an extension header, wrong checksum"] = extended(m[name+" of 701, wrong checksum"])
	}
	none := client("198.18.0.9:40000", "198.18.1.1:53", "").bytes()
	none[40], none[41] = 0, 0
	m["udp4 without checksum"] = none
	m["udp4 shorter than its packet"] = shortDatagram()
	return m
}

// extended returns an IPv6 frame with destination options, which are padding, in front of its transport header.
func extended(p []byte) []byte {
	out := append(bytes.Clone(p[:54]), p[20], 0, wire.Option6PadN, 4, 0, 0, 0, 0)
	out[20] = wire.ProtoDestOpts
	binary.BigEndian.PutUint16(out[18:], uint16(len(p)-54+8))
	return append(out, p[54:]...)
}

// shortDatagram returns a UDP datagram whose checksum is right and whose length ends before its packet does.
func shortDatagram() []byte {
	p := client("198.18.0.9:40000", "198.18.1.1:53", "").bytes()
	udp := wire.UDP(p[34:])
	udp.SetLen(udp.Len() - 3)
	udp.FillChecksum(wire.PseudoHeader4([4]byte(p[26:30]), [4]byte(p[30:34]), wire.ProtoUDP, uint32(udp.Len())))
	return p
}

// unwrap checks an outer header and returns the inner packet with the link header of the outer.
func unwrap(t *testing.T, mode string, p []byte) (outer gopacket.NetworkLayer, sport uint16, inner []byte) {
	t.Helper()
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.NoCopy)
	outer = pk.NetworkLayer()
	proto, body := uint8(0), outer.LayerPayload()
	switch ip := outer.(type) {
	case *layers.IPv4:
		proto = uint8(ip.Protocol)
		if int(ip.Length) != len(p)-14 || ip.TTL != 64 || wire.Fold(wire.SumPlain(p[14:34], 0)) != 0 {
			t.Errorf("outer header %+v of %d bytes", ip, len(p)-14)
		}
	case *layers.IPv6:
		proto = uint8(ip.NextHeader)
		if int(ip.Length) != len(p)-54 || ip.HopLimit != 64 || ip.FlowLabel == 0 {
			t.Errorf("outer header %+v of %d bytes", ip, len(p)-54)
		}
	}
	if mode == "gue" {
		udp := pk.TransportLayer().(*layers.UDP)
		if udp.DstPort != 6080 || udp.SrcPort < 49152 || int(udp.Length) != len(body) {
			t.Errorf("outer datagram %+v of %d bytes", udp, len(body))
		}
		sum := wire.SumPlain(body, pseudoOf(outer, wire.ProtoUDP, len(body)))
		if udp.Checksum == 0 || wire.Fold(sum) != 0 {
			t.Errorf("outer checksum %#x leaves %#x", udp.Checksum, wire.Fold(sum))
		}
		if body[8] != 0 || body[10] != 0 || body[11] != 0 || proto != wire.ProtoUDP {
			t.Errorf("GUE header %x in protocol %d", body[8:12], proto)
		}
		sport, proto, body = uint16(udp.SrcPort), body[9], body[12:]
	}
	if want, _ := wire.InnerProto(body); proto != want {
		t.Errorf("protocol %d around version %d", proto, body[0]>>4)
	}
	return outer, sport, append(bytes.Clone(p[:14]), body...)
}

// pseudoOf returns the sum of a pseudo header from what gopacket has read.
func pseudoOf(l gopacket.NetworkLayer, proto uint8, n int) uint32 {
	if ip, ok := l.(*layers.IPv4); ok {
		return wire.PseudoHeader4([4]byte(ip.SrcIP), [4]byte(ip.DstIP), proto, uint32(n))
	}
	ip := l.(*layers.IPv6)
	return wire.PseudoHeader6([16]byte(ip.SrcIP), [16]byte(ip.DstIP), proto, uint32(n))
}

// lessOne returns what a router makes of a packet, by the slow way: without padding, one hop less.
func lessOne(p []byte) []byte {
	p = bytes.Clone(p)
	if p[14]>>4 == 4 {
		ip := wire.IPv4(p[14:])
		ip.SetTTL(ip.TTL() - 1)
		ip.FillChecksum()
		return p[:14+int(ip.TotalLen())]
	}
	ip := wire.IPv6(p[14:])
	ip.SetHopLimit(ip.HopLimit() - 1)
	return p[:54+int(ip.PayloadLen())]
}

func TestATunnelCarriesEveryPacketUnchanged(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		for name, in := range inners() {
			t.Run(c.mode+" to "+c.backend+" with "+name, func(t *testing.T) {
				out := w.expect(0, in, 1)
				if [6]byte(out[:6]) != macBackend || [6]byte(out[6:12]) != macGw1 {
					t.Errorf("link addresses %x", out[:12])
				}
				outer, _, inner := unwrap(t, c.mode, out)
				if dst := outer.NetworkFlow().Dst().String(); dst != c.backend {
					t.Errorf("sent to %s", dst)
				}
				src := netip.MustParseAddr(outer.NetworkFlow().Src().String())
				if !netip.MustParsePrefix("198.18.5.0/24").Contains(src) && !netip.MustParsePrefix("2001:db8:5::/64").Contains(src) {
					t.Errorf("sent from %s", src)
				}
				if want := lessOne(in); !bytes.Equal(inner[14:], want[14:]) {
					t.Errorf("inner packet\n%x\nwant\n%x", inner[14:], want[14:])
				}
			})
		}
	}
}

// The outer header says of the inner one what RFC 2003 3.1, RFC 6040 4.1 and RFC 6864 4 ask for.
func TestTheOuterHeaderCopiesWhatItShould(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		ids := map[uint16]bool{}
		for tos := range 256 {
			for _, df := range []bool{false, true} {
				in := client("198.18.0.9:40000", "198.18.1.1:80", "S").bytes()
				ip := wire.IPv4(in[14:])
				ip.SetTOS(uint8(tos))
				ip.SetDontFragment(df)
				ip.FillChecksum()
				outer, _, _ := unwrap(t, c.mode, w.expect(0, in, 1))
				switch o := outer.(type) {
				case *layers.IPv4:
					if o.TOS != uint8(tos) || (o.Flags&layers.IPv4DontFragment != 0) != df || df && o.Id != 0 || !df && ids[o.Id] {
						t.Fatalf("TOS %d, DF %v: outer %+v", tos, df, o)
					}
					ids[o.Id] = !df
				case *layers.IPv6:
					if o.TrafficClass != uint8(tos) {
						t.Fatalf("TOS %d: outer %+v", tos, o)
					}
				}
			}
		}
		in := client("[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S").bytes()
		wire.IPv6(in[14:]).SetTrafficClass(0xb9)
		wire.IPv6(in[14:]).SetFlowLabel(0xfffff)
		switch o, _, _ := unwrap(t, c.mode, w.expect(0, in, 1)); o := o.(type) {
		case *layers.IPv4:
			if o.TOS != 0xb9 || o.Flags&layers.IPv4DontFragment == 0 {
				t.Errorf("outer %+v", o)
			}
		case *layers.IPv6:
			if o.TrafficClass != 0xb9 || o.FlowLabel == 0xfffff {
				t.Errorf("outer %+v", o)
			}
		}
	}
}

// Outer addresses, ports and labels are a flow's for good, and as many as the prefix has over flows.
func TestFlowsSpreadOverOuterSources(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		sources, ports, labels := map[string]int{}, map[uint16]bool{}, map[uint32]bool{}
		for i := range 4096 {
			in := client(fmt.Sprintf("198.18.0.9:%d", 1024+i), "198.18.1.1:80", "S")
			outer, port, _ := unwrap(t, c.mode, w.expect(0, in.bytes(), 1))
			in.flags = "PA"
			again, samePort, _ := unwrap(t, c.mode, w.expect(0, in.bytes(), 1))
			src := outer.NetworkFlow().Src().String()
			if src != again.NetworkFlow().Src().String() || port != samePort {
				t.Fatalf("flow %d: from %s port %d, then from %s port %d", i, src, port, again.NetworkFlow().Src(), samePort)
			}
			sources[src]++
			ports[port] = true
			if o, ok := outer.(*layers.IPv6); ok {
				labels[o.FlowLabel] = true
			}
		}
		// 4096 balls: all of 256 bins are hit, and hardly any of 2^64 twice; of 16384 some 3623.
		if c.backend == backend4 && len(sources) != 256 || c.backend == backend6 && (len(sources) != 4096 || len(labels) < 4000) {
			t.Errorf("%s to %s: %d sources, %d labels", c.mode, c.backend, len(sources), len(labels))
		}
		if c.mode == "gue" && len(ports) < 3400 {
			t.Errorf("%s to %s: %d ports", c.mode, c.backend, len(ports))
		}
		for src, n := range sources {
			if n > 40 { // 16 each
				t.Errorf("%d flows from %s", n, src)
			}
		}
	}
}

// Behind a tunnel the descriptor goes on to describe the inner packet.
func TestTheDescriptorDescribesTheInnerPacket(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		in := client(host, web, "S").bytes()
		b := w.batch(0, in)
		w.run(b)
		d, grow := b.D[0], tunnelOverhead(c.mode, c.backend)
		if !d.Flags.Has(packet.FlagTunnel) || int(d.L3) != 14+grow || int(d.L4) != 34+grow || int(d.Payload) != 54+grow {
			t.Errorf("%s to %s: %+v", c.mode, c.backend, d)
		}
	}
}

// tshark checks the lengths and checksums of both headers of every tunnel, of packets that came in right.
func TestTsharkFindsNothingWrongInTunnels(t *testing.T) {
	testnet.Program(t, "tshark")
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		var out [][]byte
		for name, in := range inners() {
			if !strings.Contains(name, "wrong") && !strings.Contains(name, "short") && !strings.Contains(name, "without") {
				out = append(out, w.expect(0, in, 1))
			}
		}
		tsharkAgrees(t, out)
	}
}

func TestWithoutHeadroomThePacketIsDropped(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		in := client("198.18.0.9:40000", "198.18.1.1:80", "S").bytes()
		need := tunnelOverhead(c.mode, c.backend)
		for _, room := range []int{0, need - 1, need} {
			b := w.batch(0, in)
			b.D[0].Off = uint32(room)
			copy(w.arena.Mem[room:], in)
			w.run(b)
			want := packet.DropNoFrame
			if room == need {
				want = packet.Forward
			}
			if b.D[0].Verdict != want || room < need && !bytes.Equal(b.Bytes(0), in) {
				t.Errorf("%s to %s with %d bytes: %v", c.mode, c.backend, room, b.D[0].Verdict)
			}
		}
	}
}

// tunnelOverhead returns what a mode pushes in front of a packet, bytes.
func tunnelOverhead(mode, backend string) int {
	n := map[string]int{"l2": 0, "ipip": wire.IPv4Len, "gue": wire.IPv4Len + wire.UDPLen + wire.GUELen}[mode]
	if n > 0 && backend == backend6 {
		n += wire.IPv6Len - wire.IPv4Len
	}
	return n
}
