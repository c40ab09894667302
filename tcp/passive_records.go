package tcp

import (
	"github.com/millrace/millrace/wire"
)

// record is an entry of a table of records: a tuple, and room for a link.
type record[T any] interface {
	*T
	key() *wire.Tuple
	link() *uint32
}

// records is a table of pointer-free records by tuple, in slots of one slice: the garbage
// collector does not scan it. It doubles up to its limit, and frees its memory when the
// last record of many goes. The hash is keyed, so that an attacker cannot make long chains.
type records[T any, P record[T]] struct {
	key     sipKey
	limit   int
	used    int
	slots   []T      // records, in use or in the free chain
	buckets []uint32 // chains by hash: slot+1, 0 ends
	free    uint32   // chain of free slots, likewise
}

// noSlot is the slot of no record.
const noSlot = ^uint32(0)

// minRecords is the first size of a table. One of more than 16 times that is freed when it
// is empty.
const minRecords = 64

func (r *records[T, P]) at(slot uint32) P { return &r.slots[slot] }

func (r *records[T, P]) bucket(t *wire.Tuple) *uint32 {
	return &r.buckets[uint32(r.key.tuple(t, 0))&uint32(len(r.buckets)-1)]
}

// find returns the slot of t's record, noSlot where there is none.
func (r *records[T, P]) find(t *wire.Tuple) uint32 {
	if r.used == 0 {
		return noSlot
	}
	for n := *r.bucket(t); n != 0; n = *P(&r.slots[n-1]).link() {
		if *P(&r.slots[n-1]).key() == *t {
			return n - 1
		}
	}
	return noSlot
}

// insert returns the slot of a new record for t, of which it sets only the tuple; the rest
// is zero. noSlot is a full table. Slots stay valid until remove; pointers to records only
// until the next insert.
func (r *records[T, P]) insert(t *wire.Tuple) uint32 {
	if r.free == 0 && !r.grow() {
		return noSlot
	}
	n := r.free
	p := P(&r.slots[n-1])
	r.free = *p.link()
	var zero T
	*p = zero
	*p.key() = *t
	h := r.bucket(t)
	*p.link(), *h = *h, n
	r.used++
	return n - 1
}

// remove frees a slot.
func (r *records[T, P]) remove(slot uint32) {
	p := P(&r.slots[slot])
	at := r.bucket(p.key())
	for *at != slot+1 {
		at = P(&r.slots[*at-1]).link()
	}
	*at = *p.link()
	var zero T
	*p = zero
	*p.link(), r.free = r.free, slot+1
	r.used--
	if r.used == 0 && len(r.slots) > 16*minRecords {
		r.slots, r.buckets, r.free = nil, nil, 0
	}
}

// grow doubles the table.
func (r *records[T, P]) grow() bool {
	old := len(r.slots)
	n := min(max(2*old, minRecords), r.limit)
	if n <= old {
		return false
	}
	all := make([]T, n)
	copy(all, r.slots)
	r.slots = all
	r.rehash(old)
	for i := n; i > old; i-- {
		*P(&r.slots[i-1]).link(), r.free = r.free, uint32(i)
	}
	return true
}

// rehash builds the chains of the first n slots anew, all of which are in use.
func (r *records[T, P]) rehash(n int) {
	size := 1
	for size < len(r.slots) {
		size *= 2
	}
	r.buckets = make([]uint32, size)
	for i := range n {
		p := P(&r.slots[i])
		h := r.bucket(p.key())
		*p.link(), *h = *h, uint32(i+1)
	}
}
