package ring

import (
	"testing"
	"unsafe"
)

// Pools of loops on different cores must not share a cache line.
func TestPoolsShareNoCacheLine(t *testing.T) {
	var p Pool
	before, behind := unsafe.Offsetof(p.arena), unsafe.Sizeof(p)-unsafe.Offsetof(p.guard)
	if before < 64 || behind < 64 {
		t.Errorf("%d bytes before the fields, %d behind", before, behind)
	}
}
