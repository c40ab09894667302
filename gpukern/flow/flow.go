// Package flow assigns a slot to every flow, the same for both directions, in a table of fixed size that a CPU
// and a GPU lay out alike. It reads the tuples of packets alone; the state of a flow is
// the caller's business.
package flow

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/ring"
)

// Limits of a flow table.
const (
	MaxFlows = 16 << 20 // flows at once
	MaxIdle  = 4096     // epochs
)

// Config describes a flow table.
type Config struct {
	Flows int    // how many it holds at once, 1 to MaxFlows; memory is 85 bytes for each
	Idle  int    // epochs without a packet after which a flow is over, 1 to MaxIdle; 0 is 8
	Seed  uint64 // of the hash; 0 is a random one
}

// Table assigns a slot to every flow, the same for both directions (OpFlow). It belongs to the loop of
// the one engine that it is given to (Config.Flows); its memory lies outside of the Go heap, in huge
// pages where there are any.
//
// A flow is two ends (address, and port where it is known and the packet is no fragment) and a protocol.
// One that had no packet for more than Idle epochs is over: its slot may go to another flow, and if it
// comes back it counts as new. Nothing is swept: an entry expires when an insertion needs its
// place. After 16384 epochs without a packet an entry whose place was not needed looks young again.
//
// A flow is in one of six lines of sixteen tags that its hash names, most often (97%) in the first. At
// Flows flows four slots in five are used. A flow that finds no room has Flow 0 and is counted
// (Stats.Full): 1 in 10^5 until the table holds Flows of them, 1 in 200 of the next eighth.
type Table struct {
	tags    []uint32 // lineTags for each line
	entries []entry
	counts  []uint64 // by counter
	lines   uint32
	idle    uint32
	epoch   uint32
	hash    hasher
	arena   *ring.Arena
	lookups uint64
}

// entry is a flow, in one cache line: struct gk_flow_entry. The memo of a direction is what the
// tables say about it (memo).
type entry struct {
	key     key
	first   uint32 // epoch
	packets uint32
	memo    [2]uint64
}

// Tags: a hash of 16 bits that is not 0, a bit that says that the entry is being written (devices only),
// and the low 15 bits of the epoch of the last packet.
const (
	lineTags    = 16
	lineWindow  = 6 // lines in which a flow may be
	tagEmpty    = 0 // no flow was ever here
	tagDeleted  = 1 // a flow was, and others may have passed it on the way to their places
	tagEpoch    = 1<<15 - 1
	tagBusy     = 1 << 15
	tagHash     = 16         // shift
	tagHalf     = 1 << 14    // ages from here on are epochs to come
	noSlot      = ^uint32(0) // index of no entry
	linePercent = 80         // of the tags are used by Flows flows
)

// counter is the index of a counter in Table.counts.
const (
	countInserts = iota
	countTakenOver
	countFull
	countDeletes
	counters = 8 // a line
)

// New returns an empty table. The caller closes it after the engine.
func New(cfg Config) (*Table, error) {
	if cfg.Flows < 1 || cfg.Flows > MaxFlows {
		return nil, fmt.Errorf("flow table: %d flows are not within the limits, 1 to %d", cfg.Flows, MaxFlows)
	}
	if cfg.Idle < 0 || cfg.Idle > MaxIdle {
		return nil, fmt.Errorf("flow table: %d idle epochs are not within the limits, 1 to %d", cfg.Idle, MaxIdle)
	}
	if cfg.Idle == 0 {
		cfg.Idle = 8
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64() // of the runtime's generator, which the system seeds
	}
	const perLine = lineTags * linePercent
	t := &Table{idle: uint32(cfg.Idle), lines: prime(uint32((100*cfg.Flows + perLine - 1) / perLine))}
	t.hash.seeded(cfg.Seed)
	slots := int(t.lines) * lineTags
	head := 8 * counters
	const page = 64 << 10
	size := head + slots*(4+int(unsafe.Sizeof(entry{})))
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: (size + page - 1) / page, FrameSize: page})
	if err != nil {
		return nil, fmt.Errorf("flow table of %d flows: %w", cfg.Flows, err)
	}
	t.arena = arena
	t.counts = image.Over[uint64](arena.Mem, counters)
	t.tags = image.Over[uint32](arena.Mem[head:], slots)
	t.entries = image.Over[entry](arena.Mem[head+4*slots:], slots)
	return t, nil
}

