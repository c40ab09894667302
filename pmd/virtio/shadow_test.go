package virtio

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/virtio/vring"
	"github.com/millrace/millrace/wire"
)

// shadow is a model of what a queue may touch: a copy of the guest's file, and a map of the bytes that may change.
type shadow struct {
	g       *guest
	before  []byte
	allowed []bool
}

// snap copies the guest's file and allows the device's part of both rings and the buffers that it has.
func (s *shadow) snap(buffers []vring.Item) {
	g := s.g
	s.before = append(s.before[:0], g.mem...)
	s.allowed = make([]bool, len(g.mem))
	packed := g.s.features&featurePacked != 0
	desc, avail, used := vring.Layout(testSize, packed)
	for _, at := range g.offs {
		s.allow(at+desc+avail, used)
		if packed { // used descriptors are written in the place of available ones
			s.allow(at, desc)
		}
	}
	for _, b := range buffers {
		if off := b.Addr - testGuest; off < testMem && off+uint64(b.Len) <= testMem {
			s.allow(int(off), int(b.Len))
		}
	}
}

func (s *shadow) allow(at, n int) {
	for i := range s.allowed[at:][:n] {
		s.allowed[at+i] = true
	}
}

// check compares the guest's file with the copy.
func (s *shadow) check(t *testing.T, step int) {
	t.Helper()
	for i, c := range s.g.mem {
		if c != s.before[i] && !s.allowed[i] {
			t.Fatalf("step %d: byte %#x of the guest's memory was written, and no buffer is there", step, i)
		}
	}
}

// TestGuestReachesItsOwnBuffersOnly has a guest offer good and hostile chains at random. What is written lies in its buffers, and a
// packet from it has the bytes of its buffers and of nothing else.
func TestGuestReachesItsOwnBuffersOnly(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		s := &shadow{g: g}
		rnd := rand.New(rand.NewPCG(7, features))
		for i := range g.mem[testBufs:] {
			g.mem[testBufs+i] = byte(rnd.Uint32())
		}
		clear(g.mem[testBufs:][:12]) // the header of good packets: nothing is left to do
		place := func() vring.Item {
			if rnd.IntN(4) == 0 { // anywhere, also at the ends of the region and beyond
				return vring.Item{Addr: testGuest + testMem - 3000 + rnd.Uint64N(6000), Len: rnd.Uint32N(3000)}
			}
			return item(testBufs+4096+rnd.IntN(testMem-testBufs-4096-2000), 1+rnd.IntN(1900))
		}
		passed, written := 0, 0
		var outstanding []vring.Item
		for step := range 1500 {
			for g.drivers[toDriverRing].Free() > testSize/2 {
				b := place()
				b.Frame = uint32(len(outstanding))
				g.offer(toDriverRing, b)
				outstanding = append(outstanding, b)
			}
			s.snap(outstanding)
			if taken, err := g.tx(bytes.Repeat([]byte{byte(step)}, 60+rnd.IntN(1400))); err != nil {
				t.Fatal(err)
			} else if taken {
				written++
			}
			s.check(t, step)
			for {
				head, _, ok, err := g.drivers[toDriverRing].Used()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				outstanding[g.drivers[toDriverRing].Take(head, nil)[0]].Len = 0
			}

			data := place()
			g.offer(fromDriverRing, item(testBufs, 12), data)
			s.snap(outstanding)
			list, err := g.rx()
			if err != nil {
				t.Fatal(err)
			}
			s.check(t, step)
			g.returned(fromDriverRing)
			off := data.Addr - testGuest
			good := off+uint64(data.Len) <= testMem && data.Len >= 14 && int(data.Len) <= limit(g.mem[off:][:min(data.Len, 22)], DefaultMTU)
			if good != (len(list) == 1) || good && !bytes.Equal(list[0], g.mem[off:][:data.Len]) {
				t.Fatalf("step %d: %d bytes at %#x: %d packets", step, data.Len, off, len(list))
			}
			passed += len(list)
		}
		if passed < 300 || written < 300 {
			t.Errorf("%d packets from the guest, %d to it: the test is of no use", passed, written)
		}
	})
}

