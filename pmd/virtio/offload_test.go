package virtio_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
	"github.com/millrace/millrace/wire"
)

// large returns a TCP segment of n bytes of payload whose checksum has the sum of the pseudo-header alone, and the Offload that
// goes with it in a frame with a headroom of 256 bytes.
func large(n int, v6 bool, mss uint16) ([]byte, *packet.Offload) {
	p := make([]byte, 14, 14+40+20+n)
	copy(p, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	gso := uint8(packet.GSOTCPv4)
	l4 := 34
	if v6 {
		p[12], p[13], gso, l4 = 0x86, 0xdd, packet.GSOTCPv6, 54
		p = append(p, 0x60, 0, 0, 0, 0, 0, wire.ProtoTCP, 64)
		p = append(p, bytes.Repeat([]byte{0x20, 1, 0xd, 0xb8}, 8)...)
		binary.BigEndian.PutUint16(p[18:], uint16(20+n))
	} else {
		p = append(p, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, wire.ProtoTCP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2)
		ip := wire.IPv4(p[14:])
		ip.SetTotalLen(uint16(40 + n))
		ip.FillChecksum()
	}
	p = append(p, 0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x19, 1, 0, 0, 0, 0, 0) // FIN, PSH, ACK
	for i := range n {
		p = append(p, byte(i*7))
	}
	sum := wire.PseudoHeader6([16]byte(p[22:]), [16]byte(p[38:]), wire.ProtoTCP, uint32(20+n))
	if !v6 {
		sum = wire.PseudoHeader4([4]byte(p[26:]), [4]byte(p[30:]), wire.ProtoTCP, uint32(20+n))
	}
	binary.BigEndian.PutUint16(p[l4+16:], ^wire.Fold(sum))
	o := &packet.Offload{
		Flags: packet.OffloadNeedsChecksum, GSO: gso, HeadersEnd: uint16(256 + l4 + 20), SegmentSize: mss,
		ChecksumFrom: uint16(256 + l4), ChecksumAt: 16,
	}
	if mss == 0 {
		o.GSO = packet.GSONone
	}
	return p, o
}

// payloadOf checks a segment with gopacket, which computes the checksums anew, and returns its payload.
func payloadOf(t *testing.T, p []byte) []byte {
	t.Helper()
	g := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := g.TransportLayer().(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP segment: %v", g)
	}
	if err := tcp.SetNetworkLayerForChecksum(g.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	have := tcp.Checksum
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, tcp, gopacket.Payload(tcp.Payload)); err != nil {
		t.Fatal(err)
	}
	if want := binary.BigEndian.Uint16(buf.Bytes()[16:]); have != want {
		t.Errorf("checksum %#x, want %#x", have, want)
	}
	return slices.Clone(tcp.Payload)
}

// TestLargePackets sends large packets both ways. Whole ones arrive with the work that is left to do; where the receiver does not take
// them, segments arrive that are complete.
func TestLargePackets(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("packed=%v,v6=%v", packed, v6), func(t *testing.T) {
				p := newPair(t, 1, virtio.Config{Packed: packed}, virtio.Config{Server: true})
				front, back := p.front.Queues[0], p.back.Queues[0]
				for _, c := range []struct {
					from, to         pmd.Driver
					fromPool, toPool int
					set              func(bool) error
				}{
					{front, back, 0, 1, p.back.SetOffload},
					{back, front, 1, 0, p.front.SetOffload},
				} {
					data, o := large(40_000, v6, 1400)
					head := int(o.HeadersEnd) - 256
					if err := c.set(true); err != nil {
						t.Fatal(err)
					}
					p.send(c.from, p.pools[c.fromPool], data, o)
					b := packet.NewBatch(p.arena.View(), 256)
					for b.Len() == 0 {
						if _, err := c.to.Rx(1, b); err != nil {
							t.Fatal(err)
						}
					}
					got := p.arena.Gather(nil, b.D, 1<<20)
					if !bytes.Equal(got, data) || !b.D[0].Flags.Has(packet.FlagOffload) || packet.Chain(b.D) != b.Len() {
						t.Errorf("%d bytes in %d descriptors", len(got), b.Len())
					}
					if have := p.arena.Offload(&b.D[0]); have != *o {
						t.Errorf("%+v, want %+v", have, *o)
					}
					p.pools[c.toPool].PutBatch(b)

					if err := c.set(false); err != nil {
						t.Fatal(err)
					}
					p.send(c.from, p.pools[c.fromPool], data, o)
					var all []byte
					for i, s := range p.receive(c.to, p.pools[c.toPool], packet.Segments(40_000, 1400)) {
						l4 := head - 20
						h := wire.TCP(s[l4:])
						if last := len(all)+len(payloadOf(t, s)) == 40_000; h.Seq() != uint32(9+len(all)) || (h.Flags()&(wire.FlagFIN|wire.FlagPSH) != 0) != last {
							t.Errorf("segment %d: sequence %d, flags %#x", i, h.Seq(), h.Flags())
						}
						if !v6 && (!wire.IPv4(s[14:]).ValidHeader() || wire.IPv4(s[14:]).ID() != uint16(7+i)) {
							t.Errorf("segment %d: ID %d", i, wire.IPv4(s[14:]).ID())
						}
						all = append(all, payloadOf(t, s)...)
					}
					if !bytes.Equal(all, data[head:]) {
						t.Error("the payload differs")
					}

					small, o := large(1001, v6, 0)
					p.send(c.from, p.pools[c.fromPool], small, o)
					if got := p.receive(c.to, p.pools[c.toPool], 1)[0]; !bytes.Equal(payloadOf(t, got), small[head:]) {
						t.Error("the payload of one segment differs")
					}
				}
			})
		}
	}
}
