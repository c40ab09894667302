package gpukern_test

import (
	"encoding/binary"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// frame4 returns Ethernet and an IPv4 header around payload.
func frame4(proto uint8, payload ...byte) []byte {
	return append(append(make([]byte, 12), 8, 0), inner4(proto, payload...)...)
}

// inner4 returns an IPv4 header around payload.
func inner4(proto uint8, payload ...byte) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(h[10:], wire.Fold(wire.SumPlain(h, 0)))
	return append(h, payload...)
}

// inner6 returns an IPv6 header around payload.
func inner6(proto uint8, payload ...byte) []byte {
	h := make([]byte, 40)
	h[0], h[5], h[6], h[23], h[39] = 0x60, byte(len(payload)), proto, 1, 2
	return append(h, payload...)
}

// datagram returns a UDP header without a checksum around payload.
func datagram(to uint16, payload ...byte) []byte {
	return append(wire.AppendUDP(nil, 1000, to, len(payload)), payload...)
}

func cat(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestSingleTunnelsAtTheEdgeOfARule are what the sentences of parse.go say about tunnels, one by one.
func TestSingleTunnelsAtTheEdgeOfARule(t *testing.T) {
	const (
		tunnel = packet.FlagTunnel
		v4     = packet.FlagIPv4
		v6     = packet.FlagIPv6
		ok     = packet.FlagIPChecksumOK
		none   = packet.FlagL4NoChecksum
		bad    = packet.FlagMalformed
		cut    = packet.FlagTruncated
		udp    = wire.ProtoUDP
		gre    = wire.ProtoGRE
	)
	vx := []byte{8, 0, 0, 0, 0, 0, 1, 0}
	in4 := inner4(udp, datagram(7, 1, 2)...) // 30 bytes
	in6 := inner6(udp, datagram(7, 1, 2)...) // 50 bytes
	eth := append(make([]byte, 12), 8, 0)
	g := func(b ...byte) []byte { return b }
	shorter := func(p []byte, at int, by uint16) []byte {
		binary.BigEndian.PutUint16(p[at:], binary.BigEndian.Uint16(p[at:])-by)
		return p
	}
	resum := func(p []byte) []byte { // of the IPv4 header at 14
		p[24], p[25] = 0, 0
		binary.BigEndian.PutUint16(p[24:], wire.Fold(wire.SumPlain(p[14:34], 0)))
		return p
	}
	fragment := frame4(wire.ProtoIPIP, in4...)
	fragment[20] = 0x20
	wrongOuter := frame4(wire.ProtoIPIP, in4...)
	wrongOuter[22]++
	wrongInner := frame4(wire.ProtoIPIP, in4...)
	wrongInner[34+8]++
	outer6 := func(proto uint8, payload ...byte) []byte {
		return cat(make([]byte, 12), g(0x86, 0xdd), inner6(proto, payload...))
	}
	far := make([]byte, 8*22) // destination options: 54 + 176 = 230
	far[0], far[1] = wire.ProtoIPIP, 21
	tooFar := make([]byte, 8*23)
	tooFar[0], tooFar[1] = wire.ProtoIPIP, 22
	kernel := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	for _, tc := range []struct {
		name        string
		p           []byte
		flags       packet.Flags
		l3          uint8
		l4, payload uint16
		proto       uint8
	}{
		{"IPv4 in IPv4", frame4(wire.ProtoIPIP, in4...), tunnel | v4 | ok | none, 34, 54, 62, udp},
		{"IPv6 in IPv4", frame4(wire.ProtoIPv6, in6...), tunnel | v6 | ok, 34, 74, 82, udp},
		{"IPv4 in IPv6", outer6(wire.ProtoIPIP, in4...), tunnel | v4 | ok | none, 54, 74, 82, udp},
		{"IPv6 in IPv6", outer6(wire.ProtoIPv6, in6...), tunnel | v6, 54, 94, 102, udp},
		{"outer checksum wrong", wrongOuter, tunnel | v4 | none, 34, 54, 62, udp},
		{"inner checksum wrong", wrongInner, tunnel | v4 | none, 34, 54, 62, udp},
		{"fragment", resum(fragment), v4 | ok | packet.FlagFragment, 14, 34, 0, wire.ProtoIPIP},
		{"nothing inside", frame4(wire.ProtoIPIP), tunnel | bad | ok, 34, 0, 0, 0},
		{"19 bytes inside", frame4(wire.ProtoIPIP, in4[:19]...), tunnel | bad | ok, 34, 0, 0, 0},
		{"inner longer than outer", frame4(wire.ProtoIPIP, in4[:29]...), tunnel | bad | ok, 34, 0, 0, 0},
		{"inner IPv6 longer than outer", frame4(wire.ProtoIPv6, in6[:49]...), tunnel | bad | ok, 34, 0, 0, 0},
		{"inner of another version", frame4(wire.ProtoIPv6, in4...), tunnel | bad | ok, 34, 0, 0, 0},
		{"inner header not captured", frame4(wire.ProtoIPIP, in4...)[:53], tunnel | cut | ok, 34, 0, 0, 0},
		{"no inner byte captured", frame4(wire.ProtoIPIP, in4...)[:34], tunnel | cut | ok, 34, 0, 0, 0},
		{"inner payload not captured", frame4(wire.ProtoIPIP, in4...)[:63], tunnel | cut | v4 | ok, 34, 54, 62, udp},
		{"outer padding not captured", resum(shorter(frame4(wire.ProtoIPIP, in4...), 16, 0xffff)), tunnel | cut | v4 | ok | none, 34, 54, 62, udp},
		{"one level only", frame4(wire.ProtoIPIP, inner4(wire.ProtoIPIP, in4...)...), tunnel | v4 | ok, 34, 54, 0, wire.ProtoIPIP},
		{"inner at 230", outer6(wire.ProtoDestOpts, cat(far, in4)...), tunnel | v4 | ok | none, 230, 250, 258, udp},
		{"inner at 238", outer6(wire.ProtoDestOpts, cat(tooFar, in4)...), v6 | packet.FlagOptions, 14, 238, 0, wire.ProtoIPIP},

		{"VXLAN", frame4(udp, datagram(4789, cat(vx, eth, in4)...)...), tunnel | v4 | ok | none, 64, 84, 92, udp},
		{"VXLAN, another port", frame4(udp, datagram(4788, cat(vx, eth, in4)...)...), v4 | ok | none, 14, 34, 42, udp},
		{"VXLAN without I", frame4(udp, datagram(4789, cat(g(0xf7, 0, 0, 0, 0, 0, 1, 0), eth, in4)...)...), v4 | ok | none, 14, 34, 42, udp},
		{"VXLAN of 7 bytes", frame4(udp, datagram(4789, vx[:7]...)...), v4 | ok | bad, 14, 0, 0, udp},
		{"VXLAN of 8 bytes", frame4(udp, datagram(4789, vx...)...), tunnel | bad | ok, 0, 0, 0, 0},
		{"VXLAN, 7 captured", frame4(udp, datagram(4789, cat(vx, eth, in4)...)...)[:49], v4 | ok | cut, 14, 34, 42, udp},
		{"VXLAN, Ethernet not captured", frame4(udp, datagram(4789, cat(vx, eth, in4)...)...)[:63], tunnel | cut | ok, 0, 0, 0, 0},
		{"VXLAN, 13 bytes of Ethernet", frame4(udp, datagram(4789, cat(vx, eth[:13])...)...), tunnel | bad | ok, 0, 0, 0, 0},
		{"VXLAN with ARP", frame4(udp, datagram(4789, cat(vx, eth[:12], g(8, 6), in4)...)...), tunnel | ok, 64, 0, 0, 0},
		{"VXLAN, tagged", frame4(udp, datagram(4789, cat(vx, eth[:12], g(0x81, 0, 0, 1, 8, 0), in4)...)...), tunnel | packet.FlagVLAN | v4 | ok | none, 68, 88, 96, udp},
		{"VXLAN, 3 bytes of a tag", frame4(udp, datagram(4789, cat(vx, eth[:12], g(0x81, 0, 0, 1, 8))...)...), tunnel | packet.FlagVLAN | bad | ok, 0, 0, 0, 0},
		{"VXLAN, UDP shorter than IP", shorter(frame4(udp, datagram(4789, cat(vx, eth, in4)...)...), 38, 1), tunnel | bad | ok, 64, 0, 0, 0},

		{"GRE", frame4(gre, cat(g(0, 0, 8, 0), in4)...), tunnel | v4 | ok | none, 38, 58, 66, udp},
		{"GRE with IPv6", frame4(gre, cat(g(0, 0, 0x86, 0xdd), in6)...), tunnel | v6 | ok, 38, 78, 86, udp},
		{"GRE with Ethernet", frame4(gre, cat(g(0, 0, 0x65, 0x58), eth, in4)...), tunnel | v4 | ok | none, 52, 72, 80, udp},
		{"GRE with a checksum", frame4(gre, cat(g(0x80, 0, 8, 0, 1, 2, 3, 4), in4)...), tunnel | v4 | ok | none, 42, 62, 70, udp},
		{"GRE with all fields", frame4(gre, cat(g(0xb0, 0, 8, 0), make([]byte, 12), in4)...), tunnel | v4 | ok | none, 50, 70, 78, udp},
		{"GRE with routing", frame4(gre, cat(g(0x40, 0, 8, 0), in4)...), v4 | ok, 14, 34, 0, gre},
		{"GRE with strict source route", frame4(gre, cat(g(0x08, 0, 8, 0), in4)...), v4 | ok, 14, 34, 0, gre},
		{"GRE, a bit to ignore", frame4(gre, cat(g(0x03, 0xf8, 8, 0), in4)...), tunnel | v4 | ok | none, 38, 58, 66, udp},
		{"GRE of version 1", frame4(gre, cat(g(0x20, 1, 0x88, 0x0b), in4)...), v4 | ok, 14, 34, 0, gre},
		{"GRE of version 4", frame4(gre, cat(g(0, 4, 8, 0), in4)...), v4 | ok, 14, 34, 0, gre},
		{"GRE with ARP", frame4(gre, cat(g(0, 0, 8, 6), in4)...), v4 | ok, 14, 34, 0, gre},
		{"GRE of 3 bytes", frame4(gre, 0, 0, 8), v4 | ok | bad, 14, 0, 0, gre},
		{"GRE without its key", frame4(gre, 0x20, 0, 8, 0, 1, 2, 3), v4 | ok | bad, 14, 0, 0, gre},
		{"GRE, 3 bytes captured", frame4(gre, cat(g(0, 0, 8, 0), in4)...)[:37], v4 | ok | cut, 14, 34, 0, gre},
		{"GRE, key not captured", frame4(gre, cat(g(0x20, 0, 8, 0, 1, 2, 3, 4), in4)...)[:40], tunnel | cut | ok, 42, 0, 0, 0},
		{"GRE with nothing", frame4(gre, 0, 0, 8, 0), tunnel | bad | ok, 38, 0, 0, 0},
	} {
		b := kernref.BatchOf(kernref.One(tc.p))
		kernel.same(t, b, tunnelOps, kernref.Lists{})
		agree(t, b, NewCPU(Config{Ops: tunnelOps}), kernref.Lists{})
		want := packet.Desc{Len: uint16(len(tc.p)), L3: tc.l3, L4: tc.l4, Payload: tc.payload, Proto: tc.proto, Flags: tc.flags}
		got := b.D[0]
		got.Hash = 0
		if got != want {
			t.Errorf("%s:\n%+v, want\n%+v", tc.name, got, want)
		}
	}
}

// TestChecksumsThatAreFilled are those that chance makes too seldom.
func TestChecksumsThatAreFilled(t *testing.T) {
	zero := frame4(wire.ProtoUDP, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0)
	pseudo := wire.PseudoHeader4([4]byte{192, 0, 2, 1}, [4]byte{192, 0, 2, 2}, wire.ProtoUDP, 10)
	binary.BigEndian.PutUint16(zero[42:], wire.Fold(wire.SumPlain(zero[34:], pseudo))) // now the sum is 0xffff
	for _, tc := range []struct {
		name  string
		p     []byte
		at    int
		bytes [2]byte
	}{
		{"UDP that sums up to 0", zero, 40, [2]byte{0xff, 0xff}},
		{"ICMP of zeros", frame4(wire.ProtoICMP, make([]byte, 9)...), 36, [2]byte{0xff, 0xff}},
		{"ICMP that sums up to 0", frame4(wire.ProtoICMP, 0, 0, 7, 7, 0xff, 0xff, 0, 0), 36, [2]byte{0, 0}},
		{"ICMP with a wrong one", frame4(wire.ProtoICMP, 8, 0, 9, 9, 0, 1, 0, 1), 36, [2]byte{0xf7, 0xfd}},
		{"far ICMP of zeros", cat(make([]byte, 12), []byte{0x86, 0xdd}, inner6(wire.ProtoDestOpts, cat([]byte{wire.ProtoIPIP, 21}, make([]byte, 8*22-2), inner4(wire.ProtoICMP, make([]byte, 9)...))...)), 252, [2]byte{0xff, 0xff}},
	} {
		for by := range uint32(2) {
			for _, run := range []func(*packet.Batch){
				func(b *packet.Batch) { agree(t, b, NewCPU(Config{Ops: OpFill | OpTunnel}), kernref.Lists{}) },
				func(b *packet.Batch) {
					newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte)).same(t, b, OpFill|OpTunnel, kernref.Lists{})
				},
			} {
				b := kernref.BatchOf(kernref.One(append(make([]byte, by), tc.p...)))
				b.D[0].Off, b.D[0].Len = by, uint16(len(tc.p))
				run(b)
				if got := [2]byte(b.Bytes(0)[tc.at:]); got != tc.bytes {
					t.Errorf("%s: % x, want % x", tc.name, got, tc.bytes)
				}
				if b.D[0].Flags&packet.FlagL4ChecksumOK == 0 {
					t.Errorf("%s: flags %#x", tc.name, b.D[0].Flags)
				}
			}
		}
	}
}
