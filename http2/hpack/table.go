package hpack

import "github.com/millrace/millrace/semantics"

// table is the dynamic table of a decoder (RFC 7541 2.3.2). The bytes of its entries lie one behind the other in one piece of
// memory, so that an insertion allocates nothing.
type table struct {
	capacity uint64 // in bytes as RFC 7541 4.1 counts them
	size     uint64 // the same
	entries  []entry
	oldest   int    // index in entries
	bytes    []byte // names and values, from those of the oldest entry on
	first    uint64 // what offset of an entry means the start of bytes
}

// entry is where a field lies.
type entry struct {
	offset      uint64 // counted from the beginning of the connection
	name, value uint32 // lengths
}

func (e *entry) size() uint64 { return uint64(e.name) + uint64(e.value) + semantics.Overhead }

// entrySize is the size of an entry in memory.
const entrySize = 16

func (t *table) allocated() int { return cap(t.entries)*entrySize + cap(t.bytes) }

// len returns the number of entries.
func (t *table) len() int { return len(t.entries) - t.oldest }

// at returns name and value of an entry, the newest being 0. They are valid until the next insertion.
func (t *table) at(i int) (name, value []byte) {
	e := &t.entries[len(t.entries)-1-i]
	b := t.bytes[e.offset-t.first:]
	return b[:e.name], b[e.name : e.name+e.value]
}

// resize sets the capacity and evicts what exceeds it (RFC 7541 4.3).
func (t *table) resize(capacity uint64) {
	t.capacity = capacity
	t.evict(0)
}

// evict removes the oldest entries until there are so many bytes left.
func (t *table) evict(need uint64) {
	for t.len() > 0 && t.size+need > t.capacity {
		t.size -= t.entries[t.oldest].size()
		t.oldest++
	}
	if t.len() == 0 {
		t.entries, t.oldest = t.entries[:0], 0
		t.first += uint64(len(t.bytes))
		t.bytes = t.bytes[:0]
	}
}

// insert adds a field. One that exceeds the capacity empties the table (RFC 7541 4.4). name and value are no part of the
// table.
func (t *table) insert(name, value []byte) {
	size := uint64(len(name)) + uint64(len(value)) + semantics.Overhead
	t.evict(size)
	if size > t.capacity {
		return
	}
	t.compact()
	t.entries = append(t.entries, entry{t.first + uint64(len(t.bytes)), uint32(len(name)), uint32(len(value))})
	t.bytes = append(append(t.bytes, name...), value...)
	t.size += size
}

// compact moves the entries to the front of their memory, once as many have gone as there may be.
func (t *table) compact() {
	if t.oldest == 0 || uint64(len(t.bytes)) < 2*t.capacity && uint64(t.oldest) < t.capacity/semantics.Overhead+1 {
		return
	}
	from := t.entries[t.oldest].offset - t.first
	t.bytes = t.bytes[:copy(t.bytes, t.bytes[from:])]
	t.first += from
	t.entries = t.entries[:copy(t.entries, t.entries[t.oldest:])]
	t.oldest = 0
}
