package gpukern_test

import (
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inner returns the layers of the packet inside of pk, where gopacket finds one, and their offset.
func inner(pk gopacket.Packet) (all []gopacket.Layer, at int) {
	ip := false
	for i, l := range pk.Layers() {
		switch l.(type) {
		case *layers.IPv4, *layers.IPv6:
			if ip {
				return pk.Layers()[i:], at
			}
			ip = true
		case *layers.VXLAN, *layers.GRE:
			return pk.Layers()[i+1:], at + len(l.LayerContents())
		}
		at += len(l.LayerContents())
	}
	return nil, 0
}

// oracleInside compares what the engine found in a tunnel with what gopacket says, and reports whether it
// said anything.
func oracleInside(t *testing.T, name string, p []byte, d packet.Desc) bool {
	t.Helper()
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.NoCopy)
	all, at := inner(pk)
	if d.Flags&(packet.FlagMalformed|packet.FlagTruncated) != 0 || pk.ErrorLayer() != nil {
		return false
	}
	if (all != nil) != d.Flags.Has(packet.FlagTunnel) {
		t.Errorf("%s: flags %#x, and gopacket finds %d layers inside\n%v", name, d.Flags, len(all), pk)
		return false
	}
	w, _, ok := describe(all, at)
	if !ok {
		return false
	}
	got := want{l3: int(d.L3), l4: int(d.L4), payload: int(d.Payload), proto: d.Proto, ports: w.ports}
	if w.ports {
		got.sport, got.dport = wire.UDP(p[d.L4:]).SrcPort(), wire.UDP(p[d.L4:]).DstPort()
	}
	if w.l4 == 0 {
		got.l4, got.payload = 0, 0
	}
	if got != w {
		t.Errorf("%s: engine %+v, gopacket %+v\n% x", name, got, w, p)
	}
	return true
}

func TestTunnelsInCapturesAgreeWithTheReferenceAndGopacket(t *testing.T) {
	c := NewCPU(Config{Ops: tunnelOps})
	seen, judged, right := 0, 0, 0
	for _, path := range testpcaps.Files(t) {
		for all := frames(t, path); len(all) > 0; {
			n := min(len(all), 64)
			b := largeBatch(all[:n])
			agree(t, b, c, kernref.Lists{})
			for i := range b.D {
				if !b.D[i].Flags.Has(packet.FlagTunnel) {
					continue
				}
				seen++
				if oracleInside(t, path, b.Bytes(i), b.D[i]) {
					judged++
				}
				if b.D[i].Flags.Has(packet.FlagL4ChecksumOK) {
					right++
				}
			}
			all = all[n:]
		}
	}
	t.Logf("%d tunnels, %d with fields judged by gopacket, %d with right transport checksums", seen, judged, right)
	if seen < 5 || judged < seen/2 {
		t.Errorf("only %d of %d tunnels were judged", judged, seen)
	}
}

// TestTunnelsThatGopacketMakesAreReadAndVerified serializes tunnels with gopacket's own checksums.
func TestTunnelsThatGopacketMakesAreReadAndVerified(t *testing.T) {
	c := NewCPU(Config{Ops: tunnelOps})
	for name, p := range gopacketTunnels(t) {
		b := kernref.BatchOf(kernref.One(p))
		agree(t, b, c, kernref.Lists{})
		if !oracleInside(t, name, p, b.D[0]) {
			t.Errorf("%s: not judged: %+v", name, b.D[0])
		}
		if !b.D[0].Flags.Has(packet.FlagTunnel | packet.FlagL4ChecksumOK) {
			t.Errorf("%s: flags %#x", name, b.D[0].Flags)
		}
		for i := range b.D[0].Len { // as the sender would leave it: filled, it is again what gopacket made
			if at := uint16(b.D[0].L4 + 16); b.D[0].Proto == wire.ProtoTCP && (i == at || i == at+1) {
				b.Bytes(0)[i] ^= 0x55
			}
		}
		agree(t, b, NewCPU(Config{Ops: OpFill | OpTunnel}), kernref.Lists{})
		if string(b.Bytes(0)) != string(p) {
			t.Errorf("%s: filled\n% x, made\n% x", name, b.Bytes(0), p)
		}
	}
}

// gopacketTunnels makes tunnels of every kind around TCP over both versions.
func gopacketTunnels(t *testing.T) map[string][]byte {
	t.Helper()
	eth := func(e layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: e}
	}
	ip := func(v4 bool, p layers.IPProtocol) gopacket.SerializableLayer {
		if v4 {
			return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{198, 18, 0, 1}}
		}
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
	}
	ether := map[bool]layers.EthernetType{true: layers.EthernetTypeIPv4, false: layers.EthernetTypeIPv6}
	version := map[bool]layers.IPProtocol{true: layers.IPProtocolIPv4, false: layers.IPProtocolIPv6}
	names := map[bool]string{true: "IPv4", false: "IPv6"}
	all := map[string][]byte{}
	for _, out := range []bool{true, false} {
		for _, in := range []bool{true, false} {
			udp, vxlan := &layers.UDP{SrcPort: 1000, DstPort: 4789}, &layers.VXLAN{ValidIDFlag: true, VNI: 7}
			gre := &layers.GRE{Protocol: ether[in], KeyPresent: true, Key: 9, SeqPresent: true, ChecksumPresent: true}
			bridge := &layers.GRE{Protocol: layers.EthernetTypeTransparentEthernetBridging}
			for name, around := range map[string][]gopacket.SerializableLayer{
				"VXLAN":        {ip(out, layers.IPProtocolUDP), udp, vxlan, eth(ether[in])},
				"GRE":          {ip(out, layers.IPProtocolGRE), gre},
				"GRE, bridged": {ip(out, layers.IPProtocolGRE), bridge, eth(ether[in])},
				"IP":           {ip(out, version[in])},
			} {
				inside := ip(in, layers.IPProtocolTCP)
				tcp := &layers.TCP{SrcPort: 1025, DstPort: 80, SYN: true}
				for l, n := range map[interface {
					SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
				}]gopacket.SerializableLayer{tcp: inside, udp: around[0]} {
					if err := l.SetNetworkLayerForChecksum(n.(gopacket.NetworkLayer)); err != nil {
						t.Fatal(err)
					}
				}
				ls := append([]gopacket.SerializableLayer{eth(ether[out])}, around...)
				ls = append(ls, inside, tcp, gopacket.Payload("an odd payload!"))
				buf := gopacket.NewSerializeBuffer()
				if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...); err != nil {
					t.Fatal(name, err)
				}
				all[name+": "+names[in]+" in "+names[out]] = buf.Bytes()
			}
		}
	}
	return all
}
