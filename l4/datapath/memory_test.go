package datapath

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/internal/random"
)

// Large slices begin on a huge page, are zero, and go back to the kernel with the table.
func TestLargeTablesLieOutsideTheHeap(t *testing.T) {
	var m memory
	if s := slice[uint64](&m, hugePage/8-1); len(m) != 0 || len(s) != hugePage/8-1 {
		t.Errorf("%d words lie in %d mappings", len(s), len(m))
	}
	s := slice[Conn](&m, hugePage/64+1)
	if len(m) != 1 || len(s) != hugePage/64+1 || uintptr(unsafe.Pointer(&s[0]))%hugePage != 0 {
		t.Fatalf("%d connections at %p in %d mappings", len(s), &s[0], len(m))
	}
	for i := range s {
		if s[i] != (Conn{}) {
			t.Fatalf("connection %d is not zero", i)
		}
		s[i].vip = uint32(i)
	}
	m.free()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tb := newTable(1_000_000, 250_000, new(random.Source))
	runtime.ReadMemStats(&after)
	if n := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && n > 8<<20 || len(tb.conns) != 1_000_000 {
		t.Errorf("the heap grew by %d bytes", n)
	}
}
