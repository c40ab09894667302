package ip

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// cut makes fragments of one datagram as they lie on the wire: the parts are given as offset, end.
type part struct {
	off, end int
	more     bool
	data     []byte // instead of the datagram's
}

// fragmentFrame makes the frame of one fragment of payload from x to a.
func fragmentFrame(a, x *station, c struct{ name, a, b, bits string }, proto uint8, id uint32, payload []byte, p part) []byte {
	data := p.data
	if data == nil {
		data = payload[p.off:p.end]
	}
	h := Header{Src: addr(c.b), Dst: addr(c.a), Proto: proto, ID: uint16(id)}
	if c.name == "IPv4" {
		f := ipFrame(a, x, &h, data)
		q := wire.IPv4(f[14:])
		q.SetFragmentOffset(p.off)
		q.SetMoreFragments(p.more)
		q.FillChecksum()
		return f
	}
	h.Proto = wire.ProtoFragment
	m := byte(0)
	if p.more {
		m = 1
	}
	ext := []byte{proto, 0, byte(p.off >> 8), byte(p.off)&^7 | m, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
	return ipFrame(a, x, &h, append(ext, data...))
}

// whole returns a UDP datagram of n bytes from c.b to c.a.
func whole(c struct{ name, a, b, bits string }, n int) []byte {
	h := Header{Src: addr(c.b), Dst: addr(c.a)}
	b := udpTo(&h, n-8)
	for i := 8; i < n; i++ {
		b[i] = byte(i >> 3)
	}
	wire.UDP(b).SetChecksum(0)
	wire.UDP(b).FillChecksum(pseudo(&h, n))
	return b
}

// reference is reassembly as one would explain it: a byte array, and for each byte whether it has come.
// Fragments that cover a byte twice, but for exact copies, spoil the datagram, as do two different ends.
type reference struct {
	data    [65536]byte
	have    [65536]bool
	parts   map[[2]int]bool
	end     int
	last    int
	spoiled bool
}

func (o *reference) add(p part, data []byte) (complete bool) {
	k := [2]int{p.off, p.off + len(data)}
	if o.parts[k] && bytes.Equal(o.data[k[0]:k[1]], data) && (p.more == (o.end != k[1])) || o.spoiled {
		return false
	}
	for i := k[0]; i < k[1]; i++ {
		o.spoiled = o.spoiled || o.have[i]
	}
	o.last = max(o.last, k[1])
	if !p.more {
		o.spoiled = o.spoiled || o.end >= 0 && o.end != k[1]
		o.end = k[1]
	}
	if o.spoiled = o.spoiled || o.end >= 0 && o.last > o.end; o.spoiled {
		return false
	}
	o.parts[k] = true
	copy(o.data[k[0]:], data)
	for i := k[0]; i < k[1]; i++ {
		o.have[i] = true
	}
	if o.end < 0 {
		return false
	}
	for i := range o.end {
		if !o.have[i] {
			return false
		}
	}
	return true
}

// Random fragments, in any order, with copies, overlaps and contradictions: the node completes a datagram
// exactly when the reference does, with the same bytes.
func TestReassemblyAgainstReference(t *testing.T) {
	for _, c := range pairs {
		_, a, x := meet(t, c, nil)
		a.Serve(253, true)
		completed, spoiled := 0, 0
		for seed := range uint64(1500) {
			r := rand.New(rand.NewPCG(seed, 3))
			o := &reference{parts: map[[2]int]bool{}, end: -1}
			payload := make([]byte, 8*(3+r.IntN(30))+r.IntN(8))
			for i := range payload {
				payload[i] = byte(r.Uint32())
			}
			var parts []part
			for off := 0; off < len(payload); {
				end := min(len(payload), off+8*(1+r.IntN(6)))
				parts = append(parts, part{off: off, end: end, more: end < len(payload)})
				off = end
			}
			if len(parts) < 2 {
				continue
			}
			for range r.IntN(3) {
				p := parts[r.IntN(len(parts))]
				switch r.IntN(4) {
				case 0: // moved
					p.off, p.end = max(0, p.off-8), max(8, p.end-8)
				case 1: // other bytes
					p.data = bytes.Clone(payload[p.off:p.end])
					p.data[0] ^= 1
				case 2:
					p.more = !p.more
				}
				p.more = p.more || p.off == 0 // else it is a whole packet
				if len(payload[p.off:p.end])%8 == 0 || !p.more {
					parts = append(parts, p)
				}
			}
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			for i, p := range parts {
				data := p.data
				if data == nil {
					data = payload[p.off:p.end]
				}
				want := o.add(p, data)
				a.got, a.gotBytes = nil, nil
				v := a.feed(0, fragmentFrame(a, x, c, 253, uint32(seed)+1, payload, p))
				if want != (v == packet.Undecided) {
					t.Fatalf("%s seed %d, fragment %d %+v of %v: %v, want complete %v", c.name, seed, i, p, parts, v, want)
				}
				if want {
					completed++
					if !bytes.Equal(a.gotBytes[0], o.data[:o.end]) {
						t.Fatalf("%s seed %d: wrong bytes", c.name, seed)
					}
					break
				}
			}
			if o.spoiled {
				spoiled++
			}
			a.lan.after(2 * time.Minute) // forgets the rest
		}
		if completed < 500 || spoiled < 200 {
			t.Errorf("%s: %d completed, %d spoiled: the test is too weak", c.name, completed, spoiled)
		}
		if s := a.Stats(); s.FragmentMem != 0 || s.Reassemblies != 0 || s.Reassembled != uint64(completed) {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// RFC 791, RFC 8200 4.5: a fragment that no sender makes is dropped at once.
func TestBadFragments(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		b := whole(c, 64)
		for name, p := range map[string]part{
			"length not of eight": {off: 0, end: 13, more: true},
			"beyond the largest":  {off: 65528, data: make([]byte, 64)},
			"empty":               {off: 8, data: []byte{}},
		} {
			if v := a.feed(0, fragmentFrame(a, x, c, wire.ProtoUDP, 9, b, p)); v != packet.DropReassembly {
				t.Errorf("%s %s: %v", c.name, name, v)
			}
		}
		l.settle()
		if want := map[string]int{"IPv4": 0, "IPv6": 2}[c.name]; len(x.inbox) != want {
			t.Errorf("%s: %d errors, want %d", c.name, len(x.inbox), want)
		}
		if a.Stats().FragmentMem != 0 {
			t.Errorf("%s: %d bytes held", c.name, a.Stats().FragmentMem)
		}
	}
	// RFC 7112: the first fragment has all headers.
	l, a, x := meet(t, pairs[1], nil)
	f := fragmentFrame(a, x, pairs[1], wire.ProtoTCP, 9, make([]byte, 64), part{off: 0, end: 16, more: true})
	if v := a.feed(0, f); v != packet.DropMalformed {
		t.Errorf("a first fragment without the TCP header: %v", v)
	}
	var g Datagram // an engine that looks less closely
	if v := a.Input(l.now, 0, f, &packet.Desc{L3: 14, Flags: packet.FlagIPv6 | packet.FlagFragment}, &g); v != packet.DropReassembly {
		t.Errorf("a first fragment without the TCP header: %v", v)
	}
	l.settle()
	if len(x.inbox) != 1 || x.inbox[0][55] != 3 {
		t.Error("no Time Exceeded")
	}
}

// RFC 5722: once fragments overlap, what else comes of the datagram is dropped, until its time is over.
func TestOverlapDropsDatagram(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meet(t, c, nil)
		b := whole(c, 64)
		feed := func(off, end int) packet.Verdict {
			return a.feed(0, fragmentFrame(a, x, c, wire.ProtoUDP, 9, b, part{off: off, end: end, more: end < 64}))
		}
		want := []packet.Verdict{packet.Deliver, packet.DropReassembly, packet.DropReassembly, packet.DropReassembly}
		for i, p := range [][2]int{{0, 32}, {24, 48}, {32, 64}, {0, 32}} {
			if v := feed(p[0], p[1]); v != want[i] {
				t.Errorf("%s %v: %v", c.name, p, v)
			}
		}
		if s := a.Stats(); s.Drops[packet.DropReassembly] != 1 { // that which was kept
			t.Errorf("%s: %d drops", c.name, s.Drops[packet.DropReassembly])
		}
		l.after(61 * time.Second)
		if len(x.inbox) != 0 {
			t.Errorf("%s: Time Exceeded was sent", c.name)
		}
		if feed(0, 32) != packet.Deliver || feed(32, 64) != packet.Undecided {
			t.Errorf("%s: the identification is spoiled for ever", c.name)
		}
	}
}

// RFC 792, RFC 8200 4.5: when the time is over Time Exceeded is sent, if the first fragment had come.
func TestReassemblyTime(t *testing.T) {
	for _, c := range pairs {
		for _, first := range []bool{true, false} {
			l, a, x := meet(t, c, nil)
			b := whole(c, 64)
			p := part{off: 0, end: 32, more: true}
			if !first {
				p = part{off: 32, end: 64}
			}
			a.feed(0, fragmentFrame(a, x, c, wire.ProtoUDP, 9, b, p))
			age := map[string]time.Duration{"IPv4": reassembly4, "IPv6": reassembly6}[c.name]
			l.after(age - time.Second)
			if a.Stats().Reassemblies != 1 {
				t.Errorf("%s: gone too early", c.name)
			}
			l.after(2 * time.Second)
			if s := a.Stats(); s.Reassemblies != 0 || s.FragmentMem != 0 || s.Drops[packet.DropReassembly] != 1 {
				t.Errorf("%s: %+v", c.name, s)
			}
			if (len(x.inbox) == 1) != first {
				t.Fatalf("%s, first %v: %d errors", c.name, first, len(x.inbox))
			}
			if first {
				f := x.inbox[0]
				typ, code := f[34], f[35]
				if c.name == "IPv6" {
					typ, code = f[54], f[55]
				}
				if code != 1 || typ != map[string]byte{"IPv4": 11, "IPv6": 3}[c.name] {
					t.Errorf("%s: type %d, code %d", c.name, typ, code)
				}
			}
		}
	}
}

// RFC 3168 5.3: a fragment with congestion marks the whole; mixed with one that cannot be marked, it is
// dropped.
func TestReassemblyECN(t *testing.T) {
	for _, c := range pairs {
		for _, k := range []struct {
			a, b byte
			want int // -1 drop
		}{{2, 2, 2}, {2, 3, 3}, {3, 1, 3}, {0, 0, 0}, {0, 3, -1}, {1, 1, 1}} {
			_, a, x := meet(t, c, nil)
			b := whole(c, 64)
			var v packet.Verdict
			for i, ecn := range []byte{k.a, k.b} {
				f := fragmentFrame(a, x, c, wire.ProtoUDP, 9, b, part{off: 32 * i, end: 32*i + 32, more: i == 0})
				if c.name == "IPv4" {
					wire.IPv4(f[14:]).SetECN(wire.ECN(ecn))
					wire.IPv4(f[14:]).FillChecksum()
				} else {
					wire.IPv6(f[14:]).SetECN(wire.ECN(ecn))
				}
				v = a.feed(0, f)
			}
			if k.want < 0 && v != packet.DropReassembly || k.want >= 0 && (v != packet.Undecided || int(a.got[0].ECN()) != k.want) {
				t.Errorf("%s %v: %v, %+v", c.name, k, v, a.got)
			}
			if a.Stats().FragmentMem != 0 {
				t.Errorf("%s %v: %d bytes held", c.name, k, a.Stats().FragmentMem)
			}
		}
	}
}

// A flood of fragments keeps within the limits, and a host beside it gets its datagrams through.
func TestFragmentBombs(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			_, a, x := meet(t, c, func(cfg *Config) { cfg.MaxFragments, cfg.MaxReassembly = 12_000, 64 })
			b := whole(c, 2000)
			honest := c
			honest.b = map[string]string{"IPv4": "198.18.0.7", "IPv6": "2001:db8::7"}[c.name]
			hb := whole(honest, 2000)
			done := 0
			r := rand.New(rand.NewPCG(5, 5))
			for i := range 20000 {
				off := 8 * r.IntN(100)
				bomb := part{off: off, end: off + 8*(1+r.IntN(100)), more: true}
				if i%3 == 0 {
					bomb = part{off: 65000, data: make([]byte, 8), more: true}
				}
				if bomb.off == 0 && bomb.end < 40 {
					bomb.end = 40
				}
				a.feed(0, fragmentFrame(a, x, c, wire.ProtoUDP, uint32(i/2), b, bomb))
				if i%10 < 2 {
					p := part{off: 0, end: 1000, more: true}
					if i%10 == 1 {
						p = part{off: 1000, end: 2000}
					}
					if a.feed(0, fragmentFrame(a, x, honest, wire.ProtoUDP, uint32(i/10), hb, p)) == packet.Undecided {
						done++
					}
				}
				if s := a.Stats(); s.FragmentMem > 12_000 || s.Reassemblies > 64 {
					t.Fatalf("%d bytes, %d datagrams", s.FragmentMem, s.Reassemblies)
				}
			}
			if done != 2000 {
				t.Errorf("%d of 2000 honest datagrams", done)
			}
			a.lan.after(2 * time.Minute)
			if s := a.Stats(); s.FragmentMem != 0 || s.Reassemblies != 0 || len(a.frags.bySource) != 0 {
				t.Errorf("afterwards %+v", s)
			}
		})
	}
}

