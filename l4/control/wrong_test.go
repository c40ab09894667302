package control

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// chain returns a batch of one packet in several descriptors, cut after the given bytes, between two others.
func (w *world) chain(p []byte, cuts ...int) *packet.Batch {
	other := client("198.18.0.77:1", dns, "").bytes()
	b := w.batch(0, other)
	for i, from := 0, 0; i <= len(cuts); i++ {
		to, more := len(p), packet.Flags(0)
		if i < len(cuts) {
			to, more = cuts[i], packet.FlagMore
		}
		off := uint32((i + 1) << frameBits)
		if i == 0 {
			off += 128
		}
		copy(w.arena.Mem[off:], p[from:to])
		b.D = append(b.D, packet.Desc{Off: off, Len: uint16(to - from), Flags: more})
		from = to
	}
	off := uint32((len(cuts) + 2) << frameBits)
	copy(w.arena.Mem[off+128:], other)
	b.D = append(b.D, packet.Desc{Off: off + 128, Len: uint16(len(other))})
	return b
}

// A packet that spans several frames goes through a tunnel as any other; odd cuts are where sums go wrong.
func TestATunnelCarriesPacketsOfSeveralDescriptors(t *testing.T) {
	for _, c := range tunnels {
		for _, at := range [][2]string{{host, web}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}} {
			for _, wrong := range []bool{false, true} {
				for _, cuts := range [][]int{{1900, 3900}, {1901, 3900}, {1900, 3901}, {1901, 3902, 4005}, {100, 101, 102, 2103}} {
					w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
					w.g.SetDevice(1, datapath.Device{Name: "gw1", MAC: macGw1, MTU: 9000})
					in := large(at[0], at[1], "S", 4001)
					if wrong {
						in[3950] ^= 4
					}
					b := w.chain(in, cuts...)
					w.run(b)
					var out []byte
					for i := 1; i < b.Len()-1; i++ {
						if b.D[i].Verdict != packet.Forward || b.D[i].Port != 1 || i < b.Len()-2 != b.D[i].Flags.Has(packet.FlagMore) {
							t.Fatalf("descriptor %d of %v: %+v", i, cuts, b.D[i])
						}
						out = append(out, b.Bytes(i)...)
					}
					_, _, inner := unwrap(t, c.mode, out)
					if want := lessOne(in); !bytes.Equal(inner[14:], want[14:]) {
						t.Errorf("%v %v, cut at %v: inner packet differs", c, at, cuts)
					}
				}
			}
		}
	}
}

// tunneled returns a packet in an outer packet from a client to a service address.
func tunneled(src, dst string, proto layers.IPProtocol, inner []byte) []byte {
	outer := client(src, dst, "").bytes()
	ip := wire.IPv4(append(bytes.Clone(outer[14:34]), inner...))
	ip.SetProto(uint8(proto))
	ip.SetTotalLen(uint16(len(ip)))
	ip.FillChecksum()
	return append(bytes.Clone(outer[:14]), ip...)
}

// What clients send in tunnels is not taken out of them, so nobody reaches a backend inside of one: it has
// no port, and no service then. To a UDP service it is a datagram as any other, in a tunnel of ours of its
// own: the backend, which opens that, finds a datagram to the service's port in it.
func TestTunnelsInTunnels(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, strings.ReplaceAll(fmt.Sprintf(tunnelConfig, c.mode, c.backend), "198.18.1.1:53,", "198.18.1.1:53, 198.18.1.1:6080,"))
		inner := client("198.18.77.1:1", web, "S").bytes()[14:]
		for _, proto := range []layers.IPProtocol{4, 41, 47, 50} {
			w.refused(0, tunneled(host, web, proto, inner), packet.DropUnsupported)
		}
		s := client(host, "198.18.1.1:6081", "")
		s.payload = "\x00\x04\x00\x00" + string(inner)
		w.expect(0, s.bytes(), 0) // to the client: the port is closed
		s = client(host, "198.18.1.1:6080", "")
		s.payload = "\x00\x04\x00\x00" + string(inner)
		in := s.bytes()
		_, _, got := unwrap(t, c.mode, w.expect(0, in, 1))
		if want := lessOne(in); !bytes.Equal(got[14:], want[14:]) {
			t.Errorf("a datagram became\n%x\nwant\n%x", got[14:], want[14:])
		}
	}
}

