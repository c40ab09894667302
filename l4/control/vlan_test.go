package control

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// tag puts a tag of the given type into a frame.
func tag(p []byte, kind, tci uint16) []byte {
	t := binary.BigEndian.AppendUint16(nil, kind)
	t = binary.BigEndian.AppendUint16(t, tci)
	return append(append(bytes.Clone(p[:12]), t...), p[12:]...)
}

// untag takes the one tag out of a frame.
func untag(t *testing.T, p []byte, tci uint16) []byte {
	t.Helper()
	if kind, got := binary.BigEndian.Uint16(p[12:]), binary.BigEndian.Uint16(p[14:]); kind != wire.EtherTypeVLAN || got != tci {
		t.Fatalf("tag %#x %#x, want %#x", kind, got, tci)
	}
	return append(bytes.Clone(p[:12]), p[16:]...)
}

// hopsOn leads to all backends by a VLAN.
func hopsOn(c *config.Config, vlan uint16) nexthop.Static {
	r := hopsOf(c)
	for a, hop := range r {
		hop.VLAN = vlan
		r[a] = hop
	}
	return r
}

const priority = 5 << 13

func TestPacketsChangeTheirTagOnTheWay(t *testing.T) {
	for _, src := range []string{host, "[2001:db8::9]:40000"} {
		dst := web
		if src != host {
			dst = "[2001:db8:1::1]:80"
		}
		for _, c := range []struct {
			name                        string
			in, back                    uint16 // VLAN of the hop, TCI of the client's packets; 0 is no tag
			wantOut, backIn, wantClient uint16 // TCIs
		}{
			{"none at all", 0, 0, 0, 0, 0},
			{"popped and pushed", 100 | priority, 0, 0, 0, 100},
			{"pushed and popped", 0, 200, 200, 200 | priority, 0},
			{"replaced, with the priority kept", 100 | priority, 200, 200 | priority, 200, 100},
		} {
			cfg := parse(t, fill(""))
			w := newWorldWith(t, cfg, hopsOn(cfg, c.back))
			p := client(src, dst, "S").bytes()
			if c.in != 0 {
				p = tag(p, wire.EtherTypeVLAN, c.in)
			}
			out := w.expect(0, p, 1)
			if c.wantOut != 0 {
				out = untag(t, out, c.wantOut)
			}
			w.checksumsRight(out)
			if f := flowOf(out); f.dst.Port() != 8080 || f.dstMAC.String() != "02:00:00:00:00:b1" || f.srcMAC.String() != "02:00:00:00:00:91" {
				t.Errorf("%s: %+v", c.name, f)
			}
			reply := answer(out, "SA").bytes()
			if c.backIn != 0 {
				reply = tag(reply, wire.EtherTypeVLAN, c.backIn)
			}
			out = w.expect(1, reply, 0)
			if c.wantClient != 0 && c.backIn != 0 {
				c.wantClient |= c.backIn & 0xf000
			}
			if c.wantClient != 0 {
				out = untag(t, out, c.wantClient)
			}
			w.checksumsRight(out)
			if f := flowOf(out); f.dst.String() != src || f.dstMAC.String() != "02:00:00:00:00:c1" {
				t.Errorf("%s: reply %+v", c.name, f)
			}
		}
	}
}

// A tag with VLAN 0 carries a priority and names no VLAN: 802.1Q 6.9.1.
func TestAPriorityTagIsNoVLAN(t *testing.T) {
	w := newWorld(t, fill(""))
	out := w.expect(0, tag(client(host, web, "S").bytes(), wire.EtherTypeVLAN, priority), 1)
	w.checksumsRight(out)
	w.checksumsRight(w.expect(1, answer(out, "SA").bytes(), 0))
}

func TestAnswersKeepTheTag(t *testing.T) {
	w := newWorld(t, fill(""))
	out := untag(t, w.expect(0, tag(arpFor("198.18.1.1", layers.ARPRequest), wire.EtherTypeVLAN, 100|priority), 0), 100|priority)
	if op := wire.ARP(out[14:]).Op(); op != wire.ARPReply {
		t.Errorf("operation %d", op)
	}
	ns := solicit("2001:db8::9", "ff02::1:ff00:1", "2001:db8:1::1", true, 255)
	out = untag(t, w.expect(0, tag(ns, wire.EtherTypeVLAN, 100), 0), 100)
	if out[14+40] != wire.ICMPv6NeighborAdvert {
		t.Errorf("type %d", out[14+40])
	}
	w.refused(0, tag(tag(arpFor("198.18.1.1", layers.ARPRequest), wire.EtherTypeVLAN, 100), wire.EtherTypeQinQ, 5), packet.DropUnsupported)
	w.refused(0, tag(arpFor("198.18.1.1", layers.ARPRequest), wire.EtherTypeQinQ, 5), packet.DropUnsupported)
}