// TestDriverWithoutOffloads sends a large packet, and one with an incomplete checksum, to a driver that takes neither: segments that are
// complete come, some of them only when it has buffers again.
func TestDriverWithoutOffloads(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		const mss, total = 1000, 8000
		p := append(make([]byte, 12), 8, 0)
		p = append(p, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, wire.ProtoTCP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2)
		p = append(p, 0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0)
		for i := range total {
			p = append(p, byte(i*5))
		}
		ip := wire.IPv4(p[14:])
		ip.SetTotalLen(uint16(len(p) - 14))
		ip.FillChecksum()
		send := func(n int, gso uint8) (int, error) {
			b := packet.NewBatch(g.arena.View(), 64)
			data := append([]byte(nil), p[:n]...)
			sum := wire.PseudoHeader4(ip.Src(), ip.Dst(), wire.ProtoTCP, uint32(n-34))
			partial := ^wire.Fold(sum)
			data[50], data[51] = byte(partial>>8), byte(partial)
			if gso == 0 {
				wire.IPv4(data[14:]).SetTotalLen(uint16(n - 14))
				wire.IPv4(data[14:]).FillChecksum()
			}
			for room := 256; len(data) > 0; room = 0 {
				off, _ := g.pool.Get()
				d := packet.Desc{Off: off + uint32(room), Len: uint16(min(len(data), 2048-room))}
				copy(g.arena.Bytes(&d), data)
				if data = data[d.Len:]; len(data) > 0 {
					d.Flags = packet.FlagMore
				}
				b.Append(d)
			}
			b.D[0].Flags |= packet.FlagOffload
			g.arena.SetOffload(&b.D[0], &packet.Offload{Flags: 1, GSO: gso, HeadersEnd: 256 + 54, SegmentSize: mss, ChecksumFrom: 256 + 34, ChecksumAt: 16})
			k, err := g.q.Tx(1, b)
			b.Consume(k)
			g.pool.PutBatch(b)
			return k, err
		}
		var got []byte
		segments := 0
		collect := func() {
			for {
				head, n, ok, err := g.drivers[toDriverRing].Used()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return
				}
				off := g.drivers[toDriverRing].Take(head, nil)[0]
				s := g.mem[off:][12:n]
				seg := wire.IPv4(s[14:])
				if g.mem[off] != 0 || !seg.ValidHeader() || int(seg.TotalLen()) != len(s)-14 {
					t.Fatalf("segment of %d bytes: header %x, IP %x", len(s), g.mem[off:][:12], s[14:34])
				}
				if wire.Fold(wire.Sum(s[34:], wire.PseudoHeader4(seg.Src(), seg.Dst(), wire.ProtoTCP, uint32(len(s)-34)))) != 0 {
					t.Error("a wrong checksum")
				}
				got = append(got, s[54:]...)
				segments++
			}
		}
		for i := range 3 { // too few
			g.offer(toDriverRing, item(testBufs+i*2048, 2048))
		}
		if k, err := send(54+total, packet.GSOTCPv4); k == 0 || err != nil {
			t.Fatal(k, err)
		}
		collect()
		if segments != 3 {
			t.Errorf("%d segments in 3 buffers", segments)
		}
		if k, err := send(54+500, 0); k != 0 || err != nil {
			t.Errorf("Tx = %d, %v while segments wait", k, err)
		}
		for i := range 8 {
			g.offer(toDriverRing, item(testBufs+i*2048, 2048))
		}
		if k, err := send(54+501, 0); k != 1 || err != nil { // the segments before it
			t.Errorf("Tx = %d, %v", k, err)
		}
		collect()
		if want := append(append([]byte(nil), p[54:]...), p[54:][:501]...); segments != 9 || !bytes.Equal(got, want) {
			t.Errorf("%d segments, %d bytes", segments, len(got))
		}
	})
}
