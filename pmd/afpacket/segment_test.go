package afpacket

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// large makes a TCP packet of n bytes of payload as one that GSO hands over, with the fields that
// change from segment to segment taken from at.
func large(t testing.TB, v6 bool, seq uint32, id uint16, fin, psh, cwr bool, payload []byte) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: seq, Ack: 9, ACK: true, FIN: fin, PSH: psh, CWR: cwr, Window: 512, Options: []layers.TCPOption{
		{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)},
	}}
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, Id: id, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP, SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		src := append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 12)...)
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src, DstIP: src}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, tcp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buf.Bytes())
}

// Each segment is, byte for byte, the packet that gopacket makes of what it should say.
func TestSegmentsAreTheSendersPackets(t *testing.T) {
	data := make([]byte, 3500)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, v6 := range []bool{false, true} {
		p := &received{data: large(t, v6, 0xFFFFFF00, 0xFFFF, true, true, true, data), mss: 1000, gso: packet.GSOTCPv4}
		var s segments
		if !s.start(p, false) {
			t.Fatal("rejected")
		}
		n := 0
		for more := true; more; more = s.next(p) {
			head, payload := s.build(p)
			at, last := n*1000, n == 3
			want := large(t, v6, 0xFFFFFF00+uint32(at), 0xFFFF+uint16(n), last, last, n == 0, data[at:min(at+1000, len(data))])
			if d := cmp.Diff(want, append(slices.Clone(head), payload...)); d != "" {
				t.Errorf("IPv6 %v, segment %d: %s", v6, n, d)
			}
			n++
		}
		if n != 4 {
			t.Errorf("IPv6 %v: %d segments, want 4", v6, n)
		}
	}
}

func TestUDPChecksumThatComesToZeroIsSentAsOnes(t *testing.T) {
	p := &received{data: make([]byte, 42), csumStart: 34, csumOffset: 6}
	binary.BigEndian.PutUint16(p.data[34:], 0xffff)
	if !p.fillChecksum() || binary.BigEndian.Uint16(p.data[40:]) != 0xffff {
		t.Errorf("checksum %#x (RFC 768: 0 says that there is none)", p.data[40:])
	}
	for _, q := range []received{{data: p.data, csumStart: 43}, {data: p.data, csumStart: 34, csumOffset: 7}} {
		if q.fillChecksum() {
			t.Errorf("offsets %d+%d of %d bytes were accepted", q.csumStart, q.csumOffset, len(q.data))
		}
	}
}

