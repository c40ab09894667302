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
	v.nonces.reset(len(b.Ops))
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Result = b.check(op); op.Result == Pending && v.nonces.reused(b, i) {
			op.Result = NonceReused
		}
	}
}

// ForOpen is ForSeal for texts that are to be opened, whose nonces may repeat.
func (v *Validator) ForOpen(b *Batch) {
	for i := range b.Ops {
		b.Ops[i].Result = b.check(&b.Ops[i])
	}
}

// check returns why an operation cannot be done, or Pending.
func (b *Batch) check(op *Op) Result {
	if int64(op.Key) >= int64(len(b.Keys)) || !b.Keys[op.Key].ready() {
		return BadKey
	}
	size := uint64(len(b.Mem))
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
