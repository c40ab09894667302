package gpukern

import "github.com/millrace/millrace/packet"

// sketchWork is the memory of the sketch stage: the packets of a chunk that have a source.
type sketchWork struct {
	n     int
	hash  [chunkSize]uint64
	bytes [chunkSize]uint32
	sink  uint64 // keeps reads whose only purpose is to bring a line near
}

// sketch is the stage that counts. A packet counts with the bytes that were captured, those of all its
// descriptors, Ethernet header and padding included, as an interface's counters do. The counters of all
// packets are touched before any is changed: their reads are under way at once.
func (f *sketchWork) sketch(w *chunk, b *packet.Batch, s *Sketch) {
	f.n = 0
	for k := range w.n {
		if u := &w.tuple[k]; u.known != knowsNothing {
			at := int(w.at[k])
			f.hash[f.n] = s.hash(b.D[at].Flags&packet.FlagIPv4 != 0, u.srcHi)
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