// prime returns n or the next prime number above it: steps of any width come through all lines then.
func prime(n uint32) uint32 {
	for d := uint32(2); d*d <= n; d++ {
		if n%d == 0 {
			n, d = n+1, 1
		}
	}
	return n
}

// Close unmaps the table. No engine may use it any more.
func (t *Table) Close() error {
	t.tags, t.entries, t.counts, t.lines = nil, nil, nil, 0
	return t.arena.Close()
}

// Pages describes the pages that the table is made of.
func (t *Table) Pages() string { return t.arena.Pages() }

// Size returns the bytes of memory that the table takes.
func (t *Table) Size() int { return len(t.arena.Mem) }

// Slots returns the highest slot.
func (t *Table) Slots() uint32 { return uint32(len(t.tags)) }

// Advance begins the next epoch. Batches that are in an engine then end in the old one; none may be in it
// for more than Idle epochs. (A flow whose first packets lie in batches of two epochs that a device works
// on at once may get two slots: an engine for which that matters lets the old batches end first.)
func (t *Table) Advance() { t.epoch++ }

// Epoch returns the present epoch, from 0.
func (t *Table) Epoch() uint32 { return t.epoch }

// Stats count what happened in a flow table.
type Stats struct {
	Lookups   uint64 // packets that asked; of the CPU form only
	Inserts   uint64 // flows that began
	TakenOver uint64 // entries of flows that were over and made room, also for the same flow
	Deleted   uint64 // by Delete
	Full      uint64 // packets that found no room
}

// Stats returns the counts since the table was made. For a table on a device they are those of the last
// time that its memory was copied here.
func (t *Table) Stats() Stats {
	return Stats{t.lookups, t.counts[countInserts], t.counts[countTakenOver], t.counts[countDeletes], t.counts[countFull]}
}

// Len returns the number of flows in the table, those that are over but not taken over included.
func (t *Table) Len() int {
	return int(t.counts[countInserts] - t.counts[countTakenOver] - t.counts[countDeletes])
}

// Flow describes an entry of a flow table.
type Flow struct {
	A, B    netip.AddrPort // the lower end and the higher one; packets from A have direction 0
	Ports   bool           // the ports of A and B are known
	Proto   uint8
	First   uint32 // epochs of the first and last packet
	Last    uint32
	Packets uint32 // of both directions, modulo 2^32
	Idle    bool   // the flow is over; another may take its place at any time
}

// Entry returns the flow in a slot (Desc.Flow>>1) and false where none is.
func (t *Table) Entry(slot uint32) (Flow, bool) {
	if slot == 0 || slot > t.Slots() || t.tags[slot-1]>>tagHash == 0 {
		return Flow{}, false
	}
	tag, e := t.tags[slot-1], &t.entries[slot-1]
	f := Flow{
		Ports: tuple.Known(e.key.rest) == tuple.Ports, Proto: uint8(e.key.rest >> 16),
		First: e.first, Last: t.epoch - t.age(tag), Packets: e.packets, Idle: t.over(tag),
	}
	f.A, f.B = e.key.ends()
	return f, true
}

// age returns how many epochs ago the last packet of a live tag's flow was.
func (t *Table) age(tag uint32) uint32 { return (t.epoch - tag) & tagEpoch }

// over reports whether the flow of a live tag is over.
func (t *Table) over(tag uint32) bool {
	age := t.age(tag)
	return age > t.idle && age < tagHalf
}

// Delete forgets the flow in a slot and reports whether there was one. No batch may be in the engine,
// unless it works on the calling core.
func (t *Table) Delete(slot uint32) bool {
	if slot == 0 || slot > t.Slots() || t.tags[slot-1]>>tagHash == 0 {
		return false
	}
	i := slot - 1
	next := i&^(lineTags-1) | (i+1)&(lineTags-1)
	t.tags[i] = tagDeleted
	if t.tags[next] == tagEmpty { // then no flow ever passed i
		t.tags[i] = tagEmpty
	}
	t.counts[countDeletes]++
	return true
}

