package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// message is an ICMP error about the network-layer packet quoted, cut to at most quote bytes.
type message struct {
	src, dst   string
	kind, code uint8
	rest       uint32
	about      []byte // a frame
	quote      int    // 0 is all
	from, to   [6]byte
	ttl        uint8
}

func (m message) bytes() []byte {
	quoted := bytes.Clone(m.about[14:])
	if m.quote != 0 {
		quoted = quoted[:min(m.quote, len(quoted))]
	}
	src, dst := netip.MustParseAddr(m.src), netip.MustParseAddr(m.dst)
	if m.ttl == 0 {
		m.ttl = 63
	}
	eth := &layers.Ethernet{SrcMAC: m.from[:], DstMAC: m.to[:], EthernetType: layers.EthernetTypeIPv4}
	rest := make([]byte, 4)
	binary.BigEndian.PutUint32(rest, m.rest)
	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: m.ttl, Protocol: layers.IPProtocolICMPv4, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		body := append([]byte{m.kind, m.code, 0, 0}, append(rest, quoted...)...)
		wire.ICMP(body).FillChecksum()
		return serialize(eth, ip, gopacket.Payload(body))
	}
	eth.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: m.ttl, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(m.kind, m.code)}
	icmp.SetNetworkLayerForChecksum(ip)
	return serialize(eth, ip, icmp, gopacket.Payload(append(rest, quoted...)))
}

// seen is what gopacket and plain sums find in an ICMP error.
type seen struct {
	src, dst   string
	kind, code uint8
	rest       uint32
	quoted     []byte // the quoted packet behind an Ethernet header
}

// readError checks every checksum of an ICMP error: its own, and those of the quoted packet as far as
// it is quoted.
func readError(t testing.TB, p []byte) seen {
	t.Helper()
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
	eth := bytes.Clone(p[:14])
	var s seen
	var m []byte
	sum := uint32(0)
	switch ip := pk.NetworkLayer().(type) {
	case *layers.IPv4:
		s.src, s.dst, m = ip.SrcIP.String(), ip.DstIP.String(), ip.Payload
		if wire.SumPlain(p[14:34], 0) != 0xffff {
			t.Errorf("wrong header checksum: %x", p)
		}
	case *layers.IPv6:
		s.src, s.dst, m = ip.SrcIP.String(), ip.DstIP.String(), ip.Payload
		sum = wire.PseudoHeader6([16]byte(ip.SrcIP), [16]byte(ip.DstIP), wire.ProtoICMPv6, uint32(len(m)))
	default:
		t.Fatalf("no IP: %x", p)
	}
	if wire.SumPlain(m, sum) != 0xffff {
		t.Errorf("wrong ICMP checksum: %x", p)
	}
	s.kind, s.code, s.rest = m[0], m[1], binary.BigEndian.Uint32(m[4:])
	s.quoted = append(eth, m[8:]...)
	binary.BigEndian.PutUint16(s.quoted[12:], wire.EtherTypeIPv6)
	if m[8]>>4 == 4 {
		binary.BigEndian.PutUint16(s.quoted[12:], wire.EtherTypeIPv4)
		if wire.SumPlain(m[8:28], 0) != 0xffff {
			t.Errorf("wrong header checksum of the quoted packet: %x", p)
		}
	}
	return s
}

// A connection of a world: what its client sent and got, and what its backend got and sent.
type exchange struct{ fromClient, toBackend, fromBackend, toClient []byte }

func (w *world) exchange(src, dst, flags, reply string) exchange {
	w.t.Helper()
	var x exchange
	x.fromClient = client(src, dst, flags).bytes()
	x.toBackend = w.expect(0, x.fromClient, 1)
	x.fromBackend = answer(x.toBackend, reply).bytes()
	x.toClient = w.expect(1, x.fromBackend, 0)
	return x
}

