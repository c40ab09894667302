package qpack

import (
	"hash/maphash"
	"math/bits"
)

// seed is random for each process, so that a peer cannot choose fields whose hashes collide.
var seed = maphash.MakeSeed()

// hashes are those of a field and of its name.
type hashes struct {
	field, name uint64
}

func hashOf(f *Field) hashes {
	name := maphash.String(seed, f.Name)
	// The product keeps fields apart whose name and value are exchanged.
	return hashes{name: name, field: bits.RotateLeft64(name, 31)*0x9E3779B97F4A7C15 ^ maphash.String(seed, f.Value)}
}

// staticIndex finds entries of the static table: open addressing, 0 for a free slot, else one more than
// the index in the table.
var staticIndex = newStaticIndex()

type staticSlots struct {
	fields [512]uint8
	names  [256]uint8
}

func newStaticIndex() *staticSlots {
	s := &staticSlots{}
	for i := range static {
		h := hashOf(&static[i])
		put(s.fields[:], h.field, uint8(i+1))
		if s.name(h.name, static[i].Name) < 0 {
			put(s.names[:], h.name, uint8(i+1))
		}
	}
	return s
}

func put(slots []uint8, h uint64, v uint8) {
	i := h & uint64(len(slots)-1)
	for slots[i] != 0 {
		i = (i + 1) & uint64(len(slots)-1)
	}
	slots[i] = v
}

// field returns the index of the entry that equals f, -1 for none.
func (s *staticSlots) field(h uint64, f *Field) int {
	for i := h & uint64(len(s.fields)-1); s.fields[i] != 0; i = (i + 1) & uint64(len(s.fields)-1) {
		if e := &static[s.fields[i]-1]; e.Name == f.Name && e.Value == f.Value {
			return int(s.fields[i]) - 1
		}
	}
	return -1
}

// name returns the first index with the name, -1 for none.
func (s *staticSlots) name(h uint64, name string) int {
	for i := h & uint64(len(s.names)-1); s.names[i] != 0; i = (i + 1) & uint64(len(s.names)-1) {
		if static[s.names[i]-1].Name == name {
			return int(s.names[i]) - 1
		}
	}
	return -1
}

// index finds entries of an encoder's dynamic table. Each bucket has one more than the absolute index of its
// newest entry; the entries chain older ones. Evicted entries are the oldest, so a chain ends at the
// first of them and nothing is ever removed.
type index struct {
	fields, names [256]uint64
}

func (x *index) add(e *entry, at uint64) {
	f, n := &x.fields[e.hash.field%256], &x.names[e.hash.name%256]
	e.sameField, e.sameName = *f, *n
	*f, *n = at+1, at+1
}

// field returns the absolute index of the newest entry that equals f.
func (x *index) field(t *table, h hashes, f *Field) (at uint64, found bool) {
	for i := x.fields[h.field%256]; i > 0; {
		e := t.at(i - 1)
		if e == nil {
			return 0, false
		}
		if e.hash.field == h.field && e.Name == f.Name && e.Value == f.Value {
			return i - 1, true
		}
		i = e.sameField
	}
	return 0, false
}

// name returns the absolute index of the newest entry with the name.
func (x *index) name(t *table, h hashes, name string) (at uint64, found bool) {
	for i := x.names[h.name%256]; i > 0; {
		e := t.at(i - 1)
		if e == nil {
			return 0, false
		}
		if e.hash.name == h.name && e.Name == name {
			return i - 1, true
		}
		i = e.sameName
	}
	return 0, false
}
