package tcp

import (
	"bytes"
	"math/rand/v2"
	stdnet "net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/wire"
)

var cutTuple = wire.Tuple{
	Local: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, 0, 2}),
	LocalPort: 49152, RemotePort: 80,
}

func cutPseudo(n int) uint32 {
	return wire.PseudoHeader4(cutTuple.Local.As4(), cutTuple.Remote.As4(), wire.ProtoTCP, uint32(n))
}

// cutAll cuts o by Cut.
func cutAll(o *Outgoing) (all []wire.TCP) {
	var c Segmenter
	for c.Begin(o, cutPseudo(0)); c.Size() > 0; {
		b := make([]byte, c.Size()+3)
		n := c.Next(b)
		all = append(all, b[:n])
	}
	return all
}

// cutPlainly is the slow obvious form of cutAll: it makes each segment from nothing.
func cutPlainly(o *Outgoing) (all []wire.TCP) {
	data := append(bytes.Clone(o.Payload[0]), o.Payload[1]...)
	for at := 0; at == 0 || at < len(data); {
		n := len(data) - at
		if o.SegmentSize > 0 && n > o.SegmentSize {
			n = o.SegmentSize
		}
		h := o.Header
		h.Seq += uint32(at)
		if at > 0 && !o.ACE {
			h.Flags &^= wire.FlagCWR
		}
		if at+n < len(data) {
			h.Flags &^= wire.FlagFIN | wire.FlagPSH
		}
		if h.Flags.Has(wire.FlagURG) && int(h.Urgent) > at {
			h.Urgent -= uint16(at)
		} else if at > 0 || !h.Flags.Has(wire.FlagURG) {
			h.Flags &^= wire.FlagURG
			h.Urgent = 0
		}
		seg := wire.TCP(wire.AppendTCP(nil, &h))
		seg.SetAE(o.AE)
		seg = append(seg, data[at:at+n]...)
		if o.Sign != nil {
			o.Sign(seg)
		}
		seg.SetChecksum(0)
		seg.SetChecksum(wire.Fold(wire.SumPlain(seg, cutPseudo(len(seg)))))
		all = append(all, seg)
		at += max(n, 1)
	}
	return all
}

// randomOutgoing makes an Outgoing from a seed.
func randomOutgoing(r *rand.Rand) *Outgoing {
	text := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	size := 1 + r.IntN(1460)
	first, second := r.IntN(6*size), r.IntN(6*size)
	if r.IntN(4) == 0 {
		first = 0
	}
	if r.IntN(4) == 0 {
		second = 0
	}
	o := &Outgoing{Tuple: &cutTuple, AE: r.IntN(4) == 0, SegmentSize: size, Payload: [2][]byte{text(first), text(second)}}
	o.Header = wire.TCPHeader{
		SrcPort: cutTuple.LocalPort, DstPort: cutTuple.RemotePort, Seq: r.Uint32(), Ack: r.Uint32(), Window: uint16(r.Uint32()),
		Flags: wire.FlagACK | wire.TCPFlags(r.Uint32())&(wire.FlagPSH|wire.FlagFIN|wire.FlagCWR|wire.FlagECE|wire.FlagURG),
	}
	if o.Header.Flags.Has(wire.FlagURG) {
		o.Header.Urgent = uint16(r.IntN(first + second + 2))
	}
	switch r.IntN(3) {
	case 0:
		o.Header.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), r.Uint32(), r.Uint32())
	case 1:
		o.Header.Options = text(r.IntN(wire.TCPMaxOptions + 1))
	}
	o.ACE = r.IntN(4) == 0
	if r.IntN(8) == 0 {
		o.SegmentSize = 0
	}
	return o
}

func TestSegmenterMatchesTheReference(t *testing.T) {
	for seed := range uint64(3000) {
		o := randomOutgoing(rand.New(rand.NewPCG(seed, 1)))
		if seed%7 == 0 {
			o.Sign = func(seg wire.TCP) { seg[len(seg)-1] ^= byte(len(seg)) }
		}
		compareCuts(t, seed, o)
	}
}

