package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/packet"
)

// A connection in each address family, protocol and mode goes to a backend and back, and gopacket
// finds every address, port, length and checksum right.
func TestPacketsAreRewrittenBothWays(t *testing.T) {
	for _, source := range []string{"gateway", "client"} {
		for _, c := range []struct{ name, src, dst, flags, answer string }{
			{"TCP over IPv4", "198.18.0.9:40000", "198.18.1.1:80", "S", "SA"},
			{"TCP over IPv6", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", "SA"},
			{"UDP over IPv4", "198.18.0.9:40000", "198.18.1.1:53", "", ""},
			{"UDP over IPv6", "[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", ""},
		} {
			t.Run(c.name+", source "+source, func(t *testing.T) {
				w := newWorld(t, fill("source: "+source))
				rewrittenBothWays(w, client(c.src, c.dst, c.flags), c.answer, source == "client")
			})
		}
	}
}

func rewrittenBothWays(w *world, s seg, flags string, transparent bool) {
	out := w.expect(0, s.bytes(), 1)
	w.checksumsRight(out)
	got := flowOf(out)
	if [6]byte(got.srcMAC) != macGw1 || [6]byte(got.dstMAC) != macBackend || got.ttl != 63 || got.payload != s.payload {
		w.t.Errorf("to the backend: %+v", got)
	}
	if back := got.dst.Addr().String(); back[len(back)-2] != '1' || got.dst.Port()%8080 != 5353%8080 && got.dst.Port() != 8080 {
		w.t.Errorf("not a backend: %v", got.dst)
	}
	if transparent && got.src != s.src {
		w.t.Errorf("the backend sees %v, want the client %v", got.src, s.src)
	}
	if snat := netip.MustParseAddr("198.18.2.1"); !transparent && got.src.Addr() != snat && got.src.Addr() != netip.MustParseAddr("2001:db8:2::1") {
		w.t.Errorf("the backend sees %v, want an SNAT address", got.src)
	}

	reply := answer(out, flags)
	in := w.expect(1, reply.bytes(), 0)
	w.checksumsRight(in)
	got = flowOf(in)
	if got.src != s.dst || got.dst != s.src || [6]byte(got.srcMAC) != macGw0 || [6]byte(got.dstMAC) != macClient || got.ttl != 63 || got.payload != reply.payload {
		w.t.Errorf("to the client: %+v", got)
	}
}

// What the gateway does to a packet, the way back undoes: rewriting there and back, with ends
// swapped between, gives the bytes of before but for the TTL.
func TestThereAndBackIsTheSamePacket(t *testing.T) {
	for i := range 200 {
		w := newWorld(t, fill(""))
		s := client(fmt.Sprintf("198.18.0.%d:%d", i+1, 1024+i*317), "198.18.1.1:53", "")
		s.payload = string(bytes.Repeat([]byte{byte(i)}, i))
		out := w.expect(0, s.bytes(), 1)
		reply := answer(out, "")
		reply.payload = s.payload
		got := w.expect(1, reply.bytes(), 0)
		want := seg{src: s.dst, dst: s.src, payload: s.payload, ttl: 63, from: macGw0, to: macClient}.bytes()
		if !bytes.Equal(got, want) {
			t.Fatalf("got\n%x\nwant\n%x", got, want)
		}
	}
}

// RFC 1624 keeps a wrong checksum wrong, by the same difference: the receiver still finds out.
func TestAWrongChecksumStaysWrong(t *testing.T) {
	for _, c := range []struct {
		name, src, dst, flags string
		at                    int // of the checksum
	}{
		{"TCP over IPv4", "198.18.0.9:40000", "198.18.1.1:80", "S", 34 + 16},
		{"TCP over IPv6", "[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S", 54 + 16},
		{"UDP over IPv4", "198.18.0.9:40000", "198.18.1.1:53", "", 34 + 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fill(""))
			p := client(c.src, c.dst, c.flags).bytes()
			p[len(p)-1] ^= 0x40
			out := w.expect(0, p, 1)
			right := recomputed(out)
			out[len(out)-1] ^= 0x40 // undo the damage: now the checksum must be right
			if bytes.Equal(out, right) || !bytes.Equal(out, recomputed(out)) {
				t.Error("the checksum was computed anew")
			}

			strict := newWorld(t, "checksum: drop\n"+fill(""))
			strict.refused(0, p, packet.DropL4Checksum)
		})
	}
}

func TestAUDPDatagramWithoutChecksumKeepsNone(t *testing.T) {
	w := newWorld(t, "checksum: drop\n"+fill(""))
	p := client("198.18.0.9:40000", "198.18.1.1:53", "").bytes()
	binary.BigEndian.PutUint16(p[34+6:], 0)
	out := w.expect(0, p, 1)
	if c := binary.BigEndian.Uint16(out[34+6:]); c != 0 {
		t.Errorf("checksum %#x, want none (RFC 768)", c)
	}
}

// A computed UDP checksum of zero is sent as 0xffff (RFC 768): search the payload that makes one.
func TestAUDPChecksumOfZeroIsSentAsOnes(t *testing.T) {
	w := newWorld(t, fill(""))
	seen := false
	for i := range 1 << 16 {
		s := client("198.18.0.9:40000", "198.18.1.1:53", "")
		s.payload = string([]byte{byte(i >> 8), byte(i)})
		p := s.bytes()
		b := w.batch(0, p)
		w.run(b)
		out := b.Bytes(0)
		c := binary.BigEndian.Uint16(out[34+6:])
		if c == 0 {
			t.Fatalf("payload %04x: checksum 0 says that there is none", i)
		}
		if c == 0xffff {
			w.checksumsRight(out)
			seen = true
		}
	}
	if !seen {
		t.Error("no payload made the case")
	}
}

// Trailing bytes behind the IP packet, as Ethernet's padding, neither disturb nor vanish.
func TestPaddingIsKept(t *testing.T) {
	w := newWorld(t, fill(""))
	s := client("198.18.0.9:40000", "198.18.1.1:53", "")
	s.payload = "x"
	p := append(s.bytes(), make([]byte, 17)...)
	out := w.expect(0, p, 1)
	if len(out) != len(p) {
		t.Errorf("%d bytes, want %d", len(out), len(p))
	}
	w.checksumsRight(out[:len(p)-17])
}
