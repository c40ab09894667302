package flow

import (
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// Stage is the memory of the flow stage: the packets of a chunk that have a tuple.
type Stage struct {
	n     int
	at    [tuple.ChunkSize]int32 // place in the chunk
	key   [tuple.ChunkSize]key
	hash  [tuple.ChunkSize]uint64
	slot  [tuple.ChunkSize]uint32 // index of the entry, noSlot for none
	way   [tuple.ChunkSize]uint32 // direction
	far   [tuple.ChunkSize]bool   // not in the first line
	sink  uint32                  // keeps reads whose only purpose is to bring a line near
	fresh tuple.Chunk             // packets without a valid memo
}

// Assign is the stage that writes Flow. All keys are hashed first, then the lines of tags are touched,
// then the entries that the tags point to: the reads of many packets are under way at once, and what
// compares keys finds them in the cache.
func (f *Stage) Assign(w *tuple.Chunk, b *packet.Batch, t *Table) {
	f.keys(w, b, t)
	f.near(t)
	for k := range f.n {
		i := f.slot[k]
		if i != noSlot && t.entries[i].key == f.key[k] {
			t.refresh(i)
		} else {
			i = t.find(&f.key[k], f.hash[k])
			f.slot[k] = i
		}
		d := &b.D[w.At[f.at[k]]]
		if i == noSlot {
			d.Flow = 0
			continue
		}
		t.entries[i].packets++
		d.Flow = (i+1)<<1 | f.way[k]
	}
	t.lookups += uint64(f.n)
}

// near fills slot with the entries whose tags say that they are those of the packets, which almost
// always is so, and touches them and all lines that lead there.
func (f *Stage) near(t *Table) {
	for k := range f.n {
		f.sink += t.tags[t.search(f.hash[k]).line*lineTags]
	}
	for k := range f.n {
		s := t.search(f.hash[k])
		i, end := t.likely(&s)
		f.slot[k], f.far[k] = i, !end
		if i != noSlot {
			f.sink += t.entries[i].first
		}
		for n := 1; !end && n < lineWindow; n++ {
			s.next(t.lines)
			f.sink += t.tags[s.line*lineTags]
		}
	}
	for k := range f.n {
		if !f.far[k] {
			continue
		}
		s := t.search(f.hash[k])
		for end, n := false, 1; !end && n < lineWindow; n++ {
			s.next(t.lines)
			if f.slot[k], end = t.likely(&s); f.slot[k] != noSlot {
				f.sink += t.entries[f.slot[k]].first
			}
		}
	}
}

// keys lists the packets that have a tuple, with their keys.
func (f *Stage) keys(w *tuple.Chunk, b *packet.Batch, t *Table) {
	f.n = 0
	for k := range w.N {
		d, u := &b.D[w.At[k]], &w.Tuple[k]
		if u.Known == tuple.None {
			d.Flow = 0
			continue
		}
		key := &f.key[f.n]
		f.at[f.n] = int32(k)
		f.way[f.n] = key.set(u, d.Flags)
		f.hash[f.n] = t.hash.sum(key)
		f.n++
	}
}

// likely returns the index of the entry in a line whose tag says that it is the searched one, noSlot
// where no tag says so, and whether the search ends there.
func (t *Table) likely(s *search) (i uint32, end bool) {
	line := (*[lineTags]uint32)(t.tags[s.line*lineTags:])
	for n := range uint32(lineTags) {
		i := (s.start + n) & (lineTags - 1)
		if line[i]>>tagHash == s.tag {
			return s.line*lineTags + i, true
		}
		if line[i] == tagEmpty {
			return noSlot, true
		}
	}
	return noSlot, false
}

// Recall writes Rule and NextHop of the packets whose memo is of a generation of tables, and returns
// the others as a chunk, for the stages that look up. A memo is valid for all packets of a flow except fragments:
// rules see the ports of a first fragment, flows do not.
func (f *Stage) Recall(w *tuple.Chunk, b *packet.Batch, t *Table, generation uint32) *tuple.Chunk {
	rest := &f.fresh
	rest.N = 0
	for k := range f.n {
		at := f.at[k]
		d := &b.D[w.At[at]]
		if f.slot[k] != noSlot && d.Flags&packet.FlagFragment == 0 {
			if memo := t.entries[f.slot[k]].memo[f.way[k]]; uint32(memo>>32) == generation {
				d.Rule, d.NextHop = uint16(memo), uint16(memo>>16)
				continue
			}
		}
		rest.At[rest.N], rest.Tuple[rest.N] = w.At[at], w.Tuple[at]
		rest.N++
	}
	return rest
}

// Remember writes the memos of packets that recall left, now that Rule and NextHop are found.
func (f *Stage) Remember(w *tuple.Chunk, b *packet.Batch, t *Table, generation uint32) {
	for k := range w.N {
		d := &b.D[w.At[k]]
		if d.Flow != 0 && d.Flags&packet.FlagFragment == 0 {
			memo := uint64(generation)<<32 | uint64(d.NextHop)<<16 | uint64(d.Rule)
			t.entries[d.Flow>>1-1].memo[d.Flow&1] = memo
		}
	}
}
