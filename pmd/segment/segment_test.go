package segment

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
		var c Cutter
		if !c.Start(large(t, v6, 0xFFFFFF00, 0xFFFF, true, true, true, data), kind(v6)|packet.GSOECN, 1000) || c.Segments() != 4 {
			t.Fatalf("rejected, or %d segments", c.Segments())
		}
		n := 0
		for ; c.Active(); c.Next() {
			head, payload := c.Build()
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

// Each piece of a packet beyond 64 KiB is, but for the checksum that is left to the device, the packet that gopacket makes of
// what it should say: all of the same whole segments but the last, and with lengths that IP can express.
func TestPiecesAreLargePackets(t *testing.T) {
	const mss, n, most = 1000, 150_500, 0xffff
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	for _, v6 := range []bool{false, true} {
		small := large(t, v6, 7, 0xFFF0, true, true, true, data[:1000]) // gopacket's lengths have 16 bits, too
		whole := append(small[:len(small)-1000:len(small)-1000], data...)
		withoutLength(whole[wire.EthernetLen:])
		var c Cutter
		if !c.Start(whole, kind(v6), mss) {
			t.Fatal("rejected")
		}
		c.Widen(most)
		at := 0
		for ; c.Active(); c.Next() {
			head, payload := c.Build()
			last := at+len(payload) == n
			want := large(t, v6, 7+uint32(at), 0xFFF0+uint16(at/mss), last, last, at == 0, payload)
			if len(payload) > mss {
				binary.BigEndian.PutUint16(want[c.Transport+16:], ^wire.Fold(pseudoSum(want, c.Transport)))
			}
			if d := cmp.Diff(want[:c.Payload], head); d != "" {
				t.Errorf("IPv6 %v, piece at %d: %s", v6, at, d)
			}
			if !bytes.Equal(payload, data[at:at+len(payload)]) || len(head)+len(payload) > most || !last && len(payload)%mss != 0 {
				t.Errorf("IPv6 %v: a piece of %d bytes at %d, or not what was sent", v6, len(payload), at)
			}
			if c.First() != (at == 0) {
				t.Errorf("IPv6 %v: First at %d is %v", v6, at, c.First())
			}
			at += len(payload)
		}
		if at != n {
			t.Errorf("IPv6 %v: %d bytes in pieces", v6, at)
		}
	}
}

// withoutLength removes the length of an IP packet, as Linux does it beyond 64 KiB.
func withoutLength(ip []byte) {
	if wire.IPv4(ip).Version() == 4 {
		wire.IPv4(ip).SetTotalLen(0)
		return
	}
	wire.IPv6(ip).SetPayloadLen(0)
}

// pseudoSum returns the sum of the pseudo-header of a TCP packet whose transport header lies at l4.
func pseudoSum(frame []byte, l4 int) uint32 {
	if ip := wire.IPv4(frame[wire.EthernetLen:]); ip.Version() == 4 {
		return wire.PseudoHeader4(ip.Src(), ip.Dst(), wire.ProtoTCP, uint32(len(frame)-l4))
	}
	return wire.IPv6(frame[wire.EthernetLen:]).Pseudo()
}

// Headers that contradict the kind of large packet, or leave nothing to cut, are rejected.
func TestWhatIsNoLargePacket(t *testing.T) {
	valid := large(t, false, 1, 2, false, true, false, make([]byte, 3000))
	six := large(t, true, 1, 2, false, true, false, make([]byte, 3000))
	withOptions := slices.Insert(slices.Clone(six), 54, append([]byte{wire.ProtoTCP, 29, 1, 236}, make([]byte, 236)...)...)
	wire.IPv6(withOptions[14:]).SetNextHeader(wire.ProtoDestOpts)
	wire.IPv6(withOptions[14:]).SetPayloadLen(uint16(len(withOptions) - 54))
	anotherVersion := slices.Clone(valid)
	anotherVersion[14] = 0x65
	wire.IPv4(anotherVersion[14:]).SetTotalLen(0)
	for name, c := range map[string]struct {
		data []byte
		gso  uint8
		mss  int
	}{
		"no segment size":      {valid, packet.GSOTCPv4, 0},
		"IPv6 kind of IPv4":    {valid, packet.GSOTCPv6, 1000},
		"IPv4 kind of IPv6":    {six, packet.GSOTCPv4, 1000},
		"UDP kind of TCP":      {valid, packet.GSOUDP, 1000},
		"no kind":              {valid, packet.GSONone, 1000},
		"no payload":           {valid[:len(valid)-3000], packet.GSOTCPv4, 1000},
		"headers cut":          {valid[:50], packet.GSOTCPv4, 1000},
		"neither IPv4 nor 6":   {append([]byte{12: 8, 13: 6}, valid[14:]...), packet.GSOTCPv4, 1000},
		"headers of 326 bytes": {withOptions, packet.GSOTCPv6, 1000},
		"version 6 of IPv4":    {anotherVersion, packet.GSOTCPv4, 1000},
		"no Ethernet header":   {valid[:13], packet.GSOTCPv4, 1000},
	} {
		var cutter Cutter
		if cutter.Start(c.data, c.gso, c.mss) || cutter.Active() {
			t.Errorf("%s: accepted", name)
		}
	}
}

// kind returns the kind of large packet of TCP.
func kind(v6 bool) uint8 {
	if v6 {
		return packet.GSOTCPv6
	}
	return packet.GSOTCPv4
}

func FuzzSegments(f *testing.F) {
	f.Add(large(f, false, 1, 2, true, true, true, make([]byte, 3000)), uint16(1000), uint8(packet.GSOTCPv4))
	f.Add(large(f, true, 1, 2, true, true, true, make([]byte, 30)), uint16(7), uint8(packet.GSOTCPv6))
	f.Add([]byte{12: 0x86, 13: 0xdd, 14: 0x60, 20: 43, 200: 1}, uint16(1), uint8(packet.GSOUDP))
	f.Fuzz(func(t *testing.T, data []byte, mss uint16, gso uint8) {
		var c Cutter
		if !c.Start(data, gso, int(mss)) {
			return
		}
		if c.Widen(0xffff); c.Size() < int(mss) || c.Size()%int(mss) != 0 || c.Payload+c.Size() > max(0xffff, c.Payload+int(mss)) {
			t.Fatalf("pieces of %d bytes", c.Size())
		}
		c.Start(data, gso, int(mss))
		var whole []byte
		n := 0
		segments := c.Segments()
		for ; c.Active(); c.Next() {
			head, payload := c.Build()
			whole = append(whole, payload...)
			if len(payload) == 0 || len(payload) > int(mss) || len(head) != c.Payload {
				t.Fatalf("a segment of %d + %d bytes", len(head), len(payload))
			}
			if _, l3, ok := wire.Network(head); !ok || l3 != c.Network {
				t.Fatal("the headers are damaged")
			}
			n++
		}
		if !bytes.Equal(whole, data[c.Payload:]) || n != segments {
			t.Fatalf("%d segments of %d are not the packet", n, segments)
		}
	})
}