var flows = []struct {
	name, src, dst, flags, reply, router, snat string
	unreachable                                uint8
}{
	{"tcp4", host, web, "S", "SA", "198.18.7.7", "198.18.2.1", wire.ICMPUnreachable},
	{"udp4", host, dns, "", "", "198.18.7.7", "198.18.2.1", wire.ICMPUnreachable},
	{"tcp6", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", "SA", "2001:db8:7::7", "2001:db8:2::1", wire.ICMPv6Unreachable},
	{"udp6", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", "", "2001:db8:7::7", "2001:db8:2::1", wire.ICMPv6Unreachable},
}

// addrPorts returns source and destination of the packet behind an Ethernet header, also of one that is cut
// off behind its ports.
func addrPorts(p []byte) string {
	ip := p[14:]
	at, size, end := 8, 16, 40
	if ip[0]>>4 == 4 {
		at, size, end = 12, 4, 20
	}
	src, dst, l4 := ip[at:at+size], ip[at+size:at+2*size], ip[end:]
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	return fmt.Sprint(netip.AddrPortFrom(from, binary.BigEndian.Uint16(l4)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(l4[2:])))
}

func TestErrorsAboutRepliesGoToTheBackend(t *testing.T) {
	for _, f := range flows {
		for _, source := range []string{"", "source: client"} {
			for _, quote := range []int{0, 28, 29, 37, 38, 39, 48, 49, 58, 60} {
				w := newWorld(t, fill(source))
				x := w.exchange(f.src, f.dst, f.flags, f.reply)
				vip := netip.MustParseAddrPort(f.dst).Addr()
				if vip.Is6() && quote != 0 && quote < 48 {
					continue
				}
				m := message{
					src: f.router, dst: vip.String(), kind: f.unreachable, code: 1, rest: 0, about: x.toClient, quote: quote,
					from: macClient, to: macGw0,
				}
				out := w.expect(0, m.bytes(), 1)
				got := readError(t, out)
				from := f.router
				if source == "" {
					from = f.snat
				}
				if want := flowOf(x.fromBackend); got.src != from || got.dst != want.src.Addr().String() ||
					addrPorts(got.quoted) != fmt.Sprint(want.src, want.dst) {
					t.Errorf("%s %s: from %s to %s about %s, want about %v %v", f.name, source, got.src, got.dst, addrPorts(got.quoted), want.src, want.dst)
				}
				sameTransport(t, got.quoted, x.fromBackend)
				if !bytes.Equal(out[:6], macBackend[:]) || !bytes.Equal(out[6:12], macGw1[:]) {
					t.Errorf("link addresses %x", out[:12])
				}
			}
		}
	}
}

func TestErrorsAboutRequestsGoToTheClient(t *testing.T) {
	for _, f := range flows {
		for _, source := range []string{"", "source: client"} {
			for _, quote := range []int{0, 48, 49} {
				w := newWorld(t, fill(source))
				x := w.exchange(f.src, f.dst, f.flags, f.reply)
				before := w.connOf(f.src)
				at := flowOf(x.toBackend)
				m := message{
					src: at.dst.Addr().String(), dst: at.src.Addr().String(), kind: f.unreachable, code: 1, about: x.toBackend,
					quote: quote, from: macBackend, to: macGw1,
				}
				w.now = w.now.Add(time.Second)
				out := w.expect(1, m.bytes(), 0)
				got, want := readError(t, out), flowOf(x.fromClient)
				if got.src != want.dst.Addr().String() || got.dst != want.src.Addr().String() ||
					addrPorts(got.quoted) != fmt.Sprint(want.src, want.dst) || !bytes.Equal(out[:6], macClient[:]) {
					t.Errorf("%s %s: from %s to %s about %s", f.name, source, got.src, got.dst, addrPorts(got.quoted))
				}
				sameTransport(t, got.quoted, x.fromClient)
				if w.connOf(f.src) != before {
					t.Error("an error changed the connection")
				}
				if n := w.g.snap.Load().Backends[w.conns()[netip.MustParseAddrPort(f.src)].Backend].Count(datapath.Unreachable); n != 1 {
					t.Errorf("counted %d times as unreachable", n)
				}
			}
		}
	}
}

// sameTransport compares what is quoted of a transport header and its data, the checksum too, with the
// packet as its sender knows it.
func sameTransport(t *testing.T, quoted, sent []byte) {
	t.Helper()
	l4 := 14 + 40
	if sent[14]>>4 == 4 {
		l4 = 14 + 20
	}
	n := min(len(quoted), len(sent))
	if n == l4+17 { // half of TCP's checksum is nothing that can be updated
		n--
	}
	if n < l4+8 || !bytes.Equal(quoted[l4:n], sent[l4:n]) {
		t.Errorf("quoted\n%x, sent\n%x", quoted[l4:], sent[l4:])
	}
}

// connOf returns the connection of a client, which has one.
func (w *world) connOf(src string) datapath.ConnCopy {
	w.t.Helper()
	for at, more := 0, true; more; {
		var list []datapath.ConnCopy
		list, at, more = w.h.Conns(nil, at)
		for i := range list {
			if info, _ := w.g.snap.Load().Describe(&list[i], w.now); info.Client.String() == src {
				return list[i]
			}
		}
	}
	w.t.Fatalf("%s has no connection", src)
	return datapath.ConnCopy{}
}

func TestTooBigIsNoUnreachableBackend(t *testing.T) {
	w := newWorld(t, fill(""))
	x := w.exchange(host, dns, "", "")
	at := flowOf(x.toBackend)
	m := message{
		src: "198.18.2.254", dst: at.src.Addr().String(), kind: wire.ICMPUnreachable, code: wire.ICMPFragmentationNeeded, rest: 1400,
		about: x.toBackend, from: macBackend, to: macGw1,
	}
	got := readError(t, w.expect(1, m.bytes(), 0))
	if got.src != "198.18.1.1" || got.rest != 1400 || got.code != wire.ICMPFragmentationNeeded {
		t.Errorf("%+v", got)
	}
	for _, b := range w.g.snap.Load().Backends {
		if b.Count(datapath.Unreachable) != 0 {
			t.Error("counted as unreachable")
		}
	}
}

func TestForgedErrorsAreDroppedAndChangeNothing(t *testing.T) {
	for _, f := range flows {
		six := f.router[0] == '2'
		kind := f.unreachable
		w := newWorld(t, fill(""))
		x := w.exchange(f.src, f.dst, f.flags, f.reply)
		vip := netip.MustParseAddrPort(f.dst).Addr().String()
		l4, protoAt := 14+20, 14+9
		if six {
			l4, protoAt = 14+40, 14+6
		}
		edit := func(p []byte, f func(p []byte)) []byte {
			p = bytes.Clone(p)
			f(p)
			return p
		}
		echo := wire.ProtoICMP
		errorIn := message{src: vip, dst: f.router, kind: kind, about: x.fromClient}.bytes()
		if six {
			echo = wire.ProtoICMPv6
		}
		fragments := split(x.toClient, 8, 9)
		for _, c := range []struct {
			name string
			m    message
			want packet.Verdict
		}{
			{"a connection that is none", message{dst: vip, about: edit(x.toClient, func(p []byte) { p[l4+3]++ })}, packet.DropNoFlow},
			{"a port that is no service", message{dst: vip, about: edit(x.toClient, func(p []byte) { p[l4+1]++ })}, packet.DropNoService},
			{"the wrong way round", message{dst: vip, about: x.fromClient}, packet.DropNoFlow},
			{"another address than the receiver's", message{dst: f.snat, about: x.toClient}, packet.DropNoFlow},
			{"an SNAT port that is none", message{dst: f.snat, about: edit(x.toBackend, func(p []byte) { p[l4+1]++ })}, packet.DropNoFlow},
			{"a backend that is none", message{dst: f.snat, about: edit(x.toBackend, func(p []byte) { p[l4-1]++ })}, packet.DropNoFlow},
			{"less than the ports", message{dst: vip, about: x.toClient, quote: l4 - 14 + 7}, packet.DropTruncated},
			{"less than a header", message{dst: vip, about: x.toClient, quote: l4 - 14 - 1}, packet.DropTruncated},
			{"another version", message{dst: vip, about: edit(x.toClient, func(p []byte) { p[14] ^= 0x20 })}, packet.DropMalformed},
			{"a later fragment", message{dst: vip, about: fragments[1]}, packet.DropFragment},
			{"an error", message{dst: vip, about: errorIn}, packet.DropUnsupported},
			{"an echo", message{dst: vip, about: edit(x.toClient, func(p []byte) { p[protoAt] = echo })}, packet.DropUnsupported},
			{"a packet of which the hops ran out here", message{dst: vip, about: x.toClient, ttl: 1}, packet.DropTTL},
		} {
			before := w.connOf(f.src)
			c.m.src, c.m.kind, c.m.from, c.m.to = f.router, kind, macClient, macGw0
			if s := w.send(0, c.m.bytes()); s.verdict != c.want {
				t.Errorf("%s: about %s: %v, want %v", f.name, c.name, s.verdict, c.want)
			}
			if w.connOf(f.src) != before || w.g.Status().Connections != 1 {
				t.Errorf("%s: about %s: the connection changed", f.name, c.name)
			}
		}
		good := message{src: f.router, dst: vip, kind: kind, about: x.toClient, from: macClient, to: macGw0}.bytes()
		bad := bytes.Clone(good)
		bad[len(bad)-1] ^= 1
		w.refused(0, bad, packet.DropL4Checksum)
		w.refused(0, edit(good, func(p []byte) { p[5] ^= 1 }), packet.DropUnsupported)
		w.now = w.now.Add(24 * time.Hour)
		w.refused(0, good, packet.DropNoFlow)
	}
}

func TestLyingLengthsOfAQuotedPacketAreMalformed(t *testing.T) {
	w := newWorld(t, fill(""))
	x := w.exchange(host, dns, "", "")
	for _, f := range []func(ip wire.IPv4){
		func(ip wire.IPv4) { ip.SetTotalLen(27) },
		func(ip wire.IPv4) { ip[0] = 0x44 },
	} {
		about := bytes.Clone(x.toClient)
		f(wire.IPv4(about[14:]))
		w.refused(0, message{src: "198.18.7.7", dst: "198.18.1.1", kind: 3, about: about, from: macClient, to: macGw0}.bytes(), packet.DropMalformed)
	}
	six := w.exchange("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", "")
	about := bytes.Clone(six.toClient)
	wire.IPv6(about[14:]).SetPayloadLen(7)
	w.refused(0, message{src: "2001:db8:7::7", dst: "2001:db8:1::1", kind: 1, about: about, from: macClient, to: macGw0}.bytes(), packet.DropMalformed)
}

func echoRequest(src, dst string, vlan uint16) []byte {
	from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	eth := &layers.Ethernet{SrcMAC: macClient[:], DstMAC: macGw0[:], EthernetType: layers.EthernetTypeIPv4}
	all := []gopacket.SerializableLayer{eth}
	kind := layers.EthernetTypeIPv4
	if from.Is6() {
		kind = layers.EthernetTypeIPv6
	}
	eth.EthernetType = kind
	if vlan != 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		all = append(all, &layers.Dot1Q{VLANIdentifier: vlan, Priority: 3, Type: kind})
	}
	if from.Is4() {
		all = append(all, &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolICMPv4, SrcIP: from.AsSlice(), DstIP: to.AsSlice()},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 77, Seq: 3})
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
		icmp.SetNetworkLayerForChecksum(ip)
		all = append(all, ip, icmp, &layers.ICMPv6Echo{Identifier: 77, SeqNumber: 3})
	}
	return serialize(append(all, gopacket.Payload("are you there"))...)
}

