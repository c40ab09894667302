package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// unfinished makes p a packet whose checksum is left to the device: the field holds the sum of the pseudo
// header. It returns where the transport header lies, and the checksum in it.
func unfinished(p []byte) (l4, at int) {
	_, l3, _ := wire.Network(p)
	ip, pseudo := p[l3:], uint32(0)
	proto := uint8(0)
	if ip[0]>>4 == 4 {
		v4 := wire.IPv4(ip)
		l4, proto = l3+v4.HeaderLen(), v4.Proto()
		pseudo = wire.PseudoHeader4(v4.Src(), v4.Dst(), proto, uint32(int(v4.TotalLen())-v4.HeaderLen()))
	} else {
		v6 := wire.IPv6(ip)
		l4, proto = l3+wire.IPv6Len, v6.NextHeader()
		pseudo = wire.PseudoHeader6(v6.Src(), v6.Dst(), proto, uint32(v6.PayloadLen()))
	}
	if at = 16; proto == wire.ProtoUDP {
		at = 6
	}
	binary.BigEndian.PutUint16(p[l4+at:], ^wire.Fold(pseudo))
	return l4, at
}

// finished does what the device does. A checksum of 0 is written as 0xffff for UDP alone, where 0 is no checksum (RFC 768).
func finished(p []byte, l4, at int) {
	checksum := wire.Fold(wire.SumPlain(p[l4:], 0))
	if at == 6 {
		checksum = wire.UDPChecksum(checksum)
	}
	binary.BigEndian.PutUint16(p[l4+at:], checksum)
}

// large passes p through as a driver hands it over that leaves segments of a size to the sending device.
func (w *world) large(port uint8, p []byte, segment int) (sent, packet.Flags) {
	w.t.Helper()
	l4, at := unfinished(p)
	b := w.batch(port, p)
	b.D[0].Flags = packet.FlagOffload
	start := w.arena.Headroom(&b.D[0])
	w.arena.SetOffload(&b.D[0], &packet.Offload{
		Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_TCPV4,
		SegmentSize: uint16(segment), ChecksumFrom: uint16(start + l4), ChecksumAt: uint16(at),
	})
	w.run(b)
	d := &b.D[0]
	out := bytes.Clone(b.Bytes(0))
	if d.Verdict == packet.Forward && d.Flags.Has(packet.FlagOffload) {
		o := w.arena.Offload(d)
		finished(out, int(o.ChecksumFrom)-w.arena.Headroom(d), int(o.ChecksumAt))
	}
	return sent{d.Verdict, d.Port, out}, d.Flags
}

// The device that sends a packet makes its checksum of what the gateway left in the field: gopacket finds
// it right, both ways.
func TestTheDeviceFinishesTheChecksumOfARewrittenPacket(t *testing.T) {
	for _, c := range []struct{ name, src, dst, open, then string }{
		{"TCP over IPv4", "198.18.0.9:40000", "198.18.1.1:80", "S", "PA"},
		{"TCP over IPv6", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", "PA"},
		{"UDP over IPv4", "198.18.0.9:40000", "198.18.1.1:53", "", ""},
		{"UDP over IPv6", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fill("source: gateway")+"checksum: drop\n")
			out := w.expect(0, client(c.src, c.dst, c.open).bytes(), 1)
			reply := answer(out, c.then)
			for i := range 200 {
				s := client(c.src, c.dst, c.then)
				s.payload = strings.Repeat(fmt.Sprint("there ", i), 60+i%50)
				reply.payload = strings.Repeat(fmt.Sprint("back ", i), 60+i%50)
				for port, p := range [][]byte{s.bytes(), reply.bytes()} {
					got, flags := w.large(uint8(port), p, 500)
					if got.verdict != packet.Forward || got.port != uint8(1-port) || !flags.Has(packet.FlagOffload) {
						t.Fatalf("verdict %v to port %d, flags %#x", got.verdict, got.port, flags)
					}
					w.checksumsRight(got.p)
				}
			}
		})
	}
}

func TestALargePacketIsTooBigWhenItsSegmentsAre(t *testing.T) {
	w := newWorld(t, fill("source: gateway"))
	w.expect(0, client("198.18.0.9:40000", "198.18.1.1:80", "S").bytes(), 1)
	s := client("198.18.0.9:40000", "198.18.1.1:80", "PA")
	s.payload = strings.Repeat("large", 360) // 1800 bytes, and the MTU is 1500
	for segment, want := range map[int]bool{500: true, 1460: true, 1461: false, 1800: false, 60000: false} {
		got, flags := w.large(0, s.bytes(), segment)
		if passed := flags.Has(packet.FlagOffload) && got.verdict == packet.Forward && got.port == 1; passed != want {
			t.Errorf("segments of %d: %v to port %d, flags %#x", segment, got.verdict, got.port, flags)
		}
		if !want && flags.Has(packet.FlagOffload) && got.verdict == packet.Forward {
			t.Errorf("segments of %d: the answer to it is to be cut", segment)
		}
	}
}

