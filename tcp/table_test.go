package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestTableAgainstAMap inserts and removes connections, with tuples of few different hashes.
func TestTableAgainstAMap(t *testing.T) {
	m := NewMux(Config{Output: &sink{}, MaxConns: 1 << 12})
	r := rand.New(rand.NewPCG(5, 5))
	model := map[wire.Tuple]*Conn{}
	var tuples []wire.Tuple
	for range 40_000 {
		tuple := wire.Tuple{Local: addrA, Remote: addrB, LocalPort: uint16(r.IntN(60)), RemotePort: uint16(r.IntN(60))}
		c := model[tuple]
		if got := m.lookup(&tuple); got != c {
			t.Fatalf("found %p, want %p", got, c)
		}
		switch {
		case c != nil && r.IntN(2) == 0:
			m.table.remove(m.table.hashTuple(&tuple), c.id)
			m.freeConn(c)
			delete(model, tuple)
		case c == nil:
			c = m.allocConn()
			c.tuple = tuple
			m.table.insert(m.table.hashTuple(&tuple), c.id)
			model[tuple] = c
			tuples = append(tuples, tuple)
		}
	}
	for _, tuple := range tuples {
		if got := m.lookup(&tuple); got != model[tuple] {
			t.Fatalf("found %p, want %p", got, model[tuple])
		}
	}
	if m.table.used != len(model) || m.slab.live != len(model) {
		t.Errorf("%d in the table, %d in the slab, want %d", m.table.used, m.slab.live, len(model))
	}
}
