package qpack

// entry is a row of the dynamic table.
type entry struct {
	Field
	hash hashes // of an encoder's table
	end  uint64 // sizes of all entries ever inserted, this one included
	// sameField and sameName are one more than the absolute index of the previous entry with the same
	// bucket, 0 for none: the chains of an encoder's index.
	sameField, sameName uint64
}

// table is the dynamic table (RFC 9204 3.2). Entries have absolute indexes, from 0 in the order of insertion:
//
//	0 ... first-1   evicted
//	first ... next-1  in the table, at entries[index & mask]
type table struct {
	entries     []entry // a ring, whose length is a power of two
	first, next uint64
	size        uint64
	capacity    uint64
	inserted    uint64 // sizes of all entries ever inserted
}

// at returns the entry with an absolute index, nil if it is evicted or not there yet.
func (t *table) at(index uint64) *entry {
	if index < t.first || index >= t.next {
		return nil
	}
	return &t.entries[index&uint64(len(t.entries)-1)]
}

// setCapacity changes the capacity and evicts what exceeds it (RFC 9204 3.2.3).
func (t *table) setCapacity(capacity uint64) {
	t.capacity = capacity
	for t.size > capacity {
		t.evict()
	}
}

// evict drops the oldest entry, and lets its strings go.
func (t *table) evict() {
	e := t.at(t.first)
	t.size -= e.Size()
	*e = entry{}
	t.first++
}

// insert adds an entry, evicting old ones for it (RFC 9204 3.2.2). Its size must not exceed the capacity.
func (t *table) insert(f Field) *entry {
	size := f.Size()
	for t.size+size > t.capacity {
		t.evict()
	}
	if t.next-t.first == uint64(len(t.entries)) {
		t.grow()
	}
	t.size += size
	t.inserted += size
	t.next++
	e := t.at(t.next - 1)
	*e = entry{Field: f, end: t.inserted}
	return e
}

// grow doubles the ring. Entries have at least 32 bytes, so the capacity bounds it.
func (t *table) grow() {
	bigger := make([]entry, max(16, 2*len(t.entries)))
	for i := t.first; i < t.next; i++ {
		bigger[i&uint64(len(bigger)-1)] = *t.at(i)
	}
	t.entries = bigger
}
