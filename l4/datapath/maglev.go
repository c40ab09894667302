package datapath

import (
	"cmp"
	"encoding/binary"
	"slices"
	"weak"

	tables "github.com/millrace/millrace/gateway/maglev"
)

// Tables of package maglev decide by hash. They are equal on all gateways with the same names and weights: a packet that
// another gateway forwarded before, or that came before a restart, goes to the same backend without shared state.

// Share is a backend that takes part in a table.
type Share struct {
	Name   string
	Weight int
	ID     uint32 // what the table holds
}

// maglev is a lookup table with a prime number of slots. The zero value holds no backend.
type maglev struct {
	slots []uint16 // index into ids
	ids   []uint32
}

// newMaglev returns the table over the shares with a weight above zero, or an empty one when there
// are none. size is a prime. The order of the shares does not matter.
func newMaglev(shares []Share, size int) maglev {
	var list []tables.Share
	for _, s := range byName(shares) {
		list = append(list, tables.Share{Name: s.Name, Weight: s.Weight})
	}
	if len(list) == 0 {
		return maglev{}
	}
	return maglev{slots: tables.Fill(list, size), ids: idsOf(shares)}
}

// byName returns the shares that take part, in the order of their names.
func byName(shares []Share) []Share {
	list := slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.Weight == 0 })
	slices.SortFunc(list, func(a, b Share) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// idsOf returns what the slots of a table over the shares are numbers of.
func idsOf(shares []Share) []uint32 {
	var ids []uint32
	for _, s := range byName(shares) {
		ids = append(ids, s.ID)
	}
	return ids
}

// Pick returns the backend for a hash; false when there is none. It is one load from the table, whatever the
// number of backends.
func (m *maglev) Pick(hash uint64) (uint32, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	return m.ids[m.slots[hash%uint64(len(m.slots))]], true
}

// index is Pick that returns the backend's place in ids.
func (m *maglev) index(hash uint64) (int, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	return int(m.slots[hash%uint64(len(m.slots))]), true
}

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
