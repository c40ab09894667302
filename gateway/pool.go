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

// hashSizes are the table sizes that `hash_size: auto` chooses from: few and far between, so that a
// service rarely outgrows its own, which moves nearly all of its flows that no table knows.
var hashSizes = [...]int{1021, 8191, 65537, 524287}

// Slots of a table: this many for each backend keep what moves when one leaves near the least that
// can (Maglev, NSDI 2016, 5.3), and for the one with the smallest weight keep its share near that
// weight.
const (
	slotsEach     = 100
	slotsSmallest = 8
)

// autoHashSize returns the size for the backends of a configuration, whatever their states, so that
// gateways with that configuration agree.
func autoHashSize(backends []Backend) int {
	sum, least := 0, MaxWeight
	for _, b := range backends {
		sum += b.Weight
		if b.Weight > 0 {
			least = min(least, b.Weight)
		}
	}
	need := max(slotsEach*len(backends), slotsSmallest*sum/least)
	for _, size := range hashSizes {
		if size >= need {
			return size
		}
	}
	return hashSizes[len(hashSizes)-1]
}
