package sketch

import (
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// Stage is the memory of the sketch stage: the packets of a chunk that have a source.
type Stage struct {
	n     int
	hash  [tuple.ChunkSize]uint64
	bytes [tuple.ChunkSize]uint32
	sink  uint64 // keeps reads whose only purpose is to bring a line near
}

// Count is the stage that counts. A packet counts with the bytes that were captured, those of all its
// descriptors, Ethernet header and padding included, as an interface's counters do. The counters of all
// packets are touched before any is changed: their reads are under way at once.
func (f *Stage) Count(w *tuple.Chunk, b *packet.Batch, s *Sketch) {
	f.n = 0
	for k := range w.N {
		if u := &w.Tuple[k]; u.Known != tuple.None {
			at := int(w.At[k])
			f.hash[f.n] = s.hash(b.D[at].Flags&packet.FlagIPv4 != 0, u.SrcHi)
			f.bytes[f.n] = lengthOf(b, at)
			f.n++
		}
	}
	for k := range f.n {
		for _, i := range s.rows(f.hash[k]) {
			f.sink += s.cells[i].packets
		}
	}
	for k := range f.n {
		s.add(f.hash[k], f.bytes[k])
	}
}

// lengthOf returns the bytes in all descriptors of the packet that begins at descriptor i.
func lengthOf(b *packet.Batch, i int) uint32 {
	n := uint32(b.D[i].Len)
	for b.D[i].Flags&packet.FlagMore != 0 && i+1 < len(b.D) {
		i++
		n += uint32(b.D[i].Len)
	}
	return n
}
