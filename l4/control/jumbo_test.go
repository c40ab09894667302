package control

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/packet"
)

// inFrames is chain with frames of size bytes each.
func (w *world) inFrames(p []byte, size int) *packet.Batch {
	var cuts []int
	for at := size; at < len(p); at += size {
		cuts = append(cuts, at)
	}
	b := w.chain(p, cuts...)
	w.run(b)
	return b
}

// A jumbo frame spans several descriptors. Whoever sent it is answered all the same, by one packet, and the
// frames that the answer does not need are released.
func TestPacketsOfSeveralFramesAreAnswered(t *testing.T) {
	for _, c := range []struct {
		name, src, dst, flags string
		ttl                   uint8
		is                    string
	}{
		{"too big", host, "198.18.1.1:82", "A", 64, "3/4"},
		{"too big", "[2001:db8::9]:40000", "[2001:db8:1::1]:82", "A", 64, "2/0"},
		{"unreachable", host, dns, "", 64, "3/3"},
		{"unreachable", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", 64, "1/4"},
		{"time exceeded", host, dns, "", 1, "11/0"},
		{"time exceeded", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", 1, "3/0"},
		{"reset", host, web, "S", 64, "RST"},
		{"reset", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", 64, "RST"},
	} {
		for _, size := range []int{700, 1408, 1700} {
			w := newWorld(t, fmt.Sprintf(limitConfig, "reject"))
			if c.flags != "" {
				w.send(0, client(c.src, c.dst, "S").bytes())
			}
			s := client(c.src, c.dst, c.flags)
			s.payload, s.ttl = strings.Repeat("jumbo", 1700), c.ttl
			in := s.bytes()
			b := w.inFrames(in, size)
			last := len(b.D) - 1
			for i := 2; i < last; i++ {
				if d := b.D[i]; d.Verdict != packet.Release || d.Flags.Has(packet.FlagMore) {
					t.Fatalf("%s %s, frames of %d: descriptor %d is %v", c.name, c.src, size, i, d.Verdict)
				}
			}
			if d := b.D[1]; d.Verdict != packet.Forward || d.Port != 0 || d.Flags.Has(packet.FlagMore) {
				t.Fatalf("%s %s, frames of %d: %v to port %d", c.name, c.src, size, d.Verdict, d.Port)
			}
			if b.D[0].Verdict == packet.Release || b.D[last].Verdict == packet.Release {
				t.Fatalf("%s: the packets around it are %v and %v", c.name, b.D[0].Verdict, b.D[last].Verdict)
			}
			out := bytes.Clone(b.Bytes(1))
			if c.is == "RST" {
				w.checksumsRight(out)
				tcp := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
				if !tcp.RST {
					t.Errorf("%+v", tcp)
				}
				continue
			}
			got := readError(t, out)
			most := 576 - 28
			if in[14]>>4 == 6 {
				most = 1280 - 48
			}
			most = min(most, size-14)
			if is := fmt.Sprintf("%d/%d", got.kind, got.code); is != c.is || !bytes.Equal(got.quoted[14:], in[14:14+most]) {
				t.Errorf("%s %s, frames of %d: %s, quotes %d bytes", c.name, c.src, size, is, len(got.quoted)-14)
			}
		}
	}
}

// What is dropped keeps its descriptors: the loop counts one packet.
func TestPacketsOfSeveralFramesAreDroppedWhole(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(limitConfig, "drop"))
	s := client(host, dns, "")
	s.payload = strings.Repeat("jumbo", 1700)
	b := w.inFrames(s.bytes(), 1700)
	for i := 1; i < len(b.D)-1; i++ {
		if d := b.D[i]; d.Verdict != packet.DropNoBackend || d.Flags.Has(packet.FlagMore) != (i < len(b.D)-2) {
			t.Errorf("descriptor %d: %v", i, d.Verdict)
		}
	}
}
