package datapath

import (
	"encoding/binary"
	"slices"
	"weak"
)

// pool is a Maglev table over numbers of backends, and what it was made of. It is never changed, so
// snapshots, families and both sides of a change share it.
type Pool struct {
	maglev
	shape  *shape
	shares []Share
	size   int
}

// noPool is the pool without a backend.
var NoPool = &Pool{}

// shape is the slots of a table. It depends on names, weights and the size alone: services whose
// backends have the same names and weights have one shape.
type shape struct{ slots []uint16 }

// shapes finds the shapes in use. What no pool uses any more is left to the garbage collector.
type Shapes struct {
	known map[string]weak.Pointer[shape]
	limit int // of known, where the dead are removed next
}

// pool returns the pool over the shares with a weight, one of the given pools when it is the same.
func (x *Shapes) Pool(shares []Share, size int, like ...*Pool) *Pool {
	shares = reduce(shares)
	if len(shares) == 0 {
		return NoPool
	}
	for _, p := range like {
		if p.size == size && slices.Equal(p.shares, shares) {
			return p
		}
	}
	p := &Pool{shares: shares, size: size}
	key := shapeKey(shares, size)
	if p.shape = x.known[key].Value(); p.shape == nil {
		p.shape = &shape{slots: newMaglev(shares, size).slots}
		x.remember(key, p.shape)
	}
	p.maglev = maglev{slots: p.shape.slots, ids: idsOf(shares)}
	return p
}

// Len returns the number of tables that are remembered.
func (x *Shapes) Len() int { return len(x.known) }

// reduce returns the shares with a weight, with the smallest weights of the same proportion: only
// that matters to a table.
func reduce(shares []Share) []Share {
	shares = slices.DeleteFunc(shares, func(s Share) bool { return s.Weight == 0 })
	common := 0
	for _, s := range shares {
		for a, b := common, s.Weight; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range shares {
		shares[i].Weight /= common
	}
	return shares
}

// remember enters a shape, and forgets those that are gone each time the number has doubled.
func (x *Shapes) remember(key string, s *shape) {
	if x.known == nil {
		x.known = map[string]weak.Pointer[shape]{}
	}
	if len(x.known) >= max(x.limit, 64) {
		for k, w := range x.known {
			if w.Value() == nil {
				delete(x.known, k)
			}
		}
		x.limit = 2 * len(x.known)
	}
	x.known[key] = weak.Make(s)
}

// shapeKey returns what a shape depends on. Names hold no byte 0.
func shapeKey(shares []Share, size int) string {
	key := binary.AppendUvarint(nil, uint64(size))
	for _, s := range byName(shares) {
		key = append(append(key, s.Name...), 0)
		key = binary.AppendUvarint(key, uint64(s.Weight))
	}
	return string(key)
}
