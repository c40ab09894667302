package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// covered is a packet with its checksum in the first word: what an update must keep right. The word after
// it is never 0, like the version of a header or the protocol of a pseudo header.
type covered []byte

func (g gen) covered() covered {
	c := covered(g.bytes(2 * (4 + g.IntN(40))))
	if g.IntN(4) == 0 { // near the two zeros
		fill(c, []byte{0x00, 0xff}[g.IntN(2)])
	}
	c[2] |= 1
	c.refill()
	return c
}

func (c covered) refill() {
	c[0], c[1] = 0, 0
	binary.BigEndian.PutUint16(c, Fold(SumPlain(c, 0)))
}

func (c covered) csum() uint16 { return binary.BigEndian.Uint16(c) }

// change overwrites n bytes at an even place behind the first two words, returns old and new, and computes
// the checksum anew.
func (g gen) change(c covered, n int) (old, new []byte) {
	at := 4 + 2*g.IntN((len(c)-4-n)/2+1)
	old, new = bytes.Clone(c[at:at+n]), g.bytes(n)
	if g.IntN(3) == 0 {
		fill(new, []byte{0x00, 0xff}[g.IntN(2)])
	}
	copy(c[at:], new)
	c.refill()
	return old, new
}

func TestIncrementalUpdateIsRecomputation(t *testing.T) {
	g := newGen(50)
	for range 200000 {
		c := g.covered()
		was := c.csum()
		var got uint16
		var how string
		switch g.IntN(5) {
		case 0:
			old, new := g.change(c, 2)
			how, got = "Update16", Update16(was, binary.BigEndian.Uint16(old), binary.BigEndian.Uint16(new))
		case 1:
			old, new := g.change(c, 4)
			how, got = "Update32", Update32(was, a4(old), a4(new))
		case 2:
			if len(c) < 20 {
				continue
			}
			old, new := g.change(c, 16)
			how, got = "Update128", Update128(was, [16]byte(old), [16]byte(new))
		case 3:
			old, new := g.change(c, 2*g.IntN((len(c)-4)/2+1))
			how, got = "UpdateBytes", UpdateBytes(was, old, new)
		case 4:
			old, new := g.change(c, 4)
			old2, new2 := g.change(c, 4)
			how, got = "Apply", Apply(was, AddDiff(Diff32(a4(old), a4(new)), Diff32(a4(old2), a4(new2))))
		}
		if got != c.csum() {
			t.Fatalf("%s of %#04x = %#04x, want %#04x", how, was, got, c.csum())
		}
	}
}

