// Package testpackets puts packets into frames and takes them out again, for tests of drivers.
package testpackets

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// Append adds p to b, in as many frames of the pool as it needs. It reports false where the pool has too few: b then
// ends with frames that belong to no packet.
func Append(b *packet.Batch, pool *ring.Pool, p []byte) bool {
	arena := pool.Arena()
	for len(p) > 0 {
		off, ok := pool.Get()
		if !ok {
			return false
		}
		d := packet.Desc{Off: off, Len: uint16(min(len(p), arena.FrameSize()))}
		if p = p[copy(arena.Bytes(&d), p):]; len(p) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
	return true
}

// Split returns copies of the packets of b, each in one piece.
func Split(b *packet.Batch) (list [][]byte) {
	var p []byte
	for i := range b.D {
		p = append(p, b.Bytes(i)...)
		if !b.D[i].Flags.Has(packet.FlagMore) {
			list = append(list, p)
			p = nil
		}
	}
	return list
}

// Frames is the ring.Holder of the frames of a batch.
type Frames struct{ *packet.Batch }

// Holds implements ring.Holder.
func (f Frames) Holds(visit func(off uint32)) {
	for i := range f.D {
		visit(f.D[i].Off)
	}
}
