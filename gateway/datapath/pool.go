package datapath

import (
	"encoding/binary"
	"slices"
	"weak"
)

// Pool is a Maglev table over numbers of backends, and what it was made of. It is never changed, so
// snapshots, families and both sides of a change share it.
type Pool struct {
	maglev
	table   *slotTable
	shares  []Share
	weights []int // of ids
	size    int
}

// Backends returns the numbers of the backends in the pool, which the caller must not change.
func (p *Pool) Backends() []uint32 { return p.ids }

// EmptyPool is the pool without a backend.
var EmptyPool = &Pool{}

// slotTable is the slots of a table. It depends on names, weights and the size alone: services whose
// backends have the same names and weights share one.
type slotTable struct{ slots []uint16 }

// PoolCache shares the tables in use between pools: a table of 65537 slots takes 128 KB, and thousands of
// services may have backends of the same names. Tables that no pool uses are left to the garbage collector.
type PoolCache struct {
	known map[string]weak.Pointer[slotTable]
	limit int // of known, where those that are gone are removed next
}

// Get returns the pool over the shares with a weight. It is one of the given pools if that is the same, so
// that a change of one service publishes nothing for others.
func (x *PoolCache) Get(shares []Share, size int, like ...*Pool) *Pool {
	shares = reduce(shares)
	if len(shares) == 0 {
		return EmptyPool
	}
	for _, p := range like {
		if p.size == size && slices.Equal(p.shares, shares) {
			return p
		}
	}
	p := &Pool{shares: shares, size: size}
	key := tableKey(shares, size)
	if p.table = x.known[key].Value(); p.table == nil {
		p.table = &slotTable{slots: newMaglev(shares, size).slots}
		x.remember(key, p.table)
	}
	p.maglev = maglev{slots: p.table.slots, ids: idsOf(shares)}
	for _, s := range byName(shares) {
		p.weights = append(p.weights, s.Weight)
	}
	return p
}

// Len returns the number of tables that are remembered.
func (x *PoolCache) Len() int { return len(x.known) }

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

// remember enters a table, and forgets those that are gone each time the number has doubled.
func (x *PoolCache) remember(key string, s *slotTable) {
	if x.known == nil {
		x.known = map[string]weak.Pointer[slotTable]{}
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

// tableKey returns what a table depends on. Names hold no byte 0.
func tableKey(shares []Share, size int) string {
	key := binary.AppendUvarint(nil, uint64(size))
	for _, s := range byName(shares) {
		key = append(append(key, s.Name...), 0)
		key = binary.AppendUvarint(key, uint64(s.Weight))
	}
	return string(key)
}
