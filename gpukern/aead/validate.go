package aead

import (
	"encoding/binary"
	"math/bits"
)

// Validator finds the operations of batches that cannot be done. Every back end begins with it, so that all refuse the same.
// It belongs to one loop. The zero value is ready.
type Validator struct{ nonces nonceSet }

// ForSeal sets the result of each operation to Pending, or to why it is refused.
func (v *Validator) ForSeal(b *Batch) {
	b.Check(uint64(len(b.Mem)), 0, len(b.Ops))
	v.FindReused(b, 0, 1)
}

// ForOpen is ForSeal for texts that are to be opened, whose nonces may repeat.
func (v *Validator) ForOpen(b *Batch) { b.Check(uint64(len(b.Mem)), 0, len(b.Ops)) }

// Check is ForOpen for the operations from one on up to another, in memory of that size, which may be a device's: Mem is
// not looked at. Several loops can check parts of a batch.
func (b *Batch) Check(size uint64, from, to int) {
	for i := from; i < to; i++ {
		b.Ops[i].Result = b.check(&b.Ops[i], size)
	}
}

// FindReused refuses operations that are Pending and whose nonce an earlier one of them has. Of several parts, each is that of a
// Validator of its own, and looks at other nonces: so several loops can share a batch.
func (v *Validator) FindReused(b *Batch, part, parts int) {
	if parts == 1 {
		v.nonces.reset(len(b.Ops))
		for i := range b.Ops {
			if op := &b.Ops[i]; op.Result == Pending && v.nonces.reused(b, i) {
				op.Result = NonceReused
			}
		}
		return
	}
	ours := 0
	for i := range b.Ops {
		if b.part(&b.Ops[i], parts) == part {
			ours++
		}
	}
	v.nonces.reset(ours)
	for i := range b.Ops {
		op := &b.Ops[i]
		if b.part(op, parts) == part && op.Result == Pending && v.nonces.reused(b, i) { // in this order: other results are others'
			op.Result = NonceReused
		}
	}
}

// part returns the part of so many that an operation belongs to, by its nonce and key. It is -1 for one without a key.
func (b *Batch) part(op *Op, parts int) int {
	if int64(op.Key) >= int64(len(b.Keys)) || b.Keys[op.Key] == nil {
		return -1
	}
	counter := binary.LittleEndian.Uint64(op.Nonce[4:12])
	return int((counter ^ b.Keys[op.Key].id<<40) * 0x9e3779b97f4a7c15 >> 32 % uint64(parts))
}

// check returns why an operation cannot be done in memory of that size, or Pending.
func (b *Batch) check(op *Op, size uint64) Result {
	if int64(op.Key) >= int64(len(b.Keys)) || !b.Keys[op.Key].ready() {
		return BadKey
	}
	text, end := uint64(op.Text), uint64(op.Text)+uint64(op.Len)+TagSize
	aad, aadEnd := uint64(op.AAD), uint64(op.AAD)+uint64(op.AADLen)
	switch {
	case end > size, aadEnd > size:
		return BadRange
	case op.AADLen > 0 && aad < end && text < aadEnd:
		return BadRange
	case b.Keys[op.Key].algorithm.cbc() && (op.Len%16 != 0 || op.AADLen != 8 && op.AADLen != 12):
		return BadLength
	}
	return Pending
}

// nonceSet finds nonces that a batch has twice under one key.
//
// It is a hash table with open addressing whose entries are indices of operations. Each batch has a number of its own, so that
// the table needs no clearing.
type nonceSet struct {
	entries []nonceEntry
	batch   uint32
	shift   uint8
}

type nonceEntry struct{ batch, op uint32 }

// reset prepares the set for a batch of n operations.
func (s *nonceSet) reset(n int) {
	s.batch++
	if size := 2 << bits.Len(uint(n)); size > len(s.entries) || s.batch == 0 {
		s.entries = make([]nonceEntry, max(size, len(s.entries)))
		s.shift = uint8(64 - bits.Len(uint(len(s.entries)-1)))
		s.batch = 1
	}
}

// reused adds the nonce of operation i, unless an earlier one has it.
func (s *nonceSet) reused(b *Batch, i int) bool {
	op := &b.Ops[i]
	key := b.Keys[op.Key]
	lo, hi := nonceWords(key, op)
	// The sender chooses the nonces, no attacker: collisions are chance.
	at := (lo ^ (hi+key.id)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> s.shift
	for mask := uint64(len(s.entries) - 1); ; at = (at + 1) & mask {
		e := &s.entries[at]
		if e.batch != s.batch {
			*e = nonceEntry{s.batch, uint32(i)}
			return false
		}
		other := &b.Ops[e.op]
		if b.Keys[other.Key] != key {
			continue
		}
		if l, h := nonceWords(key, other); l == lo && h == hi {
			return true
		}
	}
}

// nonceWords returns the bytes of a nonce that count.
func nonceWords(k *Key, op *Op) (lo, hi uint64) {
	lo = binary.LittleEndian.Uint64(op.Nonce[4:12]) // with the counter
	hi = uint64(binary.LittleEndian.Uint32(op.Nonce[:4]))
	if k.algorithm.cbc() {
		hi |= uint64(binary.LittleEndian.Uint32(op.Nonce[12:])) << 32
	}
	return lo, hi
}
