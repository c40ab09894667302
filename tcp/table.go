package tcp

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/wire"
)

// table finds connections by tuple: open addressing with linear probing. Entries have no
// pointers, so that the garbage collector never scans the table, and hold the hash, so that
// a miss rarely touches a connection's cache line.
type table struct {
	entries []entry // a power of two, at most 3/4 used: longer probe runs cost more than the memory saves
	used    int
	seed    [2]uint64 // a peer cannot choose tuples that collide
}

// entry is unused where id is 0.
type entry struct {
	hash uint32
	id   uint32 // of the connection, plus 1
}

const minTable = 64

func (h *table) init(seed [2]uint64) {
	h.seed = seed
	h.entries = make([]entry, minTable)
}

// hashTuple mixes the tuple with the secret by three 128-bit products, where SipHash-2-4
// takes 16 rounds. Every received segment pays for it, and hashes are never visible
// outside, so that the weaker function is enough.
func (h *table) hashTuple(t *wire.Tuple) uint32 {
	x := mix(binary.LittleEndian.Uint64(t.Remote[8:])^h.seed[0], binary.LittleEndian.Uint64(t.Remote[:])^h.seed[1])
	x = mix(x^binary.LittleEndian.Uint64(t.Local[8:]), binary.LittleEndian.Uint64(t.Local[:])^h.seed[0])
	x = mix(x^h.seed[1], uint64(t.RemotePort)<<32|uint64(t.LocalPort)|1<<63)
	return uint32(x)
}

// mix folds the two halves of a product, as wyhash does.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// insert adds connection id, whose tuple is not in the table.
func (h *table) insert(hash, id uint32) {
	if 4*(h.used+1) > 3*len(h.entries) {
		h.grow()
	}
	h.used++
	h.place(entry{hash, id + 1})
}

// place puts e at the first free slot behind its hash.
func (h *table) place(e entry) {
	mask := uint32(len(h.entries) - 1)
	i := e.hash & mask
	for h.entries[i].id != 0 {
		i = (i + 1) & mask
	}
	h.entries[i] = e
}

// grow doubles the table. Amortized over the insertions that filled it, each entry moves
// about once.
func (h *table) grow() {
	old := h.entries
	h.entries = make([]entry, 2*len(old))
	for _, e := range old {
		if e.id != 0 {
			h.place(e)
		}
	}
}

// remove takes out connection id and moves back the entries behind it that its slot had
// displaced (Knuth, TAOCP 6.4, algorithm R): tombstones would make lookups slower with
// every connection that ends.
func (h *table) remove(hash, id uint32) {
	mask := uint32(len(h.entries) - 1)
	i := hash & mask
	for h.entries[i].id != id+1 {
		if h.entries[i].id == 0 {
			return
		}
		i = (i + 1) & mask
	}
	h.used--
	for j := (i + 1) & mask; h.entries[j].id != 0; j = (j + 1) & mask {
		if (j-h.entries[j].hash)&mask >= (j-i)&mask {
			h.entries[i] = h.entries[j]
			i = j
		}
	}
	h.entries[i] = entry{}
}

// lookup returns the connection of t, nil where there is none.
func (m *Mux) lookup(t *wire.Tuple) *Conn {
	h := &m.table
	hash, mask := h.hashTuple(t), uint32(len(h.entries)-1)
	for i := hash & mask; ; i = (i + 1) & mask {
		e := h.entries[i]
		if e.id == 0 {
			return nil
		}
		if e.hash == hash {
			if c := m.conn(e.id - 1); c.tuple == *t {
				return c
			}
		}
	}
}
