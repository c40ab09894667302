package qpack

import (
	"strings"

	"github.com/millrace/millrace/http2/hpack"
)

// planDynamic decides for every field how it is encoded, and inserts entries. s collects what the section
// refers to.
func (e *Encoder) planDynamic(fields []Field, s *outstanding) {
	full := len(e.outstanding) >= maxOutstanding
	mayBlock := !full && e.mayBlock(s.stream)
	for i := range fields {
		f := &fields[i]
		if f.Never || full {
			e.plans = append(e.plans, planStatic(f))
			continue
		}
		e.plans = append(e.plans, e.plan(f, s, mayBlock))
	}
}

// mayBlock reports whether a section of the stream may refer to entries that the peer may not have yet: the
// number of streams at risk is bounded by the peer (RFC 9204 2.1.2).
func (e *Encoder) mayBlock(stream uint64) bool {
	if e.maxBlocked == 0 {
		return false
	}
	risky := 0
	for _, o := range e.outstanding {
		if o.required > e.received {
			if o.stream == stream {
				return true
			}
			risky++ // one stream with several sections counts more than once: never too few
		}
	}
	return risky < e.maxBlocked
}

// plan decides for one field.
func (e *Encoder) plan(f *Field, s *outstanding, mayBlock bool) plan {
	h := hashOf(f)
	if i := staticIndex.field(h.field, f); i >= 0 {
		return plan{staticField, uint64(i)}
	}
	at, found := e.index.field(&e.table, h, f)
	if found && e.draining(at) {
		// RFC 9204 2.1.1.1: new references would keep it, and all that is newer, from being evicted.
		at, found = e.duplicate(at, s)
	} else if !found && e.worth(f, h) {
		at, found = e.insert(f, h, s)
	}
	if found && e.refer(at, s, mayBlock) {
		return plan{dynamicField, at}
	}
	if i := staticIndex.name(h.name, f.Name); i >= 0 {
		return plan{staticName, uint64(i)}
	}
	if at, found = e.index.name(&e.table, h, f.Name); found && !e.draining(at) && e.refer(at, s, mayBlock) {
		return plan{dynamicName, at}
	}
	return plan{how: literal}
}

// refer notes a reference of the section, if it is permitted.
func (e *Encoder) refer(at uint64, s *outstanding, mayBlock bool) bool {
	if at >= e.received && !mayBlock {
		return false
	}
	s.required = max(s.required, at+1)
	s.oldest = min(s.oldest, at)
	return true
}

// draining reports whether an entry is among the oldest quarter of the table's bytes.
func (e *Encoder) draining(at uint64) bool {
	age := e.table.inserted - e.table.at(at).end
	return age > e.table.capacity-e.table.capacity/4
}

// duplicate inserts a draining entry again (RFC 9204 4.3.4).
func (e *Encoder) duplicate(at uint64, s *outstanding) (uint64, bool) {
	old := *e.table.at(at)
	if !e.makeRoom(old.Size(), s) {
		return 0, false
	}
	if e.table.at(at) == nil {
		// Making room has evicted it.
		return e.insert(&old.Field, old.hash, s)
	}
	e.out = hpack.AppendInteger(e.out, 0, 5, e.table.next-at-1)
	return e.add(old.Field, old.hash), true
}

// insert inserts a copy of a field, if there is room.
func (e *Encoder) insert(f *Field, h hashes, s *outstanding) (uint64, bool) {
	if !e.makeRoom(f.Size(), s) {
		return 0, false
	}
	kept := Field{Value: strings.Clone(f.Value)}
	if i := staticIndex.name(h.name, f.Name); i >= 0 {
		kept.Name = static[i].Name
		e.out = hpack.AppendInteger(e.out, 0xC0, 6, uint64(i))
	} else if at, found := e.index.name(&e.table, h, f.Name); found {
		kept.Name = e.table.at(at).Name
		e.out = hpack.AppendInteger(e.out, 0x80, 6, e.table.next-at-1)
	} else {
		kept.Name = strings.Clone(f.Name)
		e.out = appendString(e.out, 0x40, 5, f.Name)
	}
	e.out = appendString(e.out, 0, 7, f.Value)
	return e.add(kept, h), true
}

func (e *Encoder) add(f Field, h hashes) uint64 {
	entry := e.table.insert(f)
	entry.hash = h
	at := e.table.next - 1
	e.index.add(entry, at)
	return at
}

// makeRoom evicts entries until one of the size fits. It evicts none that the peer may not have yet or that
// an outstanding section, or this one, refers to (RFC 9204 2.1.1).
func (e *Encoder) makeRoom(size uint64, s *outstanding) bool {
	t := &e.table
	if len(e.out) > maxInstructions {
		return false
	}
	free, last := t.capacity-t.size, t.first
	for free < size {
		if last >= e.received || last >= e.oldest || last >= s.oldest {
			return false
		}
		free += t.at(last).Size()
		last++
	}
	for t.first < last {
		t.evict()
	}
	return true
}

// worth reports whether a field is to be inserted: at once while there is room and the name is one whose
// values repeat, otherwise when it comes the second time.
func (e *Encoder) worth(f *Field, h hashes) bool {
	size := f.Size()
	if size > e.table.capacity/2 {
		return false
	}
	seen := &e.seen[h.field%uint64(len(e.seen))]
	again := *seen == uint32(h.field>>32)
	*seen = uint32(h.field >> 32)
	return again || e.table.size+size <= e.table.capacity && !volatile(f.Name)
}

// volatile reports whether values of the name seldom repeat.
func volatile(name string) bool {
	switch name {
	case ":path", "content-length", "content-range", "range", "date", "age", "expires", "etag", "last-modified", "if-none-match",
		"if-modified-since", "location", "referer", "x-request-id", "traceparent", "set-cookie":
		return true
	}
	return false
}
