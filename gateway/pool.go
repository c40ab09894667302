package gateway

import (
	"encoding/binary"
	"slices"
	"weak"
)

// pool is a Maglev table over numbers of backends, and what it was made of. It is never changed, so
// snapshots, families and both sides of a change share it.
type pool struct {
	maglev
	shape  *shape
	shares []share
	size   int
}

// noPool is the pool without a backend.
var noPool = &pool{}

// shape is the slots of a table. It depends on names, weights and the size alone: services whose
// backends have the same names and weights have one shape.
type shape struct{ slots []uint16 }

// shapes finds the shapes in use. What no pool uses any more is left to the garbage collector.
type shapes struct {
	known map[string]weak.Pointer[shape]
	limit int // of known, where the dead are removed next
}

// pool returns the pool over the shares with a weight, one of the given pools when it is the same.
func (x *shapes) pool(shares []share, size int, like ...*pool) *pool {
	shares = reduce(shares)
	if len(shares) == 0 {
		return noPool
	}
	for _, p := range like {
		if p.size == size && slices.Equal(p.shares, shares) {
			return p
		}
	}
	p := &pool{shares: shares, size: size}
	key := shapeKey(shares, size)
	if p.shape = x.known[key].Value(); p.shape == nil {
		p.shape = &shape{slots: newMaglev(shares, size).slots}
		x.remember(key, p.shape)
	}
	p.maglev = maglev{slots: p.shape.slots, ids: idsOf(shares)}
	return p
}

// Len returns the number of tables that are remembered.
func (x *shapes) Len() int { return len(x.known) }

// reduce returns the shares with a weight, with the smallest weights of the same proportion: only
// that matters to a table.
func reduce(shares []share) []share {
	shares = slices.DeleteFunc(shares, func(s share) bool { return s.weight == 0 })
	common := 0
	for _, s := range shares {
		for a, b := common, s.weight; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range shares {
		shares[i].weight /= common
	}
	return shares
}

// remember enters a shape, and forgets those that are gone each time the number has doubled.
func (x *shapes) remember(key string, s *shape) {
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
func shapeKey(shares []share, size int) string {
	key := binary.AppendUvarint(nil, uint64(size))
	for _, s := range byName(shares) {
		key = append(append(key, s.name...), 0)
		key = binary.AppendUvarint(key, uint64(s.weight))
	}
	return string(key)
}