// jumbo makes of a large IPv6 packet what Linux builds beyond 64 KiB: the length lies in a jumbo payload option (RFC 2675 2).
func jumbo(p []byte) []byte {
	opt := []byte{wire.ProtoTCP, 0, jumboOption, 4, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(opt[4:], uint32(len(p)-wire.EthernetLen-wire.IPv6Len+len(opt)))
	q := slices.Insert(slices.Clone(p), wire.EthernetLen+wire.IPv6Len, opt...)
	ip := wire.IPv6(q[wire.EthernetLen:])
	ip.SetPayloadLen(0)
	ip.SetNextHeader(wire.ProtoHopByHop)
	return q
}

// Each piece of a packet beyond 64 KiB is, but for the checksum that is left to the device, the packet that gopacket makes of
// what it should say: all of the same whole segments but the last, and with lengths that IP can express.
func TestPiecesAreLargePackets(t *testing.T) {
	const mss, n = 1000, 150_500
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	for _, v6 := range []bool{false, true} {
		small := large(t, v6, 7, 0xFFF0, true, true, true, data[:1000]) // gopacket's lengths have 16 bits, too
		whole := append(small[:len(small)-1000:len(small)-1000], data...)
		l3 := wire.EthernetLen
		p := &received{mss: mss, gso: packet.GSOTCPv4, partial: true, csumStart: len(small) - 1000 - 32, csumOffset: 16}
		if v6 {
			whole = jumbo(whole)
			p.csumStart += jumboLen
		} else {
			wire.IPv4(whole[l3:]).SetTotalLen(0)
		}
		p.data, p.size = whole, len(whole)
		if got := p.passage(true); got != passPieces {
			t.Fatalf("IPv6 %v: passage %d", v6, got)
		}
		p.removeJumbo()
		var s segments
		if !s.start(p, true) {
			t.Fatal("rejected")
		}
		at := 0
		for more := true; more; more = s.next(p) {
			head, payload := s.build(p)
			last := at+len(payload) == n
			want := large(t, v6, 7+uint32(at), 0xFFF0+uint16(at/mss), last, last, at == 0, payload)
			l4 := s.l4
			if len(payload) > mss {
				pseudo := wire.IPv6(want[l3:]).Pseudo
				sum := uint32(0)
				if v6 {
					sum = pseudo()
				} else {
					ip := wire.IPv4(want[l3:])
					sum = wire.PseudoHeader4(ip.Src(), ip.Dst(), wire.ProtoTCP, uint32(len(want)-l4))
				}
				binary.BigEndian.PutUint16(want[l4+16:], ^wire.Fold(sum))
			}
			if d := cmp.Diff(want[:s.payload], head); d != "" {
				t.Errorf("IPv6 %v, piece at %d: %s", v6, at, d)
			}
			if !bytes.Equal(payload, data[at:at+len(payload)]) || len(head)+len(payload) > mostPiece || !last && len(payload)%mss != 0 {
				t.Errorf("IPv6 %v: a piece of %d bytes at %d, or not what was sent", v6, len(payload), at)
			}
			at += len(payload)
		}
		if at != n {
			t.Errorf("IPv6 %v: %d bytes in pieces", v6, at)
		}
	}
}

// Only a jumbo payload option alone, in front of the transport header, is removed.
func TestOtherOptionsStay(t *testing.T) {
	base := jumbo(large(t, true, 1, 2, false, false, false, make([]byte, 100)))
	for name, change := range map[string]func([]byte) []byte{
		"another option":   func(b []byte) []byte { b[56] = 5; return b },
		"a longer header":  func(b []byte) []byte { b[55] = 1; return b },
		"another length":   func(b []byte) []byte { b[57] = 3; return b },
		"a payload length": func(b []byte) []byte { b[19] = 1; return b },
		"destination opts": func(b []byte) []byte { b[20] = wire.ProtoDestOpts; return b },
		"IPv4":             func(b []byte) []byte { b[12], b[13] = 8, 0; return b },
		"cut":              func(b []byte) []byte { return b[:61] },
	} {
		p := &received{data: change(slices.Clone(base)), size: len(base)}
		if p.removeJumbo(); p.size != len(base) {
			t.Errorf("%s: %d bytes were removed", name, len(base)-p.size)
		}
	}
	p := &received{data: base, size: len(base), csumStart: 62, headers: 94}
	p.removeJumbo()
	if !bytes.Equal(p.data[:20], base[jumboLen:][:20]) || len(p.data) != p.size || p.csumStart != 54 || p.headers != 86 || wire.IPv6(p.data[14:]).NextHeader() != wire.ProtoTCP {
		t.Errorf("%+v", p)
	}
}

func FuzzSegments(f *testing.F) {
	f.Add(large(f, false, 1, 2, true, true, true, make([]byte, 3000)), uint16(1000), uint8(packet.GSOTCPv4))
	f.Add(large(f, true, 1, 2, true, true, true, make([]byte, 30)), uint16(7), uint8(packet.GSOTCPv6))
	f.Add([]byte{12: 0x86, 13: 0xdd, 14: 0x60, 20: 43, 200: 1}, uint16(1), uint8(packet.GSOUDP))
	f.Add(jumbo(large(f, true, 1, 2, true, true, true, make([]byte, 3000))), uint16(1000), uint8(packet.GSOTCPv6))
	f.Fuzz(func(t *testing.T, data []byte, mss uint16, gso uint8) {
		p := &received{data: slices.Clone(data), size: len(data), mss: int(mss), gso: gso}
		p.removeJumbo()
		data = p.data
		var s segments
		if s.start(p, true) && (s.size < int(mss) || s.size%int(mss) != 0 || s.payload+s.size > max(mostPiece, s.payload+int(mss))) {
			t.Fatalf("pieces of %d bytes", s.size)
		}
		if !s.start(p, false) {
			return
		}
		var whole []byte
		for more := true; more; more = s.next(p) {
			head, payload := s.build(p)
			whole = append(whole, payload...)
			if len(payload) == 0 || len(payload) > int(mss) || len(head) != s.payload {
				t.Fatalf("a segment of %d + %d bytes", len(head), len(payload))
			}
			if _, l3, ok := wire.Network(head); !ok || l3 != s.l3 {
				t.Fatal("the headers are damaged")
			}
		}
		if !bytes.Equal(whole, data[s.payload:]) {
			t.Fatal("the segments are not the packet")
		}
	})
}
