package control

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const tunnelPorts = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - {name: vxlan, protocol: udp, address: [198.18.1.1:4789, "[2001:db8:1::1]:4789"],
     backends: [{address: [198.18.2.11:4789, "[2001:db8:2::11]:4789"]}]}
`

// lookInside does what an engine does that looks into tunnels: the inner packet begins at offset at.
func lookInside(b *packet.Batch, at int) {
	d := &b.D[0]
	d.Flags = packet.FlagIPv4 | packet.FlagIPChecksumOK | packet.FlagL4ChecksumOK | packet.FlagTunnel | d.Flags&packet.FlagMore
	d.L3, d.L4, d.Payload, d.Proto = uint8(at), uint16(at+20), uint16(at+40), wire.ProtoTCP
}

func TestAServiceMayHaveThePortOfATunnel(t *testing.T) {
	inner := client(host, "198.18.2.11:22", "S").bytes() // who would get in if the inside counted
	for _, c := range []struct{ src, dst string }{
		{"198.18.0.9:4000", "198.18.1.1:4789"}, {"[2001:db8::9]:4000", "[2001:db8:1::1]:4789"},
	} {
		s := client(c.src, c.dst, "")
		s.payload = "\x08\x00\x00\x00\x00\x00\x07\x00" + string(inner)
		p := s.bytes()
		for _, more := range []int{0, 40} { // in one descriptor, and in two
			w := newWorld(t, tunnelPorts)
			b := w.batch(0, p[:len(p)-more], p[len(p)-more:])
			b.D[0].Flags = map[bool]packet.Flags{true: packet.FlagMore}[more != 0]
			if more == 0 {
				b.D = b.D[:1]
			}
			w.engine.Submit(b)
			w.engine.Poll(make([]*packet.Batch, 1))
			lookInside(b, bytes.Index(p, inner[:14])+14)
			w.h.Handle(w.now, b)
			if v := b.D[0].Verdict; v != packet.Forward || b.D[0].Port != 1 {
				t.Fatalf("%s: %v", c.dst, v)
			}
			out := bytes.Clone(b.Bytes(0))
			if more != 0 {
				out = append(out, b.Bytes(1)...)
			}
			w.checksumsRight(out)
			if got := flowOf(out); got.dst.Port() != 4789 || got.payload != s.payload {
				t.Errorf("%v", got.dst)
			}
		}
	}
}

func TestTunnelsToAServiceAddressAreRefused(t *testing.T) {
	w := newWorld(t, tunnelPorts)
	inner := client(host, "198.18.2.11:22", "S").bytes()[14:]
	out := client(host, "198.18.1.1:4789", "").bytes()[:34]
	wire.IPv4(out[14:]).SetProto(wire.ProtoIPIP)
	wire.IPv4(out[14:]).SetTotalLen(uint16(20 + len(inner)))
	wire.IPv4(out[14:]).FillChecksum()
	b := w.batch(0, append(out, inner...))
	w.engine.Submit(b)
	w.engine.Poll(make([]*packet.Batch, 1))
	lookInside(b, 34)
	w.h.Handle(w.now, b)
	if v := b.D[0].Verdict; v != packet.DropUnsupported {
		t.Errorf("IPIP: %v", v)
	}
	gre := bytes.Clone(b.Bytes(0))
	wire.IPv4(gre[14:]).SetProto(uint8(layers.IPProtocolGRE))
	wire.IPv4(gre[14:]).FillChecksum()
	w.refused(0, gre, packet.DropUnsupported)
}