func TestEchoRequestsAreAnswered(t *testing.T) {
	for _, c := range []struct{ src, dst string }{
		{"198.18.0.9", "198.18.1.1"},
		{"198.18.0.9", "198.18.2.1"},
		{"2001:db8::9", "2001:db8:1::1"},
		{"2001:db8::9", "2001:db8:2::1"},
	} {
		for _, vlan := range []uint16{0, 100} {
			w := newWorld(t, fill(""))
			out := w.expect(0, echoRequest(c.src, c.dst, vlan), 0)
			pk := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
			eth := pk.LinkLayer().(*layers.Ethernet)
			if !bytes.Equal(eth.DstMAC, macClient[:]) || !bytes.Equal(eth.SrcMAC, macGw0[:]) {
				t.Errorf("link addresses %v %v", eth.SrcMAC, eth.DstMAC)
			}
			if tag, ok := pk.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok != (vlan != 0) || ok && tag.VLANIdentifier != vlan {
				t.Errorf("tag %+v", tag)
			}
			var want []byte
			switch ip := pk.NetworkLayer().(type) {
			case *layers.IPv4:
				icmp := pk.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
				if ip.SrcIP.String() != c.dst || ip.DstIP.String() != c.src || ip.TTL != 64 || icmp.TypeCode.Type() != 0 || icmp.Id != 77 || icmp.Seq != 3 {
					t.Errorf("%+v %+v", ip, icmp)
				}
				want = serialize(ip, icmp, gopacket.Payload(icmp.Payload))
			case *layers.IPv6:
				icmp := pk.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
				icmp.SetNetworkLayerForChecksum(ip)
				if ip.SrcIP.String() != c.dst || ip.DstIP.String() != c.src || ip.HopLimit != 64 || icmp.TypeCode.Type() != 129 {
					t.Errorf("%+v %+v", ip, icmp)
				}
				want = serialize(ip, icmp, gopacket.Payload(icmp.Payload))
			}
			if !bytes.Contains(out, want) { // in front is the link header, behind may be padding
				t.Errorf("got\n%x\nwant\n%x", out, want)
			}
			w.refused(0, echoRequest(c.src, map[bool]string{true: "198.18.1.9", false: "2001:db8:1::9"}[c.src[0] == '1'], vlan), packet.DropNoService)
		}
	}
	w := newWorld(t, fill(""))
	w.refused(0, echoRequest("127.0.0.1", "198.18.1.1", 0), packet.DropMartian)
	w.refused(0, echoRequest("224.0.0.1", "198.18.1.1", 0), packet.DropMartian)
}