func compareCuts(t *testing.T, seed uint64, o *Outgoing) {
	t.Helper()
	got, want := cutAll(o), cutPlainly(o)
	if len(got) != len(want) || o.Segments() != len(want) {
		t.Fatalf("seed %d: %d segments, foretold %d, want %d", seed, len(got), o.Segments(), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("seed %d: segment %d of %d\n%x\nwant\n%x", seed, i, len(want), got[i], want[i])
		}
		if n := len(got[i]) - got[i].DataOffset(); o.SegmentSize > 0 && n > o.SegmentSize {
			t.Fatalf("seed %d: segment %d has %d bytes, more than %d", seed, i, n, o.SegmentSize)
		}
	}
}

// TestSegmentsAreValidForGopacket has gopacket decode segments and compute their checksums.
func TestSegmentsAreValidForGopacket(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := randomOutgoing(r)
		o.Header.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), 1, 2)
		var data []byte
		for i, seg := range cutAll(o) {
			l4, ok := gopacket.NewPacket(seg, layers.LayerTypeTCP, gopacket.Default).TransportLayer().(*layers.TCP)
			if !ok {
				t.Fatalf("seed %d: segment %d is not TCP", seed, i)
			}
			network := &layers.IPv4{SrcIP: stdnet.IP{198, 18, 0, 1}, DstIP: stdnet.IP{198, 18, 0, 2}, Protocol: layers.IPProtocolTCP}
			if err := l4.SetNetworkLayerForChecksum(network); err != nil {
				t.Fatal(err)
			}
			if rest, err := l4.ComputeChecksum(); err != nil || rest != 0 { // with the field's own value
				t.Fatalf("seed %d: segment %d has checksum %04x, which leaves %04x (%v)", seed, i, l4.Checksum, rest, err)
			}
			if want := o.Header.Seq + uint32(len(data)); l4.Seq != want {
				t.Fatalf("seed %d: segment %d has number %d, want %d", seed, i, l4.Seq, want)
			}
			data = append(data, l4.Payload...)
		}
		if want := append(bytes.Clone(o.Payload[0]), o.Payload[1]...); !bytes.Equal(data, want) {
			t.Fatalf("seed %d: the payload is another", seed)
		}
	}
}

func TestTSOSegmentIsAsDevicesExpect(t *testing.T) {
	for seed := range uint64(300) {
		o := randomOutgoing(rand.New(rand.NewPCG(seed, 3)))
		o.Header.Flags &^= wire.FlagURG
		o.Header.Urgent = 0
		var c Segmenter
		c.Begin(o, cutPseudo(0))
		b := make([]byte, 64<<10)
		head := c.WriteTSO(b)
		n, total := 0, len(o.Payload[0])+len(o.Payload[1])
		for n < total { // in pieces, as frames are
			n += c.Payload(b[head+n:min(len(b), head+n+700)], n)
		}
		if c.Size() != 0 || c.Payload(b, total) != 0 {
			t.Fatal("there is more")
		}
		seg := wire.TCP(b[:head+n])
		// What a device does: sum from the header on over what lies there, the pseudo header's sum too.
		seg.SetChecksum(wire.Fold(wire.Sum(seg, 0)))
		whole := *o
		whole.SegmentSize = 0
		if want := cutPlainly(&whole)[0]; !bytes.Equal(seg, want) {
			t.Fatalf("seed %d\n%x\nwant\n%x", seed, seg[:head], want[:head])
		}
	}
}

// FuzzCutAndMerge cuts, and merges what was cut: what went in must come out.
func FuzzCutAndMerge(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, uint16(0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, ecn uint16) {
		o := randomOutgoing(rand.New(rand.NewPCG(seed, 4)))
		compareCuts(t, seed, o)
		want := append(bytes.Clone(o.Payload[0]), o.Payload[1]...)
		var got []byte
		packets := 0
		for _, s := range mergeAll(cutAll(o), wire.ECN(ecn&3)) {
			if s.Seq != o.Header.Seq+uint32(len(got)) {
				t.Fatalf("seed %d: number %d after %d bytes", seed, s.Seq-o.Header.Seq, len(got))
			}
			for _, p := range s.Payload {
				got = append(got, p...)
			}
			packets += int(s.Packets)
		}
		if !bytes.Equal(got, want) || packets != o.Segments() {
			t.Fatalf("seed %d: %d bytes of %d segments, want %d of %d", seed, len(got), packets, len(want), o.Segments())
		}
	})
}