// What says of itself that it is longer than it is, or shorter than its headers, has no way through a tunnel.
func TestLyingLengthsDoNotPass(t *testing.T) {
	edit := func(src, dst, flags string, f func(ip []byte)) []byte {
		p := client(src, dst, flags).bytes()
		f(p[14:])
		if p[14]>>4 == 4 && p[14]&0xf >= 5 {
			wire.IPv4(p[14 : 14+20]).SetChecksum(0)
			wire.IPv4(p[14:34]).SetChecksum(wire.Fold(wire.SumPlain(p[14:34], 0)))
		}
		return p
	}
	six, six53 := "[2001:db8:1::1]:80", "[2001:db8:1::1]:53"
	host6 := "[2001:db8::9]:40000"
	for name, c := range map[string]struct {
		p   []byte
		why packet.Verdict
	}{
		"IPv4 longer than the frame":     {edit(host, web, "S", func(ip []byte) { ip[2], ip[3] = 5, 0 }), packet.DropTruncated},
		"IPv4 as long as it can be":      {edit(host, web, "S", func(ip []byte) { ip[2], ip[3] = 0xff, 0xff }), packet.DropTruncated},
		"IPv4 shorter than its header":   {edit(host, web, "S", func(ip []byte) { ip[2], ip[3] = 0, 19 }), packet.DropMalformed},
		"IPv4 that ends in TCP's header": {edit(host, web, "S", func(ip []byte) { ip[2], ip[3] = 0, 39 }), packet.DropMalformed},
		"IPv4 that ends in UDP's header": {edit(host, dns, "", func(ip []byte) { ip[2], ip[3] = 0, 27 }), packet.DropMalformed},
		"IPv6 longer than the frame":     {edit(host6, six, "S", func(ip []byte) { ip[4] = 0xff }), packet.DropTruncated},
		"IPv6 that ends in TCP's header": {edit(host6, six, "S", func(ip []byte) { ip[4], ip[5] = 0, 19 }), packet.DropMalformed},
		"IPv6 that ends in UDP's header": {edit(host6, six53, "", func(ip []byte) { ip[4], ip[5] = 0, 7 }), packet.DropMalformed},
		"TCP with a header too long":     {edit(host, web, "S", func(ip []byte) { ip[32] = 0xf0 }), packet.DropMalformed},
		"TCP with a header too short":    {edit(host, web, "S", func(ip []byte) { ip[32] = 0x40 }), packet.DropMalformed},
		"UDP longer than IP":             {edit(host, dns, "", func(ip []byte) { ip[24] = 0x7f }), packet.DropMalformed},
		"UDP shorter than its header":    {edit(host, dns, "", func(ip []byte) { ip[24], ip[25] = 0, 7 }), packet.DropMalformed},
	} {
		for _, tun := range tunnels {
			w := newWorld(t, fmt.Sprintf(tunnelConfig, tun.mode, tun.backend))
			if s := w.send(0, c.p); s.verdict != c.why || !bytes.Equal(s.p, c.p) {
				t.Errorf("%s into %s: %v, want %v", name, tun.mode, s.verdict, c.why)
			}
		}
	}
}

// The longest packet there is does not fit another header, and its sender is told.
func TestATunnelOfTheLongestPacketIsRefused(t *testing.T) {
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		w.g.SetDevice(1, datapath.Device{Name: "gw1", MAC: macGw1, MTU: 0})
		in := large(host, web, "S", 65535)
		var cuts []int
		for at := 1900; at < len(in); at += 2000 {
			cuts = append(cuts, at)
		}
		b := w.chain(in, cuts...)
		w.run(b)
		if d := b.D[1]; d.Verdict != packet.Forward || d.Port != 0 || toldBy(t, b.Bytes(1)).kind != 3 {
			t.Errorf("%s to %s: %v to port %d", c.mode, c.backend, d.Verdict, d.Port)
		}
	}
}

// A backend whose answer comes from another address or port than it was asked at is not believed, in any mode.
func TestAnAnswerFromAWrongAddressIsDropped(t *testing.T) {
	for _, source := range []string{"", "source: client"} {
		w := newWorld(t, fill(source))
		there := w.expect(0, client(host, web, "S").bytes(), 1)
		why := packet.DropNoFlow
		if source != "" {
			why = packet.DropNoService // to a client, from no backend: not our packet at all
		}
		for from, want := range map[string]packet.Verdict{
			"198.18.2.11:8081": why, "198.18.2.99:8080": why, "198.18.2.11:5353": why, "198.18.1.1:80": why,
		} {
			a := answer(there, "SA")
			a.src = client(from, web, "").src
			w.refused(1, a.bytes(), want)
		}
		other := answer(there, "SA") // the service's other backend, which was not asked
		other.src = client(map[string]string{"198.18.2.11:8080": "198.18.2.12:8080", "198.18.2.12:8080": "198.18.2.11:8080"}[other.src.String()], web, "").src
		w.refused(1, other.bytes(), packet.DropNoFlow)
		w.expect(1, answer(there, "SA").bytes(), 0)
	}
	for _, c := range tunnels {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		w.expect(0, client(host, web, "S").bytes(), 1)
		for _, src := range []string{"198.18.2.11:80", "198.18.1.1:80"} { // neither comes by here
			s := client(src, host, "SA")
			s.to = macGw1
			w.refused(1, s.bytes(), packet.DropNoService)
		}
	}
}