// search is where a hash leads: to lines, step apart, a place in each where to begin, and the hash that
// tags bear.
type search struct{ line, step, start, tag uint32 }

func (t *Table) search(hash uint64) search {
	return search{
		line:  uint32(hash >> 32 * uint64(t.lines) >> 32),
		step:  1 + uint32(uint64(uint32(hash>>12))*uint64(max(t.lines, 2)-1)>>32),
		start: uint32(hash>>16) & (lineTags - 1),
		tag:   max(uint32(hash)&0xffff, 1),
	}
}

// next goes to the next line.
func (s *search) next(lines uint32) {
	if s.line += s.step; s.line >= lines {
		s.line -= lines
	}
}

// find returns the index of k's entry, which it makes where there is none; noSlot where there is no
// room. The flow's packet is not counted yet.
//
// The order of places is: line after line; within a line those that are free, from start on and round,
// and then those whose flow is over. All forms insert at the first of them, so that an empty place
// ends a search.
func (t *Table) find(k *key, hash uint64) uint32 {
	place, s := noSlot, t.search(hash)
	for range min(lineWindow, t.lines) {
		var found uint32
		var end bool
		if place == noSlot {
			found, place, end = t.scan(k, &s)
		} else if found, end = t.likely(&s); found != noSlot && t.entries[found].key != *k {
			found, _, end = t.scan(k, &s)
		}
		if found != noSlot {
			t.refresh(found)
			return found
		}
		if end {
			break
		}
		s.next(t.lines)
	}
	if place == noSlot {
		t.counts[countFull]++
		return noSlot
	}
	t.insert(place, k, s.tag)
	return place
}

// scan looks for k in a line of tags. It returns the index of its entry or noSlot, the best place for
// it, and whether the search ends here.
func (t *Table) scan(k *key, s *search) (found, place uint32, end bool) {
	base := s.line * lineTags
	line := (*[lineTags]uint32)(t.tags[base:])
	free, old := noSlot, noSlot
	for n := range uint32(lineTags) {
		i := (s.start + n) & (lineTags - 1)
		w := line[i]
		if w>>tagHash == s.tag && t.entries[base+i].key == *k {
			return base + i, noSlot, true
		}
		switch {
		case w>>tagHash == 0:
			if free == noSlot {
				free = base + i
			}
			if w == tagEmpty {
				return noSlot, free, true
			}
		case old == noSlot && t.over(w):
			old = base + i
		}
	}
	if free != noSlot {
		return noSlot, free, false
	}
	return noSlot, old, false
}

// refresh marks the flow of entry i as seen in this epoch. A flow that was over begins anew.
func (t *Table) refresh(i uint32) {
	tag := t.tags[i]
	if tag&tagEpoch == t.epoch&tagEpoch {
		return
	}
	if t.over(tag) {
		t.insert(i, &t.entries[i].key, tag>>tagHash)
		return
	}
	t.tags[i] = tag&^tagEpoch | t.epoch&tagEpoch
}

// insert makes entry i the one of k.
func (t *Table) insert(i uint32, k *key, tag uint32) {
	if t.tags[i]>>tagHash != 0 {
		t.counts[countTakenOver]++
	}
	t.counts[countInserts]++
	t.tags[i] = tag<<tagHash | t.epoch&tagEpoch
	t.entries[i] = entry{key: *k, first: t.epoch}
}

// Image is struct gk_flows.
func (t *Table) Image() image.Image {
	if t == nil {
		t = new(Table)
	}
	var m image.Image
	m.Pointer(image.Bytes(t.tags))
	m.Pointer(image.Bytes(t.entries))
	m.Pointer(image.Bytes(t.counts))
	m.U32(t.lines)
	m.U32(t.idle)
	for _, k := range t.hash {
		m.U32(k)
	}
	return m
}