func a4(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func TestUpdate16IsRecomputationForEveryChecksum(t *testing.T) {
	words := []uint16{0, 1, 0x5555, 0x7fff, 0x8000, 0xfffe, 0xffff}
	for first := range 0xffff {
		for _, old := range words {
			for _, new := range words {
				b := binary.BigEndian.AppendUint16(nil, uint16(first+1))
				was := Fold(SumPlain(binary.BigEndian.AppendUint16(b, old), 0))
				want := Fold(SumPlain(binary.BigEndian.AppendUint16(b, new), 0))
				if got := Update16(was, old, new); got != want {
					t.Fatalf("word %#x: Update16(%#04x, %#x, %#x) = %#04x, want %#04x", first+1, was, old, new, got, want)
				}
			}
		}
	}
}

func TestUpdate16ExampleOfRFC1624(t *testing.T) {
	eq(t, "checksum", Update16(0xdd2f, 0x5555, 0x3285), 0)
}

func TestUpdateBytesMayChangeTheLength(t *testing.T) {
	g := newGen(51)
	head, old, new, tail := g.bytes(20), g.bytes(12), g.bytes(20), g.bytes(40)
	was := Fold(SumPlain(slicesConcat(head, old, tail), 0))
	want := Fold(SumPlain(slicesConcat(head, new, tail), 0))
	eq(t, "checksum", UpdateBytes(was, old, new), want)
	eq(t, "checksum", UpdateBytes(was, old, nil), Fold(SumPlain(slicesConcat(head, tail), 0)))
}

func TestUDPWithoutChecksumStaysWithout(t *testing.T) {
	u := UDP(AppendUDP(nil, 1, 2, 0))
	u.Update(0x1234)
	eq(t, "Checksum", u.Checksum(), 0)
}

func TestUDPNeverSendsZeroForAChecksum(t *testing.T) {
	g := newGen(52)
	for range 1 << 17 {
		src, dst, next := g.addr4(), g.addr4(), g.addr4()
		u := UDP(append(AppendUDP(nil, g.u16(), g.u16(), 2), g.bytes(2)...))
		if g.bool() { // make the computed checksum 0
			u.SetChecksum(0)
			binary.BigEndian.PutUint16(u[8:], 0)
			binary.BigEndian.PutUint16(u[8:], Fold(Sum(u, PseudoHeader4(src, dst, ProtoUDP, 10))))
			u.FillChecksum(PseudoHeader4(src, dst, ProtoUDP, 10))
			eq(t, "checksum sent for 0", u.Checksum(), 0xffff)
		}
		u.FillChecksum(PseudoHeader4(src, dst, ProtoUDP, 10))
		eq(t, "ChecksumOK", u.ChecksumOK(PseudoHeader4(src, dst, ProtoUDP, 10)), true)
		if g.IntN(4) == 0 { // or the next one
			binary.BigEndian.PutUint16(next[2:], 0)
			u2 := UDP(bytes.Clone(u))
			u2.SetChecksum(0)
			binary.BigEndian.PutUint16(next[2:], Fold(Sum(u2, PseudoHeader4(src, next, ProtoUDP, 10))))
		}
		u.Update(Diff32(a4(dst[:]), a4(next[:])))
		want := UDP(bytes.Clone(u))
		want.FillChecksum(PseudoHeader4(src, next, ProtoUDP, 10))
		eq(t, "checksum after Update", u.Checksum(), want.Checksum())
	}
	eq(t, "ChecksumOK of none", UDP(AppendUDP(nil, 1, 2, 0)).ChecksumOK(0), false)
}

func TestDecrementTTLKeepsTheChecksum(t *testing.T) {
	g := newGen(53)
	for range 1 << 16 {
		ip := IPv4(AppendIPv4(nil, &IPv4Header{Src: g.addr4(), Dst: g.addr4(), Proto: g.u8(), TTL: 1 + g.u8()%255, ID: g.u16()}))
		ttl := ip.TTL()
		ip.DecrementTTL()
		eq(t, "TTL", ip.TTL(), ttl-1)
		got := ip.Checksum()
		ip.FillChecksum()
		eq(t, "Checksum", got, ip.Checksum())
	}
}

func FuzzUpdateBytes(f *testing.F) {
	f.Add([]byte{0x45, 0, 0xff, 0xff}, []byte{0xff, 0xff}, []byte{0, 0})
	f.Add([]byte{0xff, 0xff}, []byte{}, []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, rest, old, new []byte) {
		old, new = old[:len(old)&^1], new[:len(new)&^1]
		was := Fold(SumPlain(rest, SumPlain(old, 0)))
		sum := SumPlain(rest, SumPlain(new, 0))
		if sum == 0 || was == 0xffff {
			return // nothing but zeros: both forms of zero are right
		}
		if got := UpdateBytes(was, old, new); got != Fold(sum) {
			t.Fatalf("UpdateBytes = %#04x, want %#04x", got, Fold(sum))
		}
	})
}

func BenchmarkUpdate32(b *testing.B) {
	c := uint16(1)
	for b.Loop() {
		c = Update32(c, 0x0a000001, 0xc6120001)
	}
}

func BenchmarkDecrementTTL(b *testing.B) {
	ip := IPv4(AppendIPv4(nil, &IPv4Header{TTL: 64}))
	for b.Loop() {
		ip.DecrementTTL()
	}
}

func BenchmarkChecksumOK(b *testing.B) {
	ip := IPv4(AppendIPv4(nil, &IPv4Header{TTL: 64}))
	for b.Loop() {
		if !ip.ChecksumOK() {
			b.Fatal("wrong checksum")
		}
	}
}