// withExtensions puts extension headers between the IPv6 header of a packet and what follows.
func withExtensions(p []byte, kinds ...uint8) []byte {
	ip := wire.IPv6(p[14:])
	next := ip[6]
	var all []byte
	for i, kind := range kinds {
		h := []byte{next, 0, 1, 4, 0, 0, 0, 0} // PadN
		if i+1 < len(kinds) {
			h[0] = kinds[i+1]
		}
		if kind == wire.ProtoFragment {
			h = []byte{h[0], 0, 0, 0, 1, 2, 3, 4} // atomic
		}
		all = append(all, h...)
	}
	out := append(append(bytes.Clone(p[:54]), all...), p[54:]...)
	ip = wire.IPv6(out[14:])
	ip[6] = kinds[0]
	ip.SetPayloadLen(ip.PayloadLen() + uint16(len(all)))
	return out
}

// An echo request behind extension headers, or in an atomic fragment, has the answer of the plain one (RFC 6946 4).
func TestEchoRequestsBehindExtensionHeadersAreAnswered(t *testing.T) {
	const hopByHop, fragment = 0, wire.ProtoFragment
	for _, kinds := range [][]uint8{
		{hopByHop}, {wire.ProtoDestOpts}, {fragment}, {hopByHop, fragment}, {fragment, wire.ProtoDestOpts}, {hopByHop, wire.ProtoDestOpts},
	} {
		w := newWorld(t, fill(""))
		in := echoRequest("2001:db8::9", "2001:db8:1::1", 0)
		want := w.expect(0, bytes.Clone(in), 0)
		if got := w.expect(0, withExtensions(in, kinds...), 0); !bytes.Equal(got, want) {
			t.Errorf("%v:\ngot  %x\nwant %x", kinds, got, want)
		}
		w.refused(0, withExtensions(echoRequest("2001:db8::9", "2001:db8:1::9", 0), kinds...), packet.DropNoService)
	}
}

func TestErrorsAboutExpiredConnectionsAreDropped(t *testing.T) {
	w := newWorld(t, fill(""))
	x := w.exchange(host, dns, "", "")
	at := flowOf(x.toBackend)
	w.now = w.now.Add(2 * time.Minute) // the hand has not come by
	toBackend := message{src: "198.18.7.7", dst: "198.18.1.1", kind: 3, code: 1, about: x.toClient, from: macClient, to: macGw0}
	w.refused(0, toBackend.bytes(), packet.DropNoFlow)
	toClient := message{
		src: "198.18.7.7", dst: at.src.Addr().String(), kind: 3, code: 1, about: x.toBackend, from: macBackend, to: macGw1,
	}
	w.refused(1, toClient.bytes(), packet.DropNoFlow)
}
