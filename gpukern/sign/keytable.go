package sign

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A table costs as much as passes save in about so many signatures: keys that are used less often than that have none.
const usesAlone = 8

// mostTables bounds the memory of tables: 21 MB on P-256, 50 MB on P-384, 63 MB of Ed25519. Keys beyond sign by Go's packages.
const mostTables = 512

// tables counts those of this process.
var tables atomic.Int64

// keyTable has what passes need of a key, from its ninth signature on.
type keyTable[K any] struct {
	uses   atomic.Int64
	once   sync.Once
	digits atomic.Pointer[K]
}

// used reports whether there is a table. It counts a use.
func (t *keyTable[K]) used(newTable func() (*K, error)) bool {
	if t.digits.Load() == nil && t.uses.Add(1) > usesAlone {
		t.compute(newTable)
	}
	return t.digits.Load() != nil
}

// compute makes the table, unless there are too many.
func (t *keyTable[K]) compute(newTable func() (*K, error)) {
	t.once.Do(func() {
		if tables.Add(1) > mostTables {
			tables.Add(-1)
			return
		}
		d, err := newTable()
		if err != nil {
			tables.Add(-1)
			return
		}
		runtime.AddCleanup(d, func(n int64) { tables.Add(-n) }, 1)
		t.digits.Store(d)
	})
}
