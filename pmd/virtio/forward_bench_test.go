package virtio

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// rawGuest is a driver that costs nothing: its rings stay as they are, and it makes all buffers available again by an index, or the
// flags of a packed ring.
type rawGuest struct {
	*guest
	packed bool
	turn   [2]int // bursts of each ring
}

// newRawGuest fills both rings with buffers for a header and 64 bytes.
func newRawGuest(b *testing.B, features uint64) *rawGuest {
	g := &rawGuest{guest: newGuest(b, features), packed: features&featurePacked != 0}
	le := binary.LittleEndian
	desc, _, _ := vring.Layout(testSize, g.packed)
	for dir := range 2 {
		ring := g.mem[g.offs[dir]:]
		for i := range testSize {
			buf := testBufs + (dir*testSize+i)*512
			d := ring[16*i:]
			le.PutUint64(d, uint64(testGuest+buf))
			le.PutUint32(d[8:], maxHeader+64)
			flags := uint16(0)
			if dir == toDriverRing {
				le.PutUint32(d[8:], 512)
				flags = 2 // the device writes
			}
			if g.packed {
				le.PutUint16(d[12:], uint16(i))
				le.PutUint16(d[14:], flags)
			} else {
				le.PutUint16(d[12:], flags)
				le.PutUint16(ring[desc+4+2*i:], uint16(i))
			}
			copy(g.mem[buf+maxHeader:], []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
		}
	}
	return g
}

// offer makes all buffers of a ring available.
func (g *rawGuest) offer(dir int) {
	le := binary.LittleEndian
	ring := g.mem[g.offs[dir]:]
	desc, _, _ := vring.Layout(testSize, g.packed)
	g.turn[dir]++
	if !g.packed {
		le.PutUint16(ring[desc+2:], uint16(g.turn[dir]*testSize))
		return
	}
	flags := uint16(1 << 7) // AVAIL of the first lap
	if g.turn[dir]%2 == 0 {
		flags = 1 << 15
	}
	if dir == toDriverRing {
		flags |= 2
	}
	for i := range testSize {
		d := ring[16*i:]
		le.PutUint16(d[14:], flags)
		if dir == toDriverRing {
			le.PutUint32(d[8:], 512)
		} else {
			le.PutUint32(d[8:], maxHeader+64)
		}
	}
}

// BenchmarkForward receives packets of 64 bytes from a guest and sends them back, 64 at once: the cost for each packet.
func BenchmarkForward(b *testing.B) {
	for _, packed := range []bool{false, true} {
		b.Run(fmt.Sprintf("packed=%v", packed), func(b *testing.B) {
			features := uint64(featureMrgRxbuf)
			if packed {
				features |= featurePacked
			}
			g := newRawGuest(b, features)
			batch := packet.NewBatch(g.arena.View(), testSize)
			b.ReportAllocs()
			for n := 0; n < b.N; n += testSize {
				g.offer(fromDriverRing)
				g.offer(toDriverRing)
				if k, err := g.q.Rx(1, batch); k != testSize || err != nil {
					b.Fatal(k, err)
				}
				if k, err := g.q.Tx(1, batch); k != testSize || err != nil {
					b.Fatal(k, err)
				}
				batch.Reset()
			}
		})
	}
}
