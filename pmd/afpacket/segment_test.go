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
		if !s.start(p) {
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

func FuzzSegments(f *testing.F) {
	f.Add(large(f, false, 1, 2, true, true, true, make([]byte, 3000)), uint16(1000), uint8(packet.GSOTCPv4))
	f.Add(large(f, true, 1, 2, true, true, true, make([]byte, 30)), uint16(7), uint8(packet.GSOTCPv6))
	f.Add([]byte{12: 0x86, 13: 0xdd, 14: 0x60, 20: 43, 200: 1}, uint16(1), uint8(packet.GSOUDP))
	f.Fuzz(func(t *testing.T, data []byte, mss uint16, gso uint8) {
		p := &received{data: data, mss: int(mss), gso: gso}
		var s segments
		if !s.start(p) {
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