// One datagram in very many pieces is not put together.
func TestTooManyPieces(t *testing.T) {
	for _, c := range pairs {
		_, a, x := meet(t, c, nil)
		b := whole(c, 8*(maxPieces+10))
		for i := range maxPieces + 9 {
			off := 8 * (i + 1)
			a.feed(0, fragmentFrame(a, x, c, wire.ProtoUDP, 9, b, part{off: off, end: off + 8, more: off+8 < len(b)}))
		}
		if s := a.Stats(); s.Drops[packet.DropReassembly] != maxPieces || s.FragmentMem != assemblyCost {
			t.Errorf("%s: %d drops, %d bytes", c.name, s.Drops[packet.DropReassembly], s.FragmentMem)
		}
	}
}

// FuzzReassembly makes fragments of its input and compares what is put together with the reference.
func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 4, 1, 4, 4, 0})
	f.Add([]byte{4, 4, 0, 0, 4, 1})
	f.Add([]byte{0, 4, 1, 2, 4, 0, 4, 4, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, c := range pairs {
			_, a, x := meet(t, c, nil)
			a.Serve(253, true)
			o := &reference{parts: map[[2]int]bool{}, end: -1}
			payload := make([]byte, 65536)
			for i := range payload {
				payload[i] = byte(i >> 4)
			}
			for b := in; len(b) >= 3; b = b[3:] {
				p := part{off: 8 * int(b[0]), end: 8*int(b[0]) + 8*(1+int(b[1]%16)), more: b[2]&1 != 0 || b[0] == 0}
				want := o.add(p, payload[p.off:p.end])
				v := a.feed(0, fragmentFrame(a, x, c, 253, 77, payload, p))
				if want != (v == packet.Undecided) {
					t.Fatalf("%s %+v: %v, want complete %v", c.name, p, v, want)
				}
				if want {
					if !bytes.Equal(a.gotBytes[0], o.data[:o.end]) {
						t.Fatalf("%s: wrong bytes", c.name)
					}
					break
				}
			}
		}
	})
}