func TestALargePacketDoesNotEnterATunnel(t *testing.T) {
	for _, mode := range []string{"ipip", "gue"} {
		w := newWorld(t, fmt.Sprintf(tunnelConfig, mode, "198.18.3.2"))
		w.expect(0, client("198.18.0.9:40000", "198.18.1.1:80", "S").bytes(), 1)
		s := client("198.18.0.9:40000", "198.18.1.1:80", "PA")
		if got, _ := w.large(0, s.bytes(), 10); got.verdict != packet.DropUnsupported {
			t.Errorf("%s: %v", mode, got.verdict)
		}
	}
}

func TestTheAnswerToALargePacketIsAnOrdinaryOne(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(rejectConfig, "reject"))
	s := client("198.18.0.9:40000", "198.18.1.1:80", "S")
	got, flags := w.large(0, s.bytes(), 10)
	if got.verdict != packet.Forward || got.port != 0 || flags.Has(packet.FlagOffload) {
		t.Fatalf("%v to port %d, flags %#x", got.verdict, got.port, flags)
	}
	w.checksumsRight(got.p)
}

func TestBytesOfALargePacketAreThoseOfAllItsFrames(t *testing.T) {
	w := newWorld(t, fill("source: gateway"))
	out := w.expect(0, client("198.18.0.9:40000", "198.18.1.1:80", "S").bytes(), 1)
	count := func() (to, from uint64) {
		w.after(0)
		st := w.g.Status().Services[0].Backends[0]
		return st.ToBytes, st.FromBytes
	}
	to, from := count()
	s, reply := client("198.18.0.9:40000", "198.18.1.1:80", "PA"), answer(out, "PA")
	for port, head := range [][]byte{s.bytes(), reply.bytes()} {
		b := w.batch(uint8(port), head, head, make([]byte, 700), make([]byte, 300)) // one frame, and another packet of three
		b.D[1].Flags, b.D[2].Flags = packet.FlagMore, packet.FlagMore
		w.run(b)
		for i := range b.D {
			if b.D[i].Verdict != packet.Forward {
				t.Fatalf("frame %d: %v", i, b.D[i].Verdict)
			}
		}
	}
	gotTo, gotFrom := count()
	if wantTo, wantFrom := uint64(2*len(s.bytes())+1000), uint64(2*len(reply.bytes())+1000); gotTo-to != wantTo || gotFrom-from != wantFrom {
		t.Errorf("%d bytes to the backend and %d from it, want %d and %d", gotTo-to, gotFrom-from, wantTo, wantFrom)
	}
}

var _ stack.ExternalForwarder = (*datapath.Handler)(nil) // so the loop leaves payload with the driver

// The gateway rewrites headers of which the payload is not in the frame, counts all bytes of the packet, and finds none missing.
func TestExternalPayloadIsRewrittenByItsHeaders(t *testing.T) {
	for _, c := range []struct{ src, dst, open, then string }{
		{"198.18.0.9:40000", "198.18.1.1:80", "S", "PA"},
		{"[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", "PA"},
		{"198.18.0.9:40000", "198.18.1.1:53", "", ""},
	} {
		w := newWorld(t, fill("source: gateway")+"checksum: drop\n")
		out := w.expect(0, client(c.src, c.dst, c.open).bytes(), 1)
		reply := answer(out, c.then)
		s := client(c.src, c.dst, c.then)
		bytesOf := func() (n uint64) {
			w.after(0)
			for _, sv := range w.g.Status().Services {
				for _, b := range sv.Backends {
					n += b.ToBytes + b.FromBytes
				}
			}
			return n
		}
		before, want := bytesOf(), 0
		for port, p := range []*seg{&s, &reply} {
			p.payload = strings.Repeat("there and back ", 100)
			whole := p.bytes()
			want += len(whole)
			l4, at := unfinished(whole)
			b := w.batch(uint8(port), whole[:256])
			d := &b.D[0]
			d.Flags = packet.FlagOffload
			start := w.arena.Headroom(d)
			w.arena.SetOffload(d, &packet.Offload{
				Flags: packet.OffloadNeedsChecksum, GSO: packet.GSOTCPv4, SegmentSize: 500,
				ChecksumFrom: uint16(start + l4), ChecksumAt: uint16(at),
			})
			w.arena.SetExternal(d, whole[256:])
			w.run(b)
			if d.Verdict != packet.Forward || d.Port != uint8(1-port) || len(w.arena.External(d)) != len(whole)-256 {
				t.Fatalf("%s: %v to device %d, %d bytes outside of the frame", c.dst, d.Verdict, d.Port, len(w.arena.External(d)))
			}
			got := append(bytes.Clone(b.Bytes(0)), w.arena.External(d)...)
			finished(got, l4, at)
			w.checksumsRight(got)
		}
		if got := bytesOf() - before; got != uint64(want) {
			t.Errorf("%s: %d bytes counted, want %d", c.dst, got, want)
		}
	}
}
