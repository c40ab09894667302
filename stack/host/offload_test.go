package host

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// passer is a device that takes large packets and receives them as it has sent them: what Linux does
// between two virtual interfaces. It fills in no checksum.
type passer struct {
	pmd.Driver
	t     testing.TB
	large map[uint32]bool // first frames of large packets on their way, of both ends
	seen  *seen
	id    uint16 // identification that the next IPv4 packet has at least, with known
	known bool

	offered []offer // large IPv4 packets of this Tx
}

// offer is a large packet: its place, its identification, and how many segments it stands for.
type offer struct {
	at       int
	id       uint16
	segments int
}

// seen is what passed.
type seen struct{ large, segments, small int }

func (p *passer) Info() pmd.Info {
	i := p.Driver.Info()
	i.Caps |= pmd.CapOffload
	return i
}

func (p *passer) Tx(now clock.Time, b *packet.Batch) (int, error) {
	p.offered = p.offered[:0]
	for i := 0; i < len(b.D); i += packet.Chain(b.D[i:]) {
		if d := &b.D[i]; d.Flags.Has(packet.FlagOffload) {
			p.check(b, i)
			p.large[d.Off] = true
		} else {
			p.seen.small++
		}
	}
	n, err := p.Driver.Tx(now, b)
	for _, o := range p.offered {
		if o.at < n {
			p.identify(o.id, o.segments)
		}
	}
	return n, err
}

func (p *passer) Rx(now clock.Time, b *packet.Batch) (int, error) {
	first := len(b.D)
	n, err := p.Driver.Rx(now, b)
	for i := first; i < len(b.D); i++ {
		if d := &b.D[i]; p.large[d.Off] {
			delete(p.large, d.Off)
			d.Flags |= packet.FlagOffload
		}
	}
	return n, err
}

// check does what a device does with a large packet, and judges the segments that it gets.
func (p *passer) check(b *packet.Batch, i int) {
	n := packet.Chain(b.D[i:])
	var whole []byte
	for k := range n {
		whole = append(whole, b.Bytes(i+k)...)
	}
	o, start := b.Arena.Offload(&b.D[i]), b.Arena.Headroom(&b.D[i])
	from, head := int(o.ChecksumFrom)-start, int(o.HeadersEnd)-start
	p.seen.large++
	if q := wire.IPv4(whole[wire.EthernetLen:]); wire.Version(q) == 4 {
		n := 1
		if o.GSO != 0 {
			n = (len(whole) - head + int(o.SegmentSize) - 1) / int(o.SegmentSize)
		}
		p.offered = append(p.offered, offer{i, q.ID(), n})
	}
	for at := 0; at == 0 || at < len(whole)-head; {
		size := len(whole) - head - at
		if o.GSO != 0 {
			size = min(size, int(o.SegmentSize))
		}
		seg := append(bytes.Clone(whole[:head]), whole[head+at:head+at+size]...)
		p.segment(seg, from, int(o.ChecksumAt), at, len(whole)-head)
		p.seen.segments++
		at += max(size, 1)
	}
}

// identify sees to it that the segments of a large packet, which count on from its identification, have none of others.
func (p *passer) identify(id uint16, segments int) {
	if p.known && int16(id-p.id) < 0 {
		p.t.Errorf("identification %d comes again, the next is %d", id, p.id)
	}
	p.id, p.known = id+uint16(max(segments, 1)), true
}

// segment completes one segment, as a device does, and looks at it.
func (p *passer) segment(seg []byte, from, at, off, total int) {
	ip := seg[wire.EthernetLen:]
	t := wire.TCP(seg[from:])
	claimed := ^t.Checksum() // sum of the pseudo header with the whole length, as its complement
	var pseudo uint32
	if wire.Version(ip) == 4 {
		q := wire.IPv4(ip)
		if q.TotalLen() != uint16(len(ip)-(len(seg)-from-t.DataOffset())+total) && total > 0 {
			p.t.Errorf("the IP length is %d of %d", q.TotalLen(), total)
		}
		if !q.ChecksumOK() {
			p.t.Error("the IP header's checksum is wrong")
		}
		pseudo = wire.PseudoHeader4(q.Src(), q.Dst(), wire.ProtoTCP, uint32(t.DataOffset()+total))
	} else {
		q := wire.IPv6(ip)
		pseudo = wire.PseudoHeader6(q.Src(), q.Dst(), wire.ProtoTCP, uint32(t.DataOffset()+total))
	}
	if want := wire.Fold(pseudo); claimed != want || at != 16 {
		p.t.Errorf("the checksum field has %04x, want %04x, at %d", ^claimed, ^want, at)
	}
	if n := len(t) - t.DataOffset(); n > 1460 {
		p.t.Errorf("a segment of %d bytes", n)
	}
}

func TestDevicesSegmentSupportedSegments(t *testing.T) {
	for _, c := range []struct {
		what string
		o    tcp.Outgoing
		want bool
	}{
		{"plain", tcp.Outgoing{}, true},
		{"the first has CWR", tcp.Outgoing{Header: wire.TCPHeader{Flags: wire.FlagCWR}}, true},
		{"ACE without CWR", tcp.Outgoing{ACE: true, AE: true, Header: wire.TCPHeader{Flags: wire.FlagECE}}, true},
		{"ACE with CWR", tcp.Outgoing{ACE: true, Header: wire.TCPHeader{Flags: wire.FlagCWR}}, false},
		{"signed", tcp.Outgoing{Sign: func(wire.TCP) {}}, false},
	} {
		c.o.SegmentSize, c.o.Payload[0] = 1460, make([]byte, 1460)
		if deviceSegments(&c.o) {
			t.Errorf("%s, one segment: not false", c.what)
		}
		c.o.Payload[1] = make([]byte, 1)
		if deviceSegments(&c.o) != c.want {
			t.Errorf("%s: not %v", c.what, c.want)
		}
	}
}

func TestLargePacketsPassBetweenDevices(t *testing.T) {
	for _, frameSize := range []int{2048, 65536} {
		var saw seen
		large := map[uint32]bool{}
		s := setting{frameSize: frameSize, frames: 1024}
		s.wrap = func(d pmd.Driver) pmd.Driver { return &passer{Driver: d, t: t, large: large, seen: &saw} }
		s.both = true
		w := newWorld(t, s)
		w.exchange(text(2<<20, 9), 20*time.Second)
		a, b := w.settle()
		for _, s := range []uint64{a.TotalDropped() - unsolicited(&a), b.TotalDropped() - unsolicited(&b)} {
			if s != 0 {
				t.Errorf("%d lost: %+v %+v", s, a, b)
			}
		}
		if saw.large == 0 || saw.segments < 3*saw.large || len(large) != 0 {
			t.Errorf("frames of %d: %+v: the test shows little", frameSize, saw)
		}
	}
}
