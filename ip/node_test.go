package ip

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
)

// pairs are two hosts of one net, by IP version.
var pairs = []struct{ name, a, b, bits string }{
	{"IPv4", "198.18.0.1", "198.18.0.2", "/24"},
	{"IPv6", "2001:db8::1", "2001:db8::2", "/64"},
}

func TestDatagramsAndEchoes(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).give(c.a+c.bits), l.add(2, nil).give(c.b+c.bits)
			if v := a.udp(c.a, c.b, []byte("hello"), nil); v != packet.Forward {
				t.Fatal(v)
			}
			l.settle()
			if len(b.got) != 1 || string(b.gotBytes[0][8:]) != "hello" {
				t.Fatalf("got %q, verdicts %v", b.gotBytes, b.verdicts)
			}
			if g := b.got[0]; g.Src != addr(c.a) || g.Dst != addr(c.b) || g.TTL != 64 || g.Kind != Unicast || g.Packets != 1 {
				t.Errorf("%+v", g)
			}
			data := bytes.Repeat([]byte("abc"), 100)
			a.ping(c.a, c.b, 77, data)
			l.settle()
			if len(a.got) != 1 || !bytes.Equal(a.gotBytes[0][8:], data) || b.Stats().Echoes != 1 {
				t.Fatalf("echo: got %d, %v, %v", len(a.got), a.verdicts, b.verdicts)
			}
		})
	}
}

func TestLoopback(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).give(c.a + c.bits)
		a.udp(c.a, c.a, []byte("self"), nil)
		a.ping(c.a, c.a, 1, nil)
		l.settle()
		if len(a.got) != 2 || a.got[0].Port != LoopPort || a.Stats().Echoes != 1 {
			t.Errorf("%s: %d datagrams, %v", c.name, len(a.got), a.verdicts)
		}
	}
}

func TestUnansweredNeighbour(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).give(c.a + c.bits)
		for i := range 20 {
			if v := a.udp(c.a, c.b, []byte{byte(i)}, nil); v != packet.Forward {
				t.Fatal(v)
			}
		}
		if s := a.Stats(); s.Drops[packet.DropUnresolved] != 4 || s.NeighborMem == 0 {
			t.Errorf("%s: with a full queue %d drops, %d bytes", c.name, s.Drops[packet.DropUnresolved], s.NeighborMem)
		}
		l.after(10 * time.Second)
		if len(a.errors) != 16 || !a.errors[0].Local || a.errors[0].Kind != HostUnreachable {
			t.Fatalf("%s: errors %+v", c.name, a.errors)
		}
		want := Tuple{addr(c.a), addr(c.b), 40001, 40002}
		if a.errors[0].Tuple != want {
			t.Errorf("%s: %+v", c.name, a.errors[0].Tuple)
		}
		if s := a.Stats(); s.Drops[packet.DropUnresolved] != 20 || s.NeighborMem != 0 {
			t.Errorf("%s: at last %d drops, %d bytes", c.name, s.Drops[packet.DropUnresolved], s.NeighborMem)
		}
	}
}

func TestFragments(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a, b := l.add(1, nil).give(c.a+c.bits), l.add(2, nil).give(c.b+c.bits)
		data := make([]byte, 60000)
		for i := range data {
			data[i] = byte(i * 7 >> 3)
		}
		if v := a.udp(c.a, c.b, data, nil); v != packet.Forward {
			t.Fatal(v)
		}
		l.settle()
		// The queue held 16 of the fragments; once the neighbour is known all arrive.
		a.udp(c.a, c.b, data, nil)
		l.settle()
		if len(b.got) != 1 || !bytes.Equal(b.gotBytes[0][8:], data) {
			t.Fatalf("%s: %d datagrams, %v", c.name, len(b.got), b.verdicts)
		}
		if v := a.udp(c.a, c.b, data, func(h *Header) { h.DontFragment = true }); v != packet.DropTooBig {
			t.Errorf("%s: %v", c.name, v)
		}
		a.ping(c.a, c.b, 5, data[:5000])
		l.settle()
		if len(a.got) != 1 || !bytes.Equal(a.gotBytes[0][8:], data[:5000]) {
			t.Fatalf("%s: a large echo: %d datagrams, %v, %v", c.name, len(a.got), a.verdicts, b.verdicts)
		}
	}
}