func TestATagThatDoesNotFitIsADrop(t *testing.T) {
	cfg := parse(t, fill(""))
	w := newWorldWith(t, cfg, hopsOn(cfg, 200))
	for room, want := range map[uint32]packet.Verdict{3: packet.DropNoFrame, 4: packet.Forward} {
		b := w.batch(0, client(host, web, "S").bytes())
		copy(w.arena.Mem[room:], b.Bytes(0))
		b.D[0].Off = room
		w.run(b)
		if v := b.D[0].Verdict; v != want {
			t.Errorf("%d bytes of headroom: %v, want %v", room, v, want)
		}
	}
}

// withOptions puts options into an IPv4 header.
func withOptions(p []byte, o ...byte) []byte {
	for len(o)&3 != 0 {
		o = append(o, 0)
	}
	out := append(append(bytes.Clone(p[:34]), o...), p[34:]...)
	ip := wire.IPv4(out[14:])
	ip.SetTotalLen(ip.TotalLen() + uint16(len(o)))
	ip.SetHeaderLen(20 + len(o))
	ip.FillChecksum()
	return out
}

// withHeaders puts IPv6 extension headers in front of the transport header, each of 8 bytes; the
// first byte of each is filled in.
func withHeaders(p []byte, kinds []uint8, h [][8]byte) []byte {
	out := bytes.Clone(p[:54])
	next := p[20]
	for i := range kinds {
		h[i][0] = next
		if i+1 < len(kinds) {
			h[i][0] = kinds[i+1]
		}
		out = append(out, h[i][:]...)
	}
	out[20] = kinds[0]
	out = append(out, p[54:]...)
	ip := wire.IPv6(out[14:])
	ip.SetPayloadLen(ip.PayloadLen() + uint16(8*len(kinds)))
	return out
}

func TestOptionsAndExtensionHeadersPass(t *testing.T) {
	w := newWorld(t, fill(""))
	for _, o := range [][]byte{
		{1, 1, 1, 1}, {7, 7, 4, 0, 0, 0, 0}, {148, 4, 0, 0}, {68, 8, 5, 0, 0, 0, 0, 0},
	} {
		p := withOptions(client(host, dns, "").bytes(), o...)
		out := w.expect(0, p, 1)
		if !wire.IPv4(out[14:]).ChecksumOK() || !bytes.Equal(out[34:34+len(o)], o) {
			t.Errorf("options %x: %x", o, out)
		}
		ip := wire.IPv4(out[14:])
		if !wire.UDP(ip.Payload()).ChecksumOK(ip.Pseudo()) || wire.UDP(ip.Payload()).DstPort() != 5353 {
			t.Errorf("options %x: %x", o, out)
		}
	}
	src, dst := "[2001:db8::9]:40000", "[2001:db8:1::1]:53"
	pad := [8]byte{0, 0, 1, 4, 0, 0, 0, 0}
	for _, kinds := range [][]uint8{{0}, {60}, {0, 60}, {43}, {0, 43, 60}} {
		h := [][8]byte{pad, pad, pad}
		for i, k := range kinds {
			if k == 43 {
				h[i] = [8]byte{0, 0, 4, 0} // no segments left
			}
		}
		out := w.expect(0, withHeaders(client(src, dst, "").bytes(), kinds, h), 1)
		ip := wire.IPv6(out[14:])
		proto, off, _, ok := wire.Upper6(ip)
		if !ok || proto != wire.ProtoUDP {
			t.Fatalf("headers %v: %x", kinds, out)
		}
		udp := wire.UDP(ip[off:])
		if !udp.ChecksumOK(wire.PseudoHeader6(ip.Src(), ip.Dst(), proto, uint32(udp.Len()))) || udp.DstPort() != 5353 {
			t.Errorf("headers %v: %x", kinds, out)
		}
	}
}

func TestWhatNamesAnotherDestinationIsRefused(t *testing.T) {
	w := newWorld(t, fill(""))
	for _, o := range [][]byte{{131, 7, 4, 1, 2, 3, 4}, {1, 137, 7, 4, 1, 2, 3, 4}} {
		w.refused(0, withOptions(client(host, dns, "").bytes(), o...), packet.DropUnsupported)
	}
	for _, o := range [][]byte{{7, 1, 0, 0}, {7, 9, 0, 0}} {
		w.refused(0, withOptions(client(host, dns, "").bytes(), o...), packet.DropMalformed)
	}
	p := client("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "").bytes()
	for _, c := range []struct {
		kind uint8
		h    [8]byte
	}{
		{43, [8]byte{0, 0, 4, 1}},            // a segment left
		{51, [8]byte{0, 0}},                  // AH
		{60, [8]byte{0, 0, 201, 4, 1, 1, 1}}, // home address
	} {
		w.refused(0, withHeaders(p, []uint8{c.kind}, [][8]byte{c.h}), packet.DropUnsupported)
	}
}
